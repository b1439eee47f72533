"""Records of a consumer: tuples, in a list that knows its partitions."""

import operator
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from headwater.model import TopicPartition
from headwater.records.record import Header

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

LAST_OFFSET = 2**63 - 1


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record.

    `key` and `value` are bytes, or what the deserializers return; None is a null. The timestamp is
    in milliseconds since 1970: the producer's (type 0) or the broker's (type 1).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K | None
    value: V | None
    headers: tuple[Header, ...]

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the record."""
        return TopicPartition(self.topic, self.partition)


class Records(list[ConsumerRecord[K, V]]):
    """The records of one poll: a list, in the order of offsets within each partition."""

    __slots__ = ()

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return the records grouped by partition."""
        found: dict[TopicPartition, list[ConsumerRecord[K, V]]] = {}
        for key, run in groupby(self, _partition_key):
            found.setdefault(TopicPartition(*key), []).extend(run)
        return found

    def partitions(self) -> set[TopicPartition]:
        """Return the partitions of the records."""
        return {TopicPartition(*key) for key, _ in groupby(self, _partition_key)}


def _partition_key(record: ConsumerRecord[Any, Any]) -> tuple[str, int]:
    return record[:2]


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next offset to read, and metadata of the application."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


Partition = TopicPartition | tuple[str, int]
Partitions = Iterable[Partition]
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
CommittedOffsets = dict[TopicPartition, OffsetAndMetadata | None]
"""What a group has committed; None for partitions without a commit."""


def topic_partitions(
    partitions: Iterable[TopicPartition | tuple[str, int]],
) -> list[TopicPartition]:
    """Convert partitions; `("orders", 0)` is accepted as well as a TopicPartition."""
    return [topic_partition(partition) for partition in partitions]


def whole_offset(partition: TopicPartition, offset: object) -> int:
    """Return an offset that the protocol can carry; raise an error that names the partition."""
    try:
        whole = operator.index(offset)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{partition}: an offset is a whole number, not {offset!r}") from None
    if not 0 <= whole <= LAST_OFFSET:
        raise ValueError(
            f"{partition}: an offset is 0 or more and at most {LAST_OFFSET}, not {whole}"
        )
    return whole


def topic_partition(partition: object) -> TopicPartition:
    """Convert one partition; TypeError for anything else, such as a topic name."""
    if isinstance(partition, tuple | list) and len(partition) == 2:
        topic, number = partition
        if isinstance(topic, str) and isinstance(number, int):
            return TopicPartition(topic, number)
    raise TypeError(f"{partition!r} is not a (topic, partition), such as ('orders', 0)")


def checked_offsets(given: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit in one form."""
    if not isinstance(given, Mapping):
        raise TypeError(f"offsets are {given!r}: give a dict, such as {{('orders', 0): 42}}")
    found = {}
    for name, offset in given.items():
        partition = topic_partition(name)
        row = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        found[partition] = row._replace(offset=whole_offset(partition, row.offset))
    return found
