"""Consumers beside each other: records per second and CPU time per record, in one run.

    python -m benchmarks.clients.consume [--broker apache] [--rounds 3] [--case 100B] [--client NAME]

The broker holds a topic written beforehand; each client reads all of it, or the first part of it if
it is a slow one, from being told what to read to the last record. Medians of the rounds are told,
and their ratio to the better of confluent-kafka as it comes and confluent-kafka tuned
(fetch.queue.backoff.ms, a big queue); `contest` says how they are taken. The last row is not a client
but what the stream carries (`wire`), in plain text alone.
"""

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.clients.contest import (
    TOPIC,
    Figures,
    Stopwatch,
    arguments,
    broker_of,
    parsed,
    place_of,
    rate_table,
    run_worker,
    running,
    save,
    take_turns,
)
from benchmarks.clients.place import Place
from headwater.model import TopicPartition

CASES = {"100B": (100, 3_000_000), "1KB": (1024, 600_000)}
WIRE = "the wire, nothing decoded"
"""Speaks no TLS."""
DIFFERENT = 10_000
"""Records of a topic before they repeat."""


def headwater_poll(place: Place, watch: Stopwatch, how: str) -> None:
    """The blocking face."""
    from headwater import Consumer

    with Consumer(
        **place.headwater(), auto_offset_reset="earliest", max_poll_records=500
    ) as consumer:
        if how == "arrow":
            import pyarrow  # noqa: F401 - imported before the clock starts
        partitions = [(TOPIC, number) for number in consumer.partitions_for(TOPIC)]
        left = watch.count
        watch.start()
        consumer.assign(partitions)
        if how == "arrow":
            while left > 0:
                batch = consumer.poll_arrow(5)
                left -= batch.num_rows if batch is not None else 0
        else:
            while left > 0:
                left -= len(consumer.poll(5))
        watch.stop()


def headwater_aio(place: Place, watch: Stopwatch, how: str) -> None:
    """The asyncio face."""
    import uvloop

    from headwater.aio import Consumer

    async def run() -> None:
        async with Consumer(
            **place.headwater(), auto_offset_reset="earliest", max_poll_records=500
        ) as consumer:
            if how == "arrow":
                import pyarrow  # noqa: F401 - imported before the clock starts
            partitions = [(TOPIC, number) for number in await consumer.partitions_for(TOPIC)]
            left = watch.count
            watch.start()
            await consumer.assign(partitions)
            while left > 0:
                if how == "arrow":
                    batch = await consumer.poll_arrow(5)
                    left -= batch.num_rows if batch is not None else 0
                else:
                    left -= len(await consumer.poll(5))
            watch.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def headwater_range(place: Place, watch: Stopwatch, how: str) -> None:
    """A range of each partition straight to Arrow, as the tasks of a Spark source read it."""
    import pyarrow  # noqa: F401 - imported before the clock starts

    from headwater import Consumer
    from headwater.pipelines.topic_source.broker_client_loop import broker_client
    from headwater.pipelines.topic_source.offsets import OffsetRange
    from headwater.pipelines.topic_source.range_reader import RangeReader

    with Consumer(**place.headwater()) as consumer:
        partitions = [TopicPartition(TOPIC, number) for number in consumer.partitions_for(TOPIC)]
        ends = consumer.end_offsets(partitions)
    reader = RangeReader(
        broker_client(place.headwater()),
        headers=False,
        fail_on_data_loss=True,
        timeout_ms=30_000,
    )
    left = watch.count
    watch.start()
    for partition, end in ends.items():
        for batch in reader.read(OffsetRange(*partition, 0, end)):
            left -= batch.num_rows
    if left > 0:
        raise RuntimeError(f"{left} records are missing")
    watch.stop()


def confluent_consume(place: Place, watch: Stopwatch, how: str) -> None:
    """confluent-kafka's consume(), the quickest it has."""
    from confluent_kafka import Consumer, TopicPartition

    options: dict[str, Any] = {**place.librdkafka(), "group.id": "bench"}
    options |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    if how == "tuned":
        options |= {"fetch.queue.backoff.ms": 5, "queued.min.messages": 1_000_000}
        options |= {"queued.max.messages.kbytes": 1_048_576}
    consumer = Consumer(options)
    partitions = consumer.list_topics(TOPIC).topics[TOPIC].partitions
    left = watch.count
    watch.start()
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in partitions])
    while left > 0:
        left -= len(consumer.consume(500, 0.5))
    watch.stop()
    consumer.close()


