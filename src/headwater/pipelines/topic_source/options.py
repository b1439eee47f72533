"""The options of `format("headwater")` as a source: Spark's names, checked, typed and frozen.

Unknown names, invalid values and conflicting options are refused before anything is read, in one
sentence with the remedy.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from headwater.config.client import ConsumerSettings
from headwater.config.keys import ConfigError, nearest
from headwater.model import EARLIEST, LATEST, TopicPartition
from headwater.pipelines.connection_settings import CONFIG_FILE, with_config_file
from headwater.pipelines.topic_source.offsets import Offsets, parse_assign, parse_offsets

NAMES: Final = {
    name.lower(): name
    for name in (
        "subscribe", "subscribePattern", "assign",
        "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp",
        "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "targetBatchTime",
        "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders",
        CONFIG_FILE,
        "group.id", "groupIdPrefix",
        "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    )
}  # fmt: skip
"""Option names as users write them; Spark passes them in lower case."""
_PREFIX: Final = "kafka."
_BATCH_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_REFUSED: Final = {
    "key.deserializer": "keys are bytes here: decode them with DataFrame operations",
    "value.deserializer": "values are bytes here: decode them with DataFrame operations",
    "auto.offset.reset": "set startingOffsets instead; a restarted query continues from its "
    "checkpoint",
    "enable.auto.commit": "a query keeps its offsets in its checkpoint; for a group that shows its "
    "lag see headwater.pipelines.running.lag",
    "interceptor.classes": "interceptors could change what is read",
}
_UNITS: Final = {
    "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


@dataclass(frozen=True)
class Bound:
    """A start or end of a read: an end of each partition, offsets, times, or a group's commits."""

    kind: Literal["earliest", "latest", "offsets", "times", "time", "committed"]
    offsets: Mapping[TopicPartition, int] | None = None
    """Offsets, or times in milliseconds, for each partition."""
    time_ms: int = 0
    group: str = ""

    @property
    def repeatable(self) -> bool:
        """Return whether a repeated lookup gives the same offsets, retention aside."""
        if self.kind == "offsets":
            return LATEST not in (self.offsets or {}).values()
        return self.kind == "earliest"


@dataclass(frozen=True)
class SourceOptions:
    """The checked options of a query, see `parse`."""

    client: Mapping[str, str] = field(repr=False)
    """Settings of the consumer, with underscores."""
    starting: Bound
    ending: Bound
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    no_match_is_latest: bool = False
    """If no record is as new as a starting time, begin at the end instead of failing."""
    max_rows: int | None = None
    min_rows: int | None = None
    max_delay_ms: int = 15 * 60_000
    target_ms: int | None = None
    min_partitions: int | None = None
    max_rows_per_task: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    lookups: int = 3
    lookup_interval_ms: int = 10


def wants_headers(options: Mapping[str, str]) -> bool:
    """Return whether the schema has a column of headers."""
    return _Given(options).flag("includeHeaders", default=False)


