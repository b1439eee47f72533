"""Offsets of many partitions: the JSON of Spark's checkpoints, and what the next batch reads.

The JSON is that of Spark's Kafka connector, `{"topic": {"0": 12}}`, so that people and tools read
both alike. Pure arithmetic, without brokers or Spark.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from headwater.config.keys import ConfigError
from headwater.model import EARLIEST, TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]
"""The next offset to read of each partition."""
OffsetJson: TypeAlias = dict[str, dict[str, int]]


class OffsetRange(NamedTuple):
    """Records of one partition: `start` is the first, `end` is the first that is left out."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; compaction may leave fewer records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


# -- JSON


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    """Return offsets as Spark writes them into the checkpoint, sorted."""
    found: OffsetJson = {}
    for where, offset in sorted(offsets.items()):
        found.setdefault(where.topic, {})[str(where.partition)] = offset
    return found


def from_json(told: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, row in told.items()
        for partition, offset in row.items()
    }


def parse_offsets(text: str, option: str, least: int = EARLIEST) -> Offsets:
    """Parse offsets or times of an option; ConfigError names the option."""
    shape = f'{option} takes JSON such as {{"topic": {{"0": 23, "1": 0}}}}'
    found: Offsets = {}
    for topic, row in _object(text, shape).items():
        if not isinstance(row, dict):
            raise ConfigError(f"{shape}; {topic!r} has {row!r}")
        for partition, number in row.items():
            if not partition.isdecimal() or type(number) is not int or number < least:
                raise ConfigError(f"{shape}; {topic!r} has {partition!r}: {number!r}")
            found[TopicPartition(topic, int(partition))] = number
    return found


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """Parse the partitions of the option `assign`."""
    shape = 'assign takes JSON such as {"topic": [0, 1]}'
    found: set[TopicPartition] = set()
    for topic, row in _object(text, shape).items():
        if not isinstance(row, list) or any(
            type(number) is not int or number < 0 for number in row
        ):
            raise ConfigError(f"{shape}; {topic!r} has {row!r}")
        found.update(TopicPartition(topic, number) for number in row)
    if not found:
        raise ConfigError(f"{shape}; it names no partition")
    return tuple(sorted(found))


def _object(text: str, shape: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError as broken:
        raise ConfigError(f"{shape}; {text!r} is not JSON: {broken}") from broken
    if not isinstance(told, dict):
        raise ConfigError(f"{shape}, not {text!r}")
    return told


# -- batches


def spread(limit: int, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Divide `limit` rows by backlog; every partition gets at least one, so that none starves."""
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    return {
        where: min(size, max(1, limit * size // total)) for where, size in sizes.items() if size > 0
    }


def backlog(start: Offsets, latest: Offsets) -> int:
    """Return how many offsets are left to read."""
    return sum(max(0, end - start.get(where, 0)) for where, end in latest.items())


def advance(
    start: Offsets, latest: Offsets, limit: int | None, rewound: Collection[TopicPartition] = ()
) -> Offsets:
    """Return where the next batch ends.

    A partition that is missing in `start` is new and read from its beginning. A partition in
    `rewound` holds other records than those read so far, because its topic was recreated: it is read
    from 0, which `ranges` recognizes by an end below its start. Any other partition that ends before
    its start has lost its last records and waits until it has grown again.
    """
    begins = {where: 0 if where in rewound else start.get(where, 0) for where in latest}
    ends = {
        where: min(end, start[where] - 1) if where in rewound else max(end, begins[where])
        for where, end in latest.items()
    }
    sizes = {where: max(0, ends[where] - begin) for where, begin in begins.items()}
    if limit is None or sum(sizes.values()) <= limit:
        return ends
    shares = spread(limit, sizes)
    return {where: begin + shares.get(where, 0) for where, begin in begins.items()}


def ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return what a batch reads, without empty ranges."""
    found = []
    for where, stop in sorted(end.items()):
        begin = start.get(where, 0)
        if begin > stop:  # recreated, see `advance`
            begin = 0
        if begin < stop:
            found.append(OffsetRange(where.topic, where.partition, begin, stop))
    return found


def split(
    whole: Iterable[OffsetRange], at_least: int | None, largest: int | None = None
) -> list[OffsetRange]:
    """Split ranges into about `at_least` tasks of at most `largest` offsets.

    A partition is one task unless more are requested; then large ones are divided.
    """
    rows = list(whole)
    if largest is not None:
        rows = [piece for row in rows for piece in _cut(row, -(-row.size // largest))]
    if at_least is None or len(rows) >= at_least:
        return rows
    total = sum(row.size for row in rows)
    return [piece for row in rows for piece in _cut(row, round(at_least * row.size / total))]


def _cut(row: OffsetRange, pieces: int) -> list[OffsetRange]:
    count = max(1, min(pieces, row.size))
    edges = [row.start + row.size * number // count for number in range(count + 1)]
    return [row._replace(start=start, end=end) for start, end in pairwise(edges)]
