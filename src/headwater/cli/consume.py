"""`headwater consume`: print the records of a range."""

import base64
import datetime as dt
import json
import sys
from collections.abc import Callable, Sequence

import click

from headwater.cli.name_completion import GROUP, TOPIC
from headwater.cli.options import (
    bootstrap_option,
    client_settings,
    separator_bytes,
    setting_option,
    timeout_option,
)
from headwater.cli.output import check_stdout, require_stdout
from headwater.cli.reach_broker import require_reachable
from headwater.cli.record_format import RecordFormatError, compile_template
from headwater.client.admin.offset_resets import ResetTarget, ResetTo
from headwater.client.consumer.blocking import Consumer
from headwater.client.consumer.record import ConsumerRecord, Records
from headwater.config.client import ConsumerSettings
from headwater.model import TopicPartition

_POLL_S = 0.5
_ENDS = {"earliest": ResetTo.earliest(), "latest": ResetTo.latest()}


def _hyphens(word: str) -> str:
    """Let `read_committed`, as clients write it, be `read-committed`."""
    return word.replace("_", "-")


@click.command("consume", context_settings={"token_normalize_func": _hyphens})
@click.argument("topics", nargs=-1, required=True, shell_complete=TOPIC)
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="earliest (the default), latest, an offset, -N (the last N of each partition), a time, or "
    "a duration (PT1H) ago.",
)
@click.option(
    "--until", metavar="WHERE", help="Stop at an offset or a time; by default at the end."
)
@click.option("-f", "--follow", is_flag=True, help="Keep reading as records arrive.")
@click.option(
    "-n", "--count", type=click.IntRange(1), help="Stop after N records in all.", metavar="N"
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Only this partition; may be repeated.",
)
@click.option(
    "--group",
    shell_complete=GROUP,
    help="Read as a member of this group from its position, and commit what was printed.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read-uncommitted", "read-committed"]),
    help="read-committed prints no records of aborted transactions and stops at the first open one.",
)
@click.option(
    "-F",
    "--format",
    "form",
    default="value",
    show_default=True,
    metavar="FORMAT",
    help="value, key-value, json, full, or a template such as '%o %k %s\\n': %t topic, %p partition, "
    "%o offset, %k key, %s value, %T timestamp, %h headers, %K and %S lengths, %% a percent sign.",
)
@click.option("--separator", default="\t", help="Between key and value.")
@bootstrap_option
@timeout_option
@setting_option
def command(
    topics: tuple[str, ...],
    start: str | None,
    until: str | None,
    follow: bool,
    count: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    isolation: str | None,
    form: str,
    separator: str,
    bootstrap: str,
    timeout: float,
    settings: tuple[str, ...],
) -> None:
    """Print the records of TOPICS; with --follow, keep reading."""
    if group is not None and (partitions or until or start):
        raise click.UsageError(
            "--group reads from the group's position: leave out --from, --until and --partition"
        )
    require_stdout()
    write = _writer(form, separator)
    options = client_settings(
        ConsumerSettings,
        bootstrap,
        settings,
        auto_offset_reset="earliest",
        default_api_timeout_ms=max(1, int(timeout * 1000)),
    )
    if isolation is not None:
        options["isolation_level"] = isolation.replace("-", "_")
    require_reachable(bootstrap, timeout, topics, settings=options)
    if group is not None:
        options |= {"group_id": group, "enable_auto_commit": False}
    with Consumer(**options) as consumer:
        if group is not None:
            consumer.subscribe(topics)
            ends: dict[TopicPartition, int] | None = None
        else:
            places = _assign(consumer, topics, partitions)
            _seek(consumer, places, _where(start or "earliest", consumer))
            ends = _stops(consumer, places, until, follow)
        _print(consumer, ends, follow, count, write)


def _assign(
    consumer: Consumer, topics: Sequence[str], partitions: Sequence[int]
) -> list[TopicPartition]:
    every = [
        TopicPartition(topic, number)
        for topic in topics
        for number in consumer.partitions_for(topic)
    ]
    places = [place for place in every if not partitions or place.partition in partitions]
    missing = sorted(set(partitions) - {place.partition for place in every})
    if missing:
        numbers, names = ", ".join(map(str, missing)), ", ".join(topics)
        raise click.UsageError(f"no partition {numbers} in {names}; see headwater topics describe")
    consumer.assign(places)
    return places