def parse(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check and type the options of a query; ConfigError for the first invalid one."""
    given = _Given(options)
    if streaming:
        for name in _BATCH_ONLY:
            if given.text(name) is not None:
                raise ConfigError(f"{name} is for batch queries: remove it from a stream")
    client = _client(options)
    min_rows, max_rows = given.number("minOffsetsPerTrigger"), given.number("maxOffsetsPerTrigger")
    if min_rows is not None and max_rows is not None and min_rows > max_rows:
        raise ConfigError(
            f"minOffsetsPerTrigger={min_rows} is above maxOffsetsPerTrigger={max_rows}"
        )
    topics, pattern, assigned = _chosen(given)
    return SourceOptions(
        client=client,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=_starting(given, client, streaming=streaming),
        ending=_ending(given),
        no_match_is_latest=given.word(
            "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        ) == "latest",
        max_rows=max_rows,
        min_rows=min_rows,
        max_delay_ms=given.duration_ms("maxTriggerDelay") or 15 * 60_000,
        target_ms=given.duration_ms("targetBatchTime"),
        min_partitions=given.number("minPartitions"),
        max_rows_per_task=given.number("maxRecordsPerPartition"),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=False),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs") or 120_000,
        lookups=given.number("fetchOffset.numRetries") or 3,
        lookup_interval_ms=given.number("fetchOffset.retryIntervalMs") or 10,
    )  # fmt: skip


class _Given:
    """The options that the user set, by the names of `NAMES`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values: dict[str, str] = {}
        for name, value in options.items():
            small = name.lower()
            if small.startswith(_PREFIX):
                continue
            if small not in NAMES:
                known = {**dict.fromkeys(NAMES.values()), "kafka.bootstrap.servers": None}
                raise ConfigError(f"unknown option {name}{nearest(name, known)}")
            self._values[NAMES[small]] = value.strip()

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def number(self, name: str, least: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.removeprefix("-").isdecimal() or int(text) < least:
            raise ConfigError(f"{name} takes a whole number of at least {least}, not {text!r}")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        return self.word(name, ("true", "false"), str(default).lower()) == "true"

    def word(self, name: str, words: tuple[str, ...], default: str) -> str:
        text = (self.text(name) or default).lower()
        if text not in words:
            raise ConfigError(f"{name} is {' or '.join(words)}, not {text!r}")
        return text

    def duration_ms(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        parts = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
        if parts is None or parts[2] not in _UNITS or not int(parts[1]):
            raise ConfigError(f"{name} takes a time such as 500ms, 5s or 15m, not {text!r}")
        return int(parts[1]) * _UNITS[parts[2]]


def _client(options: Mapping[str, str]) -> dict[str, str]:
    """Return the `kafka.` options as keywords of a consumer, which checks their values."""
    found = {}
    for name, value in with_config_file(options).items():
        key = name.lower().removeprefix(_PREFIX)
        if key == name.lower():
            continue
        if key in _REFUSED:
            raise ConfigError(f"{_PREFIX}{key} cannot be set: {_REFUSED[key]}")
        found[key.replace(".", "_")] = value
    found.setdefault("isolation_level", "read_committed")
    if "bootstrap_servers" not in found:
        raise ConfigError("kafka.bootstrap.servers is missing: name at least one broker, HOST:PORT")
    ConsumerSettings.of(found)
    return found


def _chosen(given: _Given) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    """Return the topics, the pattern, or the partitions to read."""
    names = ("subscribe", "subscribePattern", "assign")
    told = {name: text for name in names if (text := given.text(name)) is not None}
    if len(told) != 1:
        count = "one of them" if not told else f"only one of them, not {' and '.join(told)}"
        raise ConfigError(f"choose what to read with {', '.join(names)}: {count}")
    if "assign" in told:
        return (), None, parse_assign(told["assign"])
    if "subscribe" in told:
        topics = dict.fromkeys(part.strip() for part in told["subscribe"].split(","))
        topics.pop("", None)
        if not topics:
            raise ConfigError("subscribe names no topic: give one or several, separated by commas")
        return tuple(topics), None, ()
    pattern = told["subscribePattern"]
    try:
        re.compile(pattern)
    except re.error as broken:
        raise ConfigError(f"subscribePattern {pattern!r} is not a pattern: {broken}") from broken
    if not pattern:
        raise ConfigError("subscribePattern is empty: give a pattern such as orders-.*")
    return (), pattern, ()


def _starting(given: _Given, client: Mapping[str, str], *, streaming: bool) -> Bound:
    bound = _timed(given, "starting")
    if bound is not None:
        return bound
    default = "latest" if streaming else "earliest"
    text = given.text("startingOffsets") or default
    if text.lower() == "committed":
        group = given.text("group.id") or client.get("group_id")
        if not group:
            raise ConfigError("startingOffsets=committed needs group.id: the group to continue")
        return Bound("committed", group=group)
    bound = _named(text, "startingOffsets", ("earliest", "latest"))
    if not streaming and _mentions(bound, "latest", LATEST):
        raise ConfigError(
            "startingOffsets of a batch query cannot be latest: nothing would be read. Use "
            "earliest, offsets or startingTimestamp"
        )
    return bound


def _ending(given: _Given) -> Bound:
    bound = _timed(given, "ending")
    if bound is not None:
        return bound
    bound = _named(given.text("endingOffsets") or "latest", "endingOffsets", ("latest", "earliest"))
    if _mentions(bound, "earliest", EARLIEST):
        raise ConfigError("endingOffsets cannot be earliest: nothing would be read. Use latest")
    return bound


def _timed(given: _Given, which: str) -> Bound | None:
    """Return a bound by time, which overrides a bound by offset."""
    moment = given.number(f"{which}Timestamp", least=0)
    if moment is not None:
        return Bound("time", time_ms=moment)
    name = f"{which}OffsetsByTimestamp"
    text = given.text(name)
    return None if text is None else Bound("times", offsets=parse_offsets(text, name, least=0))


def _named(text: str, option: str, words: tuple[Literal["earliest", "latest"], ...]) -> Bound:
    for word in words:
        if text.lower() == word:
            return Bound(word)
    if not text.startswith("{"):
        raise ConfigError(f"{option} is {' or '.join(words)} or JSON with offsets, not {text!r}")
    return Bound("offsets", offsets=parse_offsets(text, option))


def _mentions(bound: Bound, kind: str, offset: int) -> bool:
    found: Offsets = dict(bound.offsets or {})
    return bound.kind == kind or (bound.kind == "offsets" and offset in found.values())
