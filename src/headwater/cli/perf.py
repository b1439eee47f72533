"""`headwater perf`: measures producers and consumers on this machine, with percentiles."""

import asyncio
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import click

from headwater.cli.name_completion import TOPIC
from headwater.cli.options import (
    bootstrap_option,
    client_settings,
    json_option,
    setting_option,
    timeout_option,
)
from headwater.cli.output import show, show_json
from headwater.cli.reach_broker import require_reachable
from headwater.client.consumer.blocking import Consumer
from headwater.client.consumer.consumer import Consumer as AsyncConsumer
from headwater.client.errors import TimedOutError
from headwater.client.producer.blocking import Producer
from headwater.client.producer.futures import OnDelivery, RecordMetadata
from headwater.client.producer.producer import Producer as AsyncProducer
from headwater.config.client import ConsumerSettings, ProducerSettings
from headwater.errors import KafkaError

_SAMPLES = 10_000
_TRANSACTION_MS = 100
_POLL_S = 0.5
_PATIENCE_S = 30.0
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


class ProgressBar(Protocol):
    """Shows progress."""

    def __call__(self, done: int) -> None:
        """Show that `done` items are done."""


@click.group("perf")
def command() -> None:
    """Measure the speed of producers and consumers on this machine."""


@command.command("produce")
@click.argument("topic", shell_complete=TOPIC)
@click.option("-n", "--records", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("-s", "--size", type=click.IntRange(0), default=100, show_default=True, help="Bytes.")
@click.option(
    "--rate", type=click.IntRange(1), help="Records per second; without it, as fast as possible."
)
@click.option("--transactional", is_flag=True, help="Send the records in transactions.")
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(1),
    metavar="MS",
    help="How long each transaction is open before its commit; implies --transactional.  "
    f"[default: {_TRANSACTION_MS}]",
)
@bootstrap_option
@timeout_option
@setting_option
@json_option
def produce(
    topic: str,
    records: int,
    size: int,
    rate: int | None,
    transactional: bool,
    transaction_duration_ms: int | None,
    bootstrap: str,
    timeout: float,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send records to TOPIC and time their acknowledgements."""
    options = client_settings(ProducerSettings, bootstrap, settings)
    transactional = transactional or transaction_duration_ms is not None
    if transactional:
        options.setdefault("transactional_id", f"headwater-perf-{uuid.uuid4()}")
    elif options.get("transactional_id") is not None:
        raise click.UsageError("transactional.id is set: give --transactional to send transactions")
    require_reachable(bootstrap, timeout, [topic], to_write=True, settings=options)
    value, every = bytes(size), max(records // _SAMPLES, 1)
    latencies: list[float] = []
    failures: list[KafkaError] = []
    with (
        Producer(**options) as producer,
        _progress("produce", records) as bar,
    ):
        producer.partitions_for(topic)
        transactions = (
            _Transactions(producer, transaction_duration_ms or _TRANSACTION_MS)
            if transactional
            else None
        )
        begun = time.perf_counter()
        for number in range(records):
            if number % every:
                producer.send(topic, value)
            else:
                if transactions is not None:
                    transactions.turn()
                producer.send(topic, value, on_delivery=_timed(latencies, failures))
                bar(number)
                _keep_pace(begun, number, rate)
        if transactions is not None:
            transactions.commit()
        producer.flush()
        elapsed = time.perf_counter() - begun
    if failures:
        raise failures[0]
    figures = {} if transactions is None else transactions.figures(elapsed)
    _report(records, size, elapsed, latencies, as_json, figures)


class _Transactions:
    """Ends transactions after a while and times their commits."""

    def __init__(self, producer: Producer, duration_ms: int) -> None:
        self._producer = producer
        self._duration_s = duration_ms / 1000
        self._commits: list[float] = []
        producer.init_transactions()
        self._begin()

    def _begin(self) -> None:
        self._producer.begin_transaction()
        self._commit_at = time.perf_counter() + self._duration_s

    def turn(self) -> None:
        """Commit the transaction and begin the next one if it has been open for long enough."""
        if time.perf_counter() >= self._commit_at:
            self.commit()
            self._begin()

    def commit(self) -> None:
        asked = time.perf_counter()
        self._producer.commit_transaction()
        self._commits.append((time.perf_counter() - asked) * 1000)

    def figures(self, elapsed: float) -> dict[str, object]:
        """Return the number and rate of transactions and the time that their commits took."""
        ordered = sorted(self._commits)
        return {
            "transactions": len(ordered),
            "transactions_per_s": round(len(ordered) / elapsed, 1),
            "commit_p50_ms": round(percentile(ordered, 50), 2),
            "commit_p99_ms": round(percentile(ordered, 99), 2),
        }


def _timed(latencies: list[float], failures: list[KafkaError]) -> OnDelivery:
    sent = time.perf_counter()

    def delivered(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        if error is not None:
            failures.append(error)
        latencies.append((time.perf_counter() - sent) * 1000)

    return delivered


def _keep_pace(begun: float, number: int, rate: int | None) -> None:
    if rate is not None:
        ahead = number / rate - (time.perf_counter() - begun)
        if ahead > 0:
            time.sleep(ahead)


@command.command("consume")
@click.argument("topic", shell_complete=TOPIC)
@click.option("-n", "--records", type=click.IntRange(1), help="How many records; without it, all.")
@click.option("--arrow", is_flag=True, help="Use poll_arrow() instead of poll().")
@bootstrap_option
@timeout_option
@setting_option
@json_option
def consume(
    topic: str,
    records: int | None,
    arrow: bool,
    bootstrap: str,
    timeout: float,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Read TOPIC from the beginning and time the polls."""
    options = client_settings(ConsumerSettings, bootstrap, settings, auto_offset_reset="earliest")
    require_reachable(bootstrap, timeout, [topic], settings=options)
    with Consumer(**options) as consumer:
        places = [(topic, number) for number in consumer.partitions_for(topic)]
        first, end = consumer.beginning_offsets(places), consumer.end_offsets(places)
        there = sum(end.values()) - sum(first.values())
        wanted = there if records is None else min(records, there)
        consumer.assign(places)
        seen, size, polls = 0, 0, []
        with _progress("consume", wanted) as bar:
            begun = arrived = time.perf_counter()
            while seen < wanted:
                asked = time.perf_counter()
                count, taken = _one_poll(consumer, arrow)
                now = time.perf_counter()
                if count:
                    polls.append((now - asked) * 1000)
                    seen, size, arrived = seen + count, size + taken, now
                    bar(seen)
                elif all(consumer.position(place) >= offset for place, offset in end.items()):
                    break  # the other offsets are taken by the ends of transactions
                elif now - arrived > _PATIENCE_S:
                    raise TimedOutError(f"no record arrived within {_PATIENCE_S:g} s")
            elapsed = arrived - begun
    _report(seen, size // max(seen, 1), elapsed, polls, as_json)
    if records is not None and records > seen:
        raise click.ClickException(f"{topic} has {seen} records, fewer than --records {records}")


def _one_poll(consumer: Consumer, arrow: bool) -> tuple[int, int]:
    """Poll once; return the number of records and the bytes of their values."""
    if arrow:
        batch = consumer.poll_arrow(_POLL_S)
        return (0, 0) if batch is None else (batch.num_rows, batch.column("value").nbytes)
    records = consumer.poll(_POLL_S)
    return len(records), sum(len(record.value or b"") for record in records)


@command.command("e2e")
@click.argument("topic", shell_complete=TOPIC)
@click.option("-n", "--records", type=click.IntRange(1), default=5000, show_default=True)
@click.option("-s", "--size", type=click.IntRange(8), default=100, show_default=True, help="Bytes.")
@click.option("--rate", type=click.IntRange(1), default=1000, show_default=True, help="Per second.")
@bootstrap_option
@timeout_option
@json_option
def e2e(
    topic: str,
    records: int,
    size: int,
    rate: int,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Time records from send() to the poll() that returns them, at a steady rate."""
    require_reachable(bootstrap, timeout, [topic])
    with _progress("e2e", records) as bar:
        begun = time.perf_counter()
        latencies = asyncio.run(_end_to_end(bootstrap, topic, records, size, rate, bar))
        elapsed = time.perf_counter() - begun
    _report(records, size, elapsed, latencies, as_json)


async def _end_to_end(
    bootstrap: str, topic: str, records: int, size: int, rate: int, bar: ProgressBar
) -> list[float]:
    latencies: list[float] = []
    from_the_end = client_settings(ConsumerSettings, bootstrap, (), auto_offset_reset="latest")
    async with (
        AsyncProducer(**client_settings(ProducerSettings, bootstrap, (), linger_ms=0)) as producer,
        AsyncConsumer(**from_the_end) as consumer,
    ):
        places = [(topic, number) for number in await consumer.partitions_for(topic)]
        await consumer.assign(places)
        for place in places:
            await consumer.position(place)

        async def read() -> None:
            while len(latencies) < records:
                found = await consumer.poll(_PATIENCE_S)
                now = time.perf_counter_ns()
                if not found:
                    raise TimedOutError(f"no record arrived within {_PATIENCE_S:g} s")
                latencies.extend(
                    (now - int.from_bytes((one.value or b"")[:8])) / 1e6 for one in found
                )
                bar(len(latencies))

        reading = asyncio.ensure_future(read())
        begun = time.perf_counter()
        for number in range(records):
            await asyncio.sleep(max(begun + number / rate - time.perf_counter(), 0))
            stamp = time.perf_counter_ns().to_bytes(8)
            await producer.send(topic, stamp + bytes(size - 8))
        await reading
    return latencies


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the value that `percent` of the samples do not exceed."""
    if not ordered:
        return 0.0
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def _report(
    records: int,
    size: int,
    elapsed: float,
    latencies: list[float],
    as_json: bool,
    more: Mapping[str, object] | None = None,
) -> None:
    ordered = sorted(latencies)
    row: dict[str, object] = {
        "records": records,
        "seconds": round(elapsed, 3),
        "records_per_s": round(records / elapsed) if elapsed else 0,
        "mb_per_s": round(records * size / elapsed / 1e6, 2) if elapsed else 0.0,
    }
    for percent in PERCENTILES:
        name = f"p{percent:g}_ms".replace(".", "")
        row[name] = round(percentile(ordered, percent), 2)
    row["max_ms"] = round(ordered[-1], 2) if ordered else 0.0
    row |= more or {}
    if as_json:
        show_json(row)
    else:
        show([row], as_json=False)


@contextmanager
def _progress(what: str, total: int) -> Iterator[ProgressBar]:
    """Show a progress bar on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)

        def bar(done: int) -> None:
            progress.update(task, completed=done)

        yield bar
