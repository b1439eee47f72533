"""Committed offsets: how far each group has read. Independent of membership.

A group only decides whether a commit is allowed (`validate_commit`) and which offsets may expire
(`Retention`), so that every kind of group, and a group without members, can have offsets.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from headwater.coordination.groups.records import CommittedOffset, OffsetRecord
from headwater.coordination.shard import TopicImage, TransactionalProducer
from headwater.errors import E
from headwater.model import NO_TIMESTAMP, ZERO_UUID, TopicPartition, Uuid

NO_RETENTION = -1
UNSTABLE = CommittedOffset(-1)
"""Instead of an offset that an open transaction is about to change."""
_NOTHING: dict[int, CommittedOffset] = {}
_NO_TOPICS: dict[str, dict[int, CommittedOffset]] = {}


class NewOffset(NamedTuple):
    """One partition of a commit."""

    topic: str
    topic_id: Uuid
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class CommitOffsets(NamedTuple):
    """A group's new offsets. Answered with one `E` for each, in order."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: tuple[NewOffset, ...]
    retention_ms: int = NO_RETENTION
    unknown_group_error: E = E.ILLEGAL_GENERATION


class CommitOffsetsInTransaction(NamedTuple):
    """A group's new offsets, if the producer's transaction commits. Answered like CommitOffsets."""

    commit: CommitOffsets
    producer: TransactionalProducer


class WantedTopic(NamedTuple):
    """The partitions of a topic whose offsets are requested."""

    topic: str
    topic_id: Uuid
    partitions: Sequence[int]


class FetchOffsets(NamedTuple):
    """Fetch a group's offsets; None fetches all. Answered with a list of FetchedTopic."""

    group_id: str
    topics: tuple[WantedTopic, ...] | None
    require_stable: bool = False
    """Whether UNSTABLE replaces the offsets that an open transaction is about to change."""


class FetchedTopic(NamedTuple):
    """Partitions of a topic and the offset of each, None without a commit.

    The topic id is zero for a topic that does not exist.
    """

    topic: str
    topic_id: Uuid
    partitions: Sequence[int]
    offsets: Sequence[CommittedOffset | None]