def _where(text: str, consumer: Consumer) -> ResetTo:
    """Parse a position in a log."""
    if text in _ENDS:
        return _ENDS[text]
    try:
        if text.lstrip("-").isdigit():
            number = int(text)
            return ResetTo.shift_by(number) if number < 0 else ResetTo.offset(number)
        return ResetTo.duration(text) if text.startswith("P") else ResetTo.datetime(text)
    except ValueError:
        raise click.UsageError(
            f"{text!r}: write earliest, latest, an offset, -N, a time such as 2026-01-31T12:00, or "
            "a duration such as PT1H"
        ) from None


def _offsets(
    consumer: Consumer, places: list[TopicPartition], where: ResetTo
) -> dict[TopicPartition, int]:
    first, end = consumer.beginning_offsets(places), consumer.end_offsets(places)
    now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000)  # noqa: TID251 - a person's clock
    timestamp = where.timestamp(now_ms)
    times = consumer.offsets_for_times(dict.fromkeys(places, timestamp)) if timestamp else {}
    found: dict[TopicPartition, int] = {}
    for place in places:
        row = times.get(place)
        offset = where.offset_in(end[place], first[place], end[place], row.offset if row else None)
        found[place] = first[place] if offset is None else offset
    return found


def _seek(consumer: Consumer, places: list[TopicPartition], where: ResetTo) -> None:
    for place, offset in _offsets(consumer, places, where).items():
        consumer.seek(place, offset)


def _stops(
    consumer: Consumer, places: list[TopicPartition], until: str | None, follow: bool
) -> dict[TopicPartition, int] | None:
    """Return where to stop in each partition; None to read on."""
    if until is None:
        return None if follow else consumer.end_offsets(places)
    where = _where(until, consumer)
    if where.target is ResetTarget.OFFSET and follow:
        return dict.fromkeys(places, where.number)
    return _offsets(consumer, places, where)


def _print(
    consumer: Consumer,
    ends: dict[TopicPartition, int] | None,
    follow: bool,
    count: int | None,
    write: Callable[[ConsumerRecord], bytes],
) -> None:
    left = count
    while not _finished(consumer, ends):
        limit = None if left is None else min(left, consumer.settings.max_poll_records)
        records = _until(consumer.poll(_POLL_S, limit), ends)
        _write_out(b"".join(map(write, records)))
        if not records and follow:
            check_stdout()  # without records, no write would tell
        if records and consumer.settings.group_id is not None:
            consumer.commit()  # only what was printed
        if left is not None:
            left -= len(records)
            if left <= 0:
                return
        if not records and not follow and ends is None and _at_end(consumer):
            return


def _write_out(printed: bytes) -> None:
    out = sys.stdout.buffer
    try:
        out.write(printed)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        said = f"cannot write to standard output: {problem.strerror or problem}"
        raise click.ClickException(said) from None


def _until(records: Records, ends: dict[TopicPartition, int] | None) -> list[ConsumerRecord]:
    if ends is None:
        return records
    return [record for record in records if record.offset < ends[record.topic_partition]]


def _finished(consumer: Consumer, ends: dict[TopicPartition, int] | None) -> bool:
    return ends is not None and all(
        consumer.position(place) >= offset for place, offset in ends.items()
    )


def _at_end(consumer: Consumer) -> bool:
    """Return whether a member of a group has read all of its partitions."""
    mine = consumer.assignment()
    return bool(mine) and all(consumer.lag(place) == 0 for place in mine)


def _writer(form: str, separator: str) -> Callable[[ConsumerRecord], bytes]:
    between = separator_bytes(separator)
    if form == "value":
        return lambda record: (record.value or b"") + b"\n"
    if form == "key-value":
        return lambda record: (record.key or b"") + between + (record.value or b"") + b"\n"
    if form == "json":
        return lambda record: json.dumps(_as_json(record), ensure_ascii=False).encode() + b"\n"
    if form == "full":
        return _full
    try:
        return compile_template(form)
    except RecordFormatError as wrong:
        raise click.UsageError(
            f"--format {form!r}: {wrong}; write value, key-value, json, full or a template"
        ) from None


def _full(record: ConsumerRecord) -> bytes:
    row = f"{record.topic}-{record.partition} @{record.offset} {_time(record.timestamp)} "
    return row.encode() + (record.key or b"-") + b" " + (record.value or b"-") + b"\n"


def _time(timestamp: int) -> str:
    try:
        moment = dt.datetime.fromtimestamp(timestamp / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _as_json(record: ConsumerRecord) -> dict[str, object]:
    row: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    row |= _text("key", record.key) | _text("value", record.value)
    if record.headers:
        row["headers"] = [{"name": name, **_text("value", value)} for name, value in record.headers]
    return row


def _text(name: str, data: bytes | None) -> dict[str, object]:
    """Return bytes as text, or in base64 if they are not text."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
