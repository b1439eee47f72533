"""Committed offsets: how far each group has come. They stand apart from membership.

The group only says whether a commit is allowed (`validate_commit`) and which offsets may expire
(`Retention`), so that every kind of group, and none at all, can have offsets.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.coordination.groups.records import CommittedOffset, OffsetRecord
from headwater.errors import E
from headwater.model import NO_TIMESTAMP, ZERO_UUID, TopicPartition, Uuid

NO_RETENTION = -1
_NOTHING: dict[TopicPartition, CommittedOffset] = {}


class NewOffset(NamedTuple):
    """One partition of a commit."""

    topic: str
    topic_id: Uuid
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class Commit(NamedTuple):
    """A group's new offsets. Answered with one `E` for each, in order."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: tuple[NewOffset, ...]
    retention_ms: int = NO_RETENTION
    unknown_group_error: E = E.ILLEGAL_GENERATION


class WantedTopic(NamedTuple):
    """The partitions of a topic whose offsets are asked for."""

    topic: str
    topic_id: Uuid
    partitions: tuple[int, ...]


class FetchOffsets(NamedTuple):
    """What has a group committed? None asks for all. Answered with a list of FetchedTopic."""

    group_id: str
    topics: tuple[WantedTopic, ...] | None


class FetchedTopic(NamedTuple):
    """The committed offsets of a topic; None where there is none. Without an id if all were asked for."""

    topic: str
    topic_id: Uuid
    partitions: tuple[tuple[int, CommittedOffset | None], ...]


class DeleteOffsets(NamedTuple):
    """Forget single offsets."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


class OffsetsDeleted(NamedTuple):
    """The answer: one error for the group, then one for each partition in order."""

    error: E
    partitions: tuple[E, ...] = ()


class Retention(NamedTuple):
    """Since when offsets age: since their commit, or since the group fell empty."""

    since_ms: int = NO_TIMESTAMP
    kept_topics: frozenset[str] = frozenset()  # still subscribed to, so never expired

    def has_passed(
        self, topic: str, committed: CommittedOffset, now_ms: int, retention_ms: int
    ) -> bool:
        """Whether this offset is to be forgotten."""
        if topic in self.kept_topics:
            return False
        if committed.expire_timestamp != NO_TIMESTAMP:
            return now_ms >= committed.expire_timestamp
        since_ms = committed.commit_timestamp if self.since_ms == NO_TIMESTAMP else self.since_ms
        return now_ms - since_ms >= retention_ms


class Offsets:
    """The committed offsets of all groups of a shard; changed by replay only."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and self._by_group == other._by_group

    __hash__ = None  # type: ignore[assignment]

    def replay(self, record: OffsetRecord) -> None:
        """Apply one record."""
        where = TopicPartition(record.topic, record.partition)
        if record.committed is not None:
            self._by_group.setdefault(record.group_id, {})[where] = record.committed
            return
        of_group = self._by_group.get(record.group_id, _NOTHING)
        of_group.pop(where, None)
        if not of_group:
            self._by_group.pop(record.group_id, None)

    def groups(self) -> list[str]:
        """Who has offsets."""
        return list(self._by_group)

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All offsets of a group; not to be changed."""
        return self._by_group.get(group_id, _NOTHING)

    def fetch(self, command: FetchOffsets) -> list[FetchedTopic]:
        """Answer a FetchOffsets."""
        if command.topics is None:
            return self._fetch_all(command.group_id)
        return [self._fetch_topic(command.group_id, wanted) for wanted in command.topics]

    def deletions(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[OffsetRecord]:
        """The records that forget those of `partitions` that the group has."""
        known = self.of_group(group_id)
        return [
            OffsetRecord(group_id, where.topic, where.partition, None)
            for where in partitions
            if where in known
        ]

    def deletions_of_topic(self, topic: str) -> list[OffsetRecord]:
        """The records that forget a deleted topic."""
        return [
            OffsetRecord(group_id, topic, where.partition, None)
            for group_id, known in self._by_group.items()
            for where in known
            if where.topic == topic
        ]

    def expired(
        self, group_id: str, rule: Retention, now_ms: int, retention_ms: int
    ) -> list[OffsetRecord]:
        """The records that forget what `rule` lets go."""
        return [
            OffsetRecord(group_id, where.topic, where.partition, None)
            for where, committed in self.of_group(group_id).items()
            if rule.has_passed(where.topic, committed, now_ms, retention_ms)
        ]

    def _fetch_all(self, group_id: str) -> list[FetchedTopic]:
        by_topic: dict[str, list[tuple[int, CommittedOffset | None]]] = {}
        for where, committed in sorted(self.of_group(group_id).items()):
            by_topic.setdefault(where.topic, []).append((where.partition, committed))
        return [FetchedTopic(name, ZERO_UUID, tuple(found)) for name, found in by_topic.items()]

    def _fetch_topic(self, group_id: str, wanted: WantedTopic) -> FetchedTopic:
        known = self.of_group(group_id)
        found = (
            (partition, known.get(TopicPartition(wanted.topic, partition)))
            for partition in wanted.partitions
        )
        return FetchedTopic(
            wanted.topic,
            wanted.topic_id,
            tuple((partition, same_topic(it, wanted.topic_id)) for partition, it in found),
        )


def same_topic(committed: CommittedOffset | None, topic_id: Uuid) -> CommittedOffset | None:
    """An offset of a former topic of the same name is none; without ids the name decides."""
    if committed is None or ZERO_UUID in (committed.topic_id, topic_id):
        return committed
    return committed if committed.topic_id == topic_id else None


def plan_commit(
    command: Commit, max_metadata: int, now_ms: int
) -> tuple[list[OffsetRecord], list[E]]:
    """The records of an allowed commit, and the error of each of its partitions."""
    expires = NO_TIMESTAMP
    if command.retention_ms != NO_RETENTION:
        expires = now_ms + command.retention_ms
    records: list[OffsetRecord] = []
    errors: list[E] = []
    for new in command.offsets:
        if len(new.metadata or "") > max_metadata:
            errors.append(E.OFFSET_METADATA_TOO_LARGE)
            continue
        errors.append(E.NONE)
        committed = CommittedOffset(
            new.offset, new.leader_epoch, new.metadata or "", now_ms, expires, new.topic_id
        )
        records.append(OffsetRecord(command.group_id, new.topic, new.partition, committed))
    return records, errors