class DeleteOffsets(NamedTuple):
    """Delete single offsets."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


class OffsetsDeleted(NamedTuple):
    """The answer: one error for the group, then one for each partition in order."""

    error: E
    partitions: tuple[E, ...] = ()


class Retention(NamedTuple):
    """The start of the retention time: the commit, or the moment when the group became empty."""

    since_ms: int = NO_TIMESTAMP
    kept_topics: frozenset[str] = frozenset()  # still subscribed to, so never expired

    def has_passed(
        self, topic: str, committed: CommittedOffset, now_ms: int, retention_ms: int
    ) -> bool:
        """Whether this offset has expired."""
        if topic in self.kept_topics:
            return False
        if committed.expire_timestamp != NO_TIMESTAMP:
            return now_ms >= committed.expire_timestamp
        since_ms = committed.commit_timestamp if self.since_ms == NO_TIMESTAMP else self.since_ms
        return now_ms - since_ms >= retention_ms


class Offsets:
    """The committed offsets of all groups of a shard; changed by replay only."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._groups_of: dict[str, dict[str, None]] = {}
        """By topic: the groups with offsets of it, so that a topic's deletion visits no others."""

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and self._by_group == other._by_group

    __hash__ = None  # type: ignore[assignment]

    def replay(self, record: OffsetRecord) -> None:
        group_id, topic = record.group_id, record.topic
        if record.committed is not None:
            of_group = self._by_group.setdefault(group_id, {})
            if topic not in of_group:
                of_group[topic] = {}
                self._groups_of.setdefault(topic, {})[group_id] = None
            of_group[topic][record.partition] = record.committed
            return
        of_topic = self._by_group.get(group_id, _NO_TOPICS).get(topic, _NOTHING)
        of_topic.pop(record.partition, None)
        if not of_topic:
            self._forget_topic(group_id, topic)

    def _forget_topic(self, group_id: str, topic: str) -> None:
        of_group = self._by_group.get(group_id, _NO_TOPICS)
        of_group.pop(topic, None)
        if not of_group:
            self._by_group.pop(group_id, None)
        groups = self._groups_of.get(topic)
        if groups is not None:
            groups.pop(group_id, None)
            if not groups:
                del self._groups_of[topic]

    def groups(self) -> list[str]:
        return list(self._by_group)

    def positions(self, group_id: str) -> list[tuple[str, list[tuple[int, int]]]]:
        """Return the topics of a group, with partitions and committed offsets."""
        return [
            (topic, [(partition, committed.offset) for partition, committed in known.items()])
            for topic, known in self._by_group.get(group_id, _NO_TOPICS).items()
        ]

    def count(self, group_id: str) -> int:
        return sum(map(len, self._by_group.get(group_id, _NO_TOPICS).values()))

    def fetch(self, command: FetchOffsets, topics: TopicImage) -> list[FetchedTopic]:
        if command.topics is None:
            return self._fetch_all(command.group_id, topics)
        known = self._by_group.get(command.group_id, _NO_TOPICS)
        return [_fetch_topic(known, wanted) for wanted in command.topics]

    def deletions(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[OffsetRecord]:
        """The records that delete the group's offsets of `partitions`."""
        known = self._by_group.get(group_id, _NO_TOPICS)
        return [
            OffsetRecord(group_id, where.topic, where.partition, None)
            for where in partitions
            if where.partition in known.get(where.topic, _NOTHING)
        ]

    def deletions_of_group(self, group_id: str) -> list[OffsetRecord]:
        """The records that delete all offsets of a group."""
        return [
            OffsetRecord(group_id, topic, partition, None)
            for topic, known in self._by_group.get(group_id, _NO_TOPICS).items()
            for partition in known
        ]

    def deletions_of_topics(
        self, topics: dict[str, None], step: int
    ) -> Iterator[list[OffsetRecord]] | None:
        """The records that delete the present offsets of topics, about `step` at a time; None without any.

        An offset that is committed before its step came is kept.
        """
        named: list[Collection[str]] = sorted((topics, self._groups_of), key=len)
        present = [
            (group_id, topic, dict(self._by_group[group_id][topic]))
            for topic in named[0]
            if topic in named[1]
            for group_id in self._groups_of[topic]
        ]
        return self._unless_changed(present, step) if present else None

    def _unless_changed(
        self, present: list[tuple[str, str, dict[int, CommittedOffset]]], step: int
    ) -> Iterator[list[OffsetRecord]]:
        records: list[OffsetRecord] = []
        for group_id, topic, before in present:
            known = self._by_group.get(group_id, _NO_TOPICS).get(topic, _NOTHING)
            records += [
                OffsetRecord(group_id, topic, partition, None)
                for partition, committed in before.items()
                if known.get(partition) is committed
            ]
            if len(records) >= step:
                yield records
                records = []
        if records:
            yield records

    def expired(
        self, group_id: str, rule: Retention, now_ms: int, retention_ms: int
    ) -> list[OffsetRecord]:
        """The records that delete what has expired by `rule`."""
        return [
            OffsetRecord(group_id, topic, partition, None)
            for topic, known in self._by_group.get(group_id, _NO_TOPICS).items()
            for partition, committed in known.items()
            if rule.has_passed(topic, committed, now_ms, retention_ms)
        ]

    def _fetch_all(self, group_id: str, topics: TopicImage) -> list[FetchedTopic]:
        found = []
        for topic, known in sorted(self._by_group.get(group_id, _NO_TOPICS).items()):
            partitions = sorted(known)
            offsets = [known[partition] for partition in partitions]
            topic_id = topics.topic_id(topic) or ZERO_UUID
            found.append(FetchedTopic(topic, topic_id, partitions, offsets))
        return found


def _fetch_topic(known: dict[str, dict[int, CommittedOffset]], wanted: WantedTopic) -> FetchedTopic:
    of_topic = known.get(wanted.topic, _NOTHING)
    return FetchedTopic(
        wanted.topic,
        wanted.topic_id,
        wanted.partitions,
        [same_topic(of_topic.get(partition), wanted.topic_id) for partition in wanted.partitions],
    )


def same_topic(committed: CommittedOffset | None, topic_id: Uuid) -> CommittedOffset | None:
    """Return the offset, or None if it belongs to an earlier topic of the same name."""
    if committed is None or ZERO_UUID in (committed.topic_id, topic_id):
        return committed
    return committed if committed.topic_id == topic_id else None


def plan_commit(
    command: CommitOffsets, max_metadata: int, now_ms: int
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
