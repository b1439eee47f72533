"""The options of `format("headwater-segments")`, checked, typed and frozen.

Options with the meaning of an option of `format("headwater")` have the same name and form.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from headwater.config.keys import ConfigError, nearest
from headwater.model import EARLIEST, LATEST, TopicPartition
from headwater.pipelines.segments.files import MAX_OFFSET, SegmentFile
from headwater.pipelines.topic_source.offsets import parse_offsets

_SPLIT_BYTES: Final = 128 << 20
_CHOICES: Final = {
    "level": ("records", "batches"),
    "mode": ("failfast", "permissive"),
    "isolation.level": ("read_uncommitted", "read_committed"),
    "includeHeaders": ("false", "true"),
}
_NAMES: Final = {
    name.lower(): name
    for name in (
        "path", "topic", "partition", "startingTimestamp", "endingTimestamp", "startingOffsets",
        "endingOffsets", "splitBytes", *_CHOICES,
    )
}  # fmt: skip
_ENDS: Final = {EARLIEST: 0, LATEST: MAX_OFFSET}

Bound: TypeAlias = int | dict[TopicPartition, int]
"""One offset for all partitions, or offsets by partition."""


class SegmentOptions(NamedTuple):
    """The options of a read."""

    path: str
    level: str
    headers: bool
    failfast: bool
    committed: bool
    topic: str | None
    partition: int | None
    start_ms: int | None
    end_ms: int | None
    starts: Bound
    ends: Bound
    split_bytes: int

    @property
    def named(self) -> TopicPartition | None:
        """Return the partition of files whose folder does not name it."""
        if self.topic is None or self.partition is None:
            return None
        return TopicPartition(self.topic, self.partition)

    def start_of(self, segment: SegmentFile) -> int:
        """Return the first offset to read of the segment's partition."""
        return _of(self.starts, segment, 0)

    def end_of(self, segment: SegmentFile) -> int:
        """Return the offset at which reading of the segment's partition ends."""
        return _of(self.ends, segment, MAX_OFFSET)

    def may_want(self, segment: SegmentFile) -> bool:
        """Return whether the file may contain records to read."""
        known = segment.last_timestamp
        return (
            segment.size > 0
            and self.topic in (None, segment.topic)
            and self.partition in (None, segment.partition)
            and segment.next_offset > self.start_of(segment)
            and segment.base_offset < self.end_of(segment)
            and (self.start_ms is None or known is None or known >= self.start_ms)
        )


def parse_options(options: Mapping[str, str]) -> SegmentOptions:
    """Parse the options of a read; ConfigError for the first invalid one."""
    given = _known(options)
    if "path" not in given:
        raise ConfigError("headwater-segments reads files: name a folder with .load(FOLDER)")
    level = _choice(given, "level")
    # level=batches is for finding damage, so damage does not fail it by default.
    lenient = level == "batches" and "mode" not in given
    return SegmentOptions(
        path=given["path"],
        level=level,
        headers=_choice(given, "includeHeaders") == "true",
        failfast=not lenient and _choice(given, "mode") == "failfast",
        committed=_choice(given, "isolation.level") == "read_committed",
        topic=given.get("topic"),
        partition=_number(given, "partition"),
        start_ms=_number(given, "startingTimestamp"),
        end_ms=_number(given, "endingTimestamp"),
        starts=_bound(given, "startingOffsets", "earliest", 0),
        ends=_bound(given, "endingOffsets", "latest", MAX_OFFSET),
        split_bytes=_number(given, "splitBytes") or _SPLIT_BYTES,
    )


def _of(bound: Bound, segment: SegmentFile, otherwise: int) -> int:
    if isinstance(bound, int):
        return bound
    return bound.get(TopicPartition(segment.topic, segment.partition), otherwise)


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their exact names: Spark passes them in lower case."""
    found = {}
    for name, value in options.items():
        small = name.lower().removeprefix("kafka.")
        if small not in _NAMES:
            hint = nearest(name, dict.fromkeys(_NAMES.values()))
            raise ConfigError(f"headwater-segments has no option {name}{hint}")
        found[_NAMES[small]] = value.strip()
    return found


def _choice(given: Mapping[str, str], name: str) -> str:
    choices = _CHOICES[name]
    value = given.get(name, choices[0]).lower()
    if value not in choices:
        raise ConfigError(f"{name} is {' or '.join(choices)}, not {value!r}")
    return value


def _number(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name)
    if value is not None and not value.isdecimal():
        raise ConfigError(f"{name} takes a whole number, not {value!r}")
    return None if value is None else int(value)


def _bound(given: Mapping[str, str], name: str, word: str, offset: int) -> Bound:
    value = given.get(name, word)
    if value == word:
        return offset
    if value.isdecimal():
        return int(value)
    offsets = parse_offsets(value, name)
    return {where: _ENDS.get(number, number) for where, number in offsets.items()}