def aiokafka_getmany(place: Place, watch: Stopwatch, how: str) -> None:
    """Aiokafka."""
    import uvloop
    from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            **place.aiokafka(), auto_offset_reset="earliest", max_poll_records=500
        )
        await consumer.start()
        left = watch.count
        watch.start()
        consumer.subscribe([TOPIC])
        while left > 0:
            found = await consumer.getmany(timeout_ms=5000)
            left -= sum(map(len, found.values()))
        watch.stop()
        await consumer.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def kafka_python_poll(place: Place, watch: Stopwatch, how: str) -> None:
    """kafka-python."""
    from kafka import KafkaConsumer  # type: ignore[import-untyped]

    consumer = KafkaConsumer(
        TOPIC, **place.kafka_python(), auto_offset_reset="earliest", max_poll_records=500
    )
    left = watch.count
    watch.start()
    while left > 0:
        found = consumer.poll(timeout_ms=5000)
        left -= sum(map(len, found.values()))
    watch.stop()
    consumer.close()


def the_wire(place: Place, watch: Stopwatch, how: str) -> None:
    """No client: what the stream carries."""
    from benchmarks.clients.wire import fetch_everything

    fetch_everything(place.bootstrap, watch)


Read = Callable[[Place, Stopwatch, str], None]
CLIENTS: dict[str, tuple[Read, str, str, float]] = {
    # name: function, variant, codec, which part of the topic it reads
    "confluent-kafka": (confluent_consume, "", "", 1.0),
    "confluent-kafka tuned": (confluent_consume, "tuned", "", 1.0),
    "headwater pure poll": (headwater_poll, "", "pure", 0.5),
    "headwater pure poll aio": (headwater_aio, "", "pure", 0.5),
    "headwater compiled poll": (headwater_poll, "", "compiled", 1.0),
    "headwater compiled poll aio": (headwater_aio, "", "compiled", 1.0),
    "headwater compiled poll_arrow": (headwater_poll, "arrow", "compiled", 1.0),
    "headwater compiled poll_arrow aio": (headwater_aio, "arrow", "compiled", 1.0),
    "headwater compiled ranges": (headwater_range, "", "compiled", 1.0),
    "aiokafka": (aiokafka_getmany, "", "", 0.15),
    "kafka-python": (kafka_python_poll, "", "", 0.05),
    WIRE: (the_wire, "", "compiled", 1.0),
}


def contest(case: str, asked: argparse.Namespace) -> dict[str, Figures]:
    """Medians by client."""
    size, count = CASES[case]
    count = max(round(count * asked.scale / DIFFERENT), 1) * DIFFERENT
    with running(asked.broker, secure=asked.secure, partitions=asked.partitions) as place:
        fill(place, size, count, asked.batch)

        def measure(client: str) -> Figures:
            _, _, codec, part = CLIENTS[client]
            return run_worker("consume", client, codec, place, count=int(count * part))

        plain_only = [WIRE] if asked.secure else []
        clients = [name for name in asked.client or CLIENTS if name not in plain_only]
        return take_turns(clients, asked.rounds, measure)


def fill(place: Place, size: int, count: int, batch_size: int) -> None:
    """Write `count` records."""
    from headwater import Producer

    values = [b"%08d" % number + bytes(size - 8) for number in range(DIFFERENT)]
    with Producer(**place.headwater(), batch_size=batch_size) as producer:
        for _ in range(0, count, len(values)):
            producer.send_many(TOPIC, values)


def work(client: str, place: Place, count: int) -> None:
    """One run, in a process of its own."""
    function, how, _, _ = CLIENTS[client]
    function(place, Stopwatch(count), how)


def main() -> None:
    """Run all cases and print the table."""
    parser = arguments(__doc__, CLIENTS)
    parser.add_argument("--case", action="append", choices=list(CASES), help="repeatable")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16_384, help="bytes of a batch written")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    asked = parsed(parser)
    if asked.worker:
        work(asked.worker, place_of(asked), asked.count)
        return
    results = {case: contest(case, asked) for case in asked.case or CASES}
    for case, rows in results.items():
        print(f"\n{case}, {broker_of(asked)}: rate, CPU\n{rate_table(rows)}")
    save(results, asked.json)


if __name__ == "__main__":
    main()
