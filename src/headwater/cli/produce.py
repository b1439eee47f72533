"""`headwater produce`: records from lines, JSON or whole files."""

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import IO, Any, NamedTuple

import click

from headwater.cli.name_completion import TOPIC
from headwater.cli.options import (
    argument_bytes,
    bootstrap_option,
    client_settings,
    parse_assignments,
    separator_bytes,
    setting_option,
    timeout_option,
)
from headwater.cli.reach_broker import require_reachable
from headwater.client.errors import BufferExhaustedError, ClosedError, TimedOutError
from headwater.client.producer.blocking import Producer
from headwater.client.producer.futures import RecordMetadata
from headwater.client.producer.interceptors import ProducerRecord
from headwater.config.client import ProducerSettings
from headwater.errors import KafkaError

_BASE64 = "_base64"
_OF_THE_READ = {"topic", "offset"}
"""Fields that `consume --format json` prints and `produce` ignores."""
_MAX_INT32, _MAX_INT64 = (1 << 31) - 1, (1 << 63) - 1
_JSON_FIELDS = {"key", "value", "headers", "partition", "timestamp"} | _OF_THE_READ


class InputRecord(NamedTuple):
    """A record of the input."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


@click.command("produce")
@click.argument("topic", shell_complete=TOPIC)
@click.argument("files", nargs=-1, type=click.File("rb"))
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json", "file"]),
    default="lines",
    show_default=True,
    help="A record is a line, a JSON object on a line, or a whole file.",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Split each line into KEY and VALUE at this text, such as : or \\t.",
)
@click.option("--key", help="The key of every record without one.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of every record.",
)
@click.option("--partition", type=click.IntRange(0), help="The partition of every record.")
@click.option("--null", metavar="TEXT", help="Send a key or value that equals this text as null.")
@click.option(
    "--skip",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Skip the first N records, sent or refused by an earlier run.",
)
@bootstrap_option
@timeout_option
@setting_option
def command(
    topic: str,
    files: tuple[IO[bytes], ...],
    form: str,
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    null: str | None,
    skip: int,
    bootstrap: str,
    timeout: float,
    settings: tuple[str, ...],
) -> None:
    r"""Send records to TOPIC, from FILES or from standard input.

    With --format json a line is {"value": ..., "key": ..., "headers": {...}, "partition": 0,
    "timestamp": 0}. Only "value" is required. Text is sent as it is, null as null, anything else
    as JSON. The output of `consume --format json` is accepted too: value_base64 and key_base64
    are bytes, headers a list of {"name": ..., "value": ...}; topic and offset are ignored.

    With --format lines, newlines and carriage returns at the end of a line are not sent. --timeout
    also limits how long records wait while no broker acknowledges any; the error then says how to
    send the rest.
    """
    if key_separator == "":
        raise click.UsageError("--key-separator is empty: write a text, such as : or \\t")
    if not files and sys.stdin is None:
        raise click.ClickException("standard input is closed; name files, or redirect it from one")
    options = client_settings(ProducerSettings, bootstrap, settings)
    if options.get("transactional_id") is not None:
        raise click.UsageError(
            "transactional.id is set, but produce sends no transactions: remove it"
        )
    require_reachable(bootstrap, timeout, [topic], to_write=True, settings=options)
    sources = files or (sys.stdin.buffer,)
    lines = _READERS[form](sources, skip)
    common = tuple(_header(name, text) for name, text in parse_assignments(headers).items())
    sent = _Sent(topic, skip)
    with Producer(**options) as producer:
        try:
            for line in lines:
                row = _null(_split(line, key_separator, sent.count), null)
                record = ProducerRecord(
                    topic,
                    row.value,
                    row.key if row.key is not None or key is None else argument_bytes(key),
                    row.partition if row.partition is not None else partition,
                    (*common, *row.headers),
                    row.timestamp,
                )
                sent.send(producer, record)
                if sent.failed:
                    break
            sent.flush(producer, timeout)
        except (KafkaError, click.ClickException, KeyboardInterrupt) as problem:
            sent.stopped = problem
            sent.flush(producer, timeout)  # what was read before it
    sent.report()


class _Sent:
    """Tracks the deliveries of records by their numbers."""

    def __init__(self, topic: str, skip: int) -> None:
        self._topic = topic
        self._skip = skip
        self.count = skip
        # The number after the last delivered one: a signal may come between a send and its count.
        self._delivered = skip
        self._answered = 0
        self.failed: dict[int, KafkaError] = {}
        self.stopped: BaseException | None = None

    def send(self, producer: Producer, record: ProducerRecord) -> None:
        """Send the next record; wait for room in the buffer while brokers acknowledge others."""
        note = partial(self.note, self.count)
        while True:
            answered = self._answered
            try:
                producer.send(*record, on_delivery=note)
                break
            except BufferExhaustedError:
                if answered == self._answered:
                    raise
        self.count += 1

    def flush(self, producer: Producer, timeout_s: float) -> None:
        """Wait for the records sent, unless none is acknowledged for `timeout_s`.

        Raises nothing if something has stopped the command before; Ctrl-C then ends the wait.
        """
        while True:
            answered = self._answered
            try:
                producer.flush(timeout_s)
            except TimedOutError:
                if answered != self._answered:
                    continue
                said = (
                    f"no record was acknowledged for {timeout_s:g} s (--timeout); records that "
                    "were sent may be stored all the same"
                )
                self.stopped = self.stopped or TimedOutError(said)
            except (KafkaError, KeyboardInterrupt):
                if self.stopped is None:
                    raise
            else:
                return
            producer.close(0)  # the other records fail
            return

    def note(self, number: int, _stored: RecordMetadata | None, error: KafkaError | None) -> None:
        """Record a delivery; the producer calls this."""
        if error is not None:
            self.failed[number] = error
        self._delivered = max(self._delivered, number + 1)
        self._answered += 1

    def report(self) -> None:
        """Print how many were sent and how to send the rest; raise the error that stopped it."""
        count = max(self.count, self._delivered)
        stored = count - self._skip - len(self.failed)
        sent = f"{self._topic}: sent {stored} record{'' if stored == 1 else 's'}"
        if not self.failed and self.stopped is None:
            click.echo(sent, err=True)
            return
        first = min(self.failed, default=count)
        again = stored - (first - self._skip)
        rest = f"--skip {first}" + (f", which sends {again} again" if again else "")
        click.echo(f"{sent}; to continue later: {rest}", err=True)
        problem: BaseException | None = self.failed.get(first)
        if problem is None or (isinstance(problem, ClosedError) and self.stopped is not None):
            problem = self.stopped
        assert problem is not None
        if isinstance(problem, KafkaError):
            raise KafkaError(problem.code, f"record {first + 1}: {problem.message}")
        raise problem


def _lines(sources: Iterable[IO[bytes]], skip: int) -> Iterator[InputRecord]:
    for line in islice(chain.from_iterable(sources), skip, None):
        yield InputRecord(line.rstrip(b"\r\n"))


def _whole_files(sources: Iterable[IO[bytes]], skip: int) -> Iterator[InputRecord]:
    for source in islice(sources, skip, None):
        yield InputRecord(source.read())


def _json_lines(sources: Iterable[IO[bytes]], skip: int) -> Iterator[InputRecord]:
    """Yield the records; a line that is skipped is not parsed."""
    for source, number, line in islice(_numbered(sources), skip, None):
        try:
            yield _json_record(json.loads(line))
        except (ValueError, TypeError) as wrong:
            name = getattr(source, "name", "standard input")
            if isinstance(wrong, json.JSONDecodeError):
                wrong = ValueError(f"not JSON: {wrong.msg} at column {wrong.colno}")
            raise click.ClickException(f"{name}, line {number}: {wrong}") from None


def _numbered(sources: Iterable[IO[bytes]]) -> Iterator[tuple[IO[bytes], int, bytes]]:
    """Yield the lines that are not blank, with their source and their number."""
    for source in sources:
        for number, line in enumerate(source, start=1):
            if stripped := line.strip():
                yield source, number, stripped


_READERS: dict[str, Callable[[Iterable[IO[bytes]], int], Iterator[InputRecord]]] = {
    "lines": _lines,
    "json": _json_lines,
    "file": _whole_files,
}


def _json_record(given: Any) -> InputRecord:
    if not isinstance(given, dict):
        raise TypeError('a record is {"value": ...}, with "key", "headers" and so on beside it')
    plain = _decoded(given)
    if "value" not in plain:
        raise ValueError('a record needs a "value"; null is a tombstone')
    unknown = plain.keys() - _JSON_FIELDS
    if unknown:
        raise ValueError(f"unknown field {', '.join(sorted(unknown))} of a record")
    return InputRecord(
        _bytes(plain["value"]),
        _bytes(plain.get("key")),
        tuple((str(name), _bytes(value)) for name, value in _headers(plain.get("headers") or {})),
        _number(plain, "partition", _MAX_INT32),
        _number(plain, "timestamp", _MAX_INT64),
    )


def _number(given: dict[str, Any], name: str, largest: int) -> int | None:
    value = given.get(name)
    if value is not None and (type(value) is not int or not 0 <= value <= largest):
        raise ValueError(
            f'"{name}" is {json.dumps(value)}: write a whole number from 0 to {largest}'
        )
    return value


def _decoded(given: dict[str, Any]) -> dict[str, Any]:
    """Return the record with `value_base64` decoded into `value`, and likewise the key."""
    return {
        name.removesuffix(_BASE64): _from_base64(name, value) if name.endswith(_BASE64) else value
        for name, value in given.items()
    }


def _from_base64(name: str, value: object) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except ValueError:
        raise ValueError(f'"{name}" is not base64: {json.dumps(value)}') from None


def _headers(given: Any) -> Iterable[tuple[Any, Any]]:
    """Return headers given as an object, as pairs, or as `consume` prints them."""
    if isinstance(given, dict):
        return given.items()
    try:
        rows = [_decoded(one) if isinstance(one, dict) else one for one in given]
        pairs = [(row["name"], row["value"]) if isinstance(row, dict) else row for row in rows]
        return [(name, value) for name, value in pairs]
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f'"headers" is {json.dumps(given)}: write {{"name": "value"}}, '
            'or [{"name": "n", "value": "v"}]'
        ) from None


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _utf8(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{json.dumps(text)} has half of a surrogate pair: send bytes that are not text as base64"
        ) from None


def _header(name: str, text: str) -> tuple[str, bytes]:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"--header {name!r}: the name is not valid UTF-8") from None
    return name, argument_bytes(text)


def _split(line: InputRecord, separator: str | None, number: int) -> InputRecord:
    if separator is None or line.value is None or line.key is not None:
        return line
    key, found, value = line.value.partition(separator_bytes(separator))
    if not found:
        raise click.ClickException(
            f"record {number + 1}: no {separator!r} in {line.value[:60].decode(errors='replace')!r}: "
            "each line is KEY, separator, VALUE"
        )
    return line._replace(key=key, value=value)


def _null(line: InputRecord, null: str | None) -> InputRecord:
    if null is None:
        return line
    mark = argument_bytes(null)
    return line._replace(
        value=None if line.value == mark else line.value,
        key=None if line.key == mark else line.key,
    )
