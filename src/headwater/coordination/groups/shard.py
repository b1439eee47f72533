"""One partition of `__consumer_offsets`: all groups whose id hashes to it, and their offsets.

All kinds of groups share one namespace. Hard state is `stored` and `offsets`: only `replay` changes
it, and a restart rebuilds it from the log. The live groups around it (waiting requests, votes,
sessions) are soft state: after a failed append the runtime drops them with the shard and loads it again.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from headwater.coordination.deadlines import Deadlines, Now
from headwater.coordination.groups.classic import ClassicGroup
from headwater.coordination.groups.commands import (
    NO_MEMBER,
    Described,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    Listed,
    RebalanceReason,
    RebalanceStarted,
    Synced,
    SyncGroup,
)
from headwater.coordination.groups.group import CoordinatorGroup, DeadlineKey, GroupOutcome
from headwater.coordination.groups.group_deadlines import PENDING
from headwater.coordination.groups.offsets import (
    UNSTABLE,
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteOffsets,
    FetchedTopic,
    FetchOffsets,
    Offsets,
    OffsetsDeleted,
    plan_commit,
)
from headwater.coordination.groups.pending_ids import PendingIds
from headwater.coordination.groups.pending_offsets import PendingOffsets
from headwater.coordination.groups.records import (
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    StoredGroup,
)
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.groups.states import GroupState
from headwater.coordination.shard import Outcome, Token, TooLarge, TopicImage
from headwater.errors import E
from headwater.model import TopicPartition

OFFSET_CHECK = "offset check"
CLOCK_JUMP_MS = 3_600_000
LONGEST_NAME = 32_000
GROUPS_PER_CHECK = 200
OFFSETS_PER_STEP = 200
"""Offsets of a deleted topic that are deleted before the loop runs again."""
NO_SUCH_GROUP = Described(E.GROUP_ID_NOT_FOUND, GroupState.DEAD.value)
_OFFSET_CHECK_KEY: DeadlineKey = ("", OFFSET_CHECK, "")


class ListGroups(NamedTuple):
    """List groups by names in lower case; empty filters match everything."""

    states: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()


class GroupShard:
    """Commands in, Outcomes out."""

    def __init__(
        self, settings: GroupSettings, topics: TopicImage, new_id: Callable[[str], str]
    ) -> None:
        self.groups: dict[str, CoordinatorGroup] = {}
        self.stored: dict[str, StoredGroup] = {}
        self.offsets = Offsets()
        self.pending_offsets = PendingOffsets()
        self._deadlines: Deadlines[DeadlineKey] = Deadlines()
        self._settings = settings
        self._topics = topics
        self._new_id = new_id
        self._last_check: Now | None = None
        self._unchecked: list[str] = []
        self._pending = PendingIds()

    # -- loading and storing

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record of the log, at load or right after it was staged."""
        if not isinstance(record, GroupRecord):
            self.offsets.replay(record)
            if self.pending_offsets:
                self.pending_offsets.overwrite(record)
        elif record.stored is not None:
            self.stored[record.group_id] = record.stored
        else:
            self.stored.pop(record.group_id, None)
            group = self.groups.pop(record.group_id, None)
            if group is not None:
                group.close()

    def replay_transactional(self, producer_id: int, record: CoordinatorRecord) -> None:
        """Apply one record of an open transaction: an offset is pending until its end."""
        if isinstance(record, OffsetRecord) and record.committed is not None:
            self.pending_offsets.add(producer_id, record)
        else:
            self.replay(record)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the pending offsets of a producer."""
        for record in self.pending_offsets.end(producer_id, commit=commit):
            self.offsets.replay(record)

    def loaded(self, now: Now) -> GroupOutcome:
        """Build the groups from the records of the log."""
        out: GroupOutcome = Outcome()
        for group_id, stored in self.stored.items():
            group = ClassicGroup.loaded(group_id, stored, self._settings, self._deadlines, now)
            self.groups[group_id] = group
            group.check_capacity(now, out)
        for group_id in (*self.offsets.groups(), *self.pending_offsets.groups()):
            if group_id not in self.groups:
                self.groups[group_id] = self._new_group(group_id, now)
        self._plan_offset_check(now)
        return out

    def survives_loss_of(self, records: Sequence[CoordinatorRecord]) -> bool:
        """Return whether `records` are only offsets, which change by replay alone."""
        return all(isinstance(record, OffsetRecord) for record in records)

    def too_large(self, records: Sequence[CoordinatorRecord]) -> TooLarge:
        """Name the group; its client gets what Kafka answers."""
        commits = all(isinstance(record, OffsetRecord) for record in records)
        error = E.INVALID_COMMIT_OFFSET_SIZE if commits else E.UNKNOWN_SERVER_ERROR
        return TooLarge(error, f"group {records[0].group_id!r}")

    def withdraw(self, now: Now, records: Sequence[CoordinatorRecord]) -> GroupOutcome:
        """Rebalance groups that could not be stored, and forget those that only a commit made."""
        out: GroupOutcome = Outcome()
        for group_id in dict.fromkeys(record.group_id for record in records):
            group = self._classic(group_id)
            stores = (isinstance(one, GroupRecord) and one.group_id == group_id for one in records)
            if group is not None and group.state is GroupState.STABLE and any(stores):
                why = RebalanceStarted(group_id, RebalanceReason.TOO_LARGE, NO_MEMBER, "")
                group.prepare_rebalance(now, why, out)
            self._drop_unused(group_id)
        return out

    def summary(self) -> str:
        """The number of groups, for the log."""
        return f"{len(self.groups)} groups" if self.groups else ""

    def parked(self) -> list[Token]:
        """The tokens that wait in any group."""
        return [token for group in self.groups.values() for token in group.parked()]

    # -- the classic protocol

    def join(self, now: Now, command: JoinGroup, token: Token) -> GroupOutcome:
        """JoinGroup. Answered with Joined."""
        out: GroupOutcome = Outcome()
        refusal = self._refuse_join(command)
        if refusal is not E.NONE:
            out.reply(token, Joined(refusal, command.member_id))
            return out
        group = self._classic(command.group_id) or self._new_group(command.group_id, now)
        group.join(now, command, token, self._new_id, out)
        if not group.vacant:  # a refused join does not create a group
            self.groups[command.group_id] = group
        self._limit_pending(now, group, out)
        return out

    def _limit_pending(self, now: Now, group: ClassicGroup, out: GroupOutcome) -> None:
        """Drop the oldest ids that never joined, once they take too much memory."""
        newest = group.newest_pending()
        if newest is None:
            return
        self._pending.add(group.group_id, newest)
        for group_id, member_id in self._pending.pop_excess():
            holder = self._classic(group_id)
            if holder is not None and holder.drop_pending(now, member_id, out):
                self._drop_unused(group_id)

    def _drop_unused(self, group_id: str) -> None:
        """Forget a group that is vacant and was never stored."""
        group = self.groups.get(group_id)
        if group is None or not group.vacant:
            return
        known = group_id in self.stored or group_id in self.offsets
        if not known and group_id not in self.pending_offsets:
            group.close()
            del self.groups[group_id]

    def sync(self, now: Now, command: SyncGroup, token: Token) -> GroupOutcome:
        """SyncGroup. Answered with Synced."""
        out: GroupOutcome = Outcome()
        group = self._classic(command.group_id)
        if group is None:
            out.reply(token, Synced(_no_such_group(command.group_id)))
        else:
            group.sync(now, command, token, out)
        return out

    def heartbeat(self, now: Now, command: Heartbeat, token: Token) -> GroupOutcome:
        """Heartbeat. Answered with an E."""
        out: GroupOutcome = Outcome()
        group = self._classic(command.group_id)
        if group is None:
            out.reply(token, _no_such_group(command.group_id))
        else:
            out.reply(token, group.heartbeat(now, command))
        return out

    def leave(self, now: Now, command: LeaveGroup, token: Token) -> GroupOutcome:
        """LeaveGroup. Answered with Left."""
        out: GroupOutcome = Outcome()
        group = self._classic(command.group_id)
        if group is None:
            out.reply(token, _left_no_group(command))
            return out
        errors = group.leave(now, command.members, out)
        out.reply(token, Left(E.NONE, tuple(zip(command.members, errors, strict=True))))
        return out

    def describe(self, now: Now, group_id: str, token: Token) -> GroupOutcome:
        """DescribeGroups for one group. Answered with Described."""
        out: GroupOutcome = Outcome()
        group = self.groups.get(group_id)
        if group is None:
            out.reply(token, NO_SUCH_GROUP)
        else:
            out.reply(token, group.describe())
        return out

    def list_groups(self, now: Now, command: ListGroups, token: Token) -> GroupOutcome:
        """ListGroups, this shard's part. Answered with a list of Listed."""
        states, kinds = command.states, command.kinds
        out: GroupOutcome = Outcome()
        found = [
            Listed(group_id, group.protocol_type or "", group.state.value, group.kind.value)
            for group_id, group in self.groups.items()
            if (not states or group.state.value.lower() in states)
            and (not kinds or group.kind.value.lower() in kinds)
        ]
        out.reply(token, found)
        return out

    def delete_group(self, now: Now, group_id: str, token: Token) -> GroupOutcome:
        """DeleteGroups for one group. Answered with an E."""
        out: GroupOutcome = Outcome()
        group = self.groups.get(group_id)
        error = E.GROUP_ID_NOT_FOUND if group is None else group.validate_delete()
        if error is E.NONE:
            out.records.extend(self.offsets.deletions_of_group(group_id))
            pending = self.pending_offsets.of_group(group_id)
            out.records.extend(OffsetRecord(group_id, *key, None) for key in pending)
            out.records.append(GroupRecord(group_id, None))
        out.reply(token, error)
        return out

    # -- offsets

    def commit(self, now: Now, command: CommitOffsets, token: Token) -> GroupOutcome:
        """OffsetCommit. Answered with one E for each offset."""
        return self._committed(now, command, token, in_transaction=False)

    def _committed(
        self, now: Now, command: CommitOffsets, token: Token, *, in_transaction: bool
    ) -> GroupOutcome:
        out: GroupOutcome = Outcome()
        refusal = self._validate_commit(command, in_transaction=in_transaction)
        if refusal is not E.NONE:
            out.reply(token, [refusal] * len(command.offsets))
            return out
        limit = self._settings.offset_metadata_max_bytes
        records, errors = plan_commit(command, limit, now.wall_ms)
        out.records.extend(records)
        group = self.groups.get(command.group_id)
        if group is not None:
            if not in_transaction:
                group.committed_by(now, command.member_id)
        elif records:
            self.groups[command.group_id] = self._new_group(command.group_id, now)
        out.reply(token, errors)
        return out

    def commit_in_transaction(
        self, now: Now, command: CommitOffsetsInTransaction, token: Token
    ) -> GroupOutcome:
        """TxnOffsetCommit. Answered with one E for each offset."""
        out = self._committed(now, command.commit, token, in_transaction=True)
        out.producer = command.producer
        return out

    def fetch_offsets(self, now: Now, command: FetchOffsets, token: Token) -> GroupOutcome:
        """OffsetFetch for one group. Answered with a list of FetchedTopic."""
        out: GroupOutcome = Outcome()
        found = self.offsets.fetch(command, self._topics)
        if command.require_stable and command.group_id in self.pending_offsets:
            found = [self._stable(command.group_id, topic) for topic in found]
        out.reply(token, found)
        return out

    def _stable(self, group_id: str, topic: FetchedTopic) -> FetchedTopic:
        """Replace the offsets that a transaction is about to change."""
        has = self.pending_offsets.has
        offsets = [
            UNSTABLE if has(group_id, topic.topic, partition) else offset
            for partition, offset in zip(topic.partitions, topic.offsets, strict=True)
        ]
        return topic._replace(offsets=offsets)

    def delete_offsets(self, now: Now, command: DeleteOffsets, token: Token) -> GroupOutcome:
        """OffsetDelete. Answered with OffsetsDeleted."""
        out: GroupOutcome = Outcome()
        group = self.groups.get(command.group_id)
        if not command.group_id:
            error = E.INVALID_GROUP_ID
        else:
            error = E.GROUP_ID_NOT_FOUND if group is None else group.validate_offset_delete()
        if group is None or error is not E.NONE:
            out.reply(token, OffsetsDeleted(error))
            return out
        in_use = group.subscribed_among({one.topic for one in command.partitions})
        free = [one for one in command.partitions if one.topic not in in_use]
        out.records.extend(self.offsets.deletions(command.group_id, free))
        out.records.extend(self._pending_deletions(command.group_id, free))
        errors = (
            E.GROUP_SUBSCRIBED_TO_TOPIC if one.topic in in_use else E.NONE
            for one in command.partitions
        )
        out.reply(token, OffsetsDeleted(E.NONE, tuple(errors)))
        return out

    def topics_deleted(self, topics: dict[str, None]) -> Iterator[GroupOutcome] | None:
        """Delete the offsets of deleted topics, but none of those that take their names meanwhile."""
        pending: list[OffsetRecord] = []
        for group_id in self.pending_offsets.groups():
            keys = self.pending_offsets.of_group(group_id)
            partitions = [TopicPartition(*key) for key in keys if key[0] in topics]
            pending += self._pending_deletions(group_id, partitions)
        committed = self.offsets.deletions_of_topics(topics, OFFSETS_PER_STEP)
        if not pending and committed is None:
            return None
        steps = chain([pending] if pending else [], committed or ())
        return (Outcome(records=list(step)) for step in steps)

    def _pending_deletions(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> list[OffsetRecord]:
        return [
            OffsetRecord(group_id, *at, None)
            for at in partitions
            if self.pending_offsets.has(group_id, *at)
        ]

    # -- time

    def next_deadline(self) -> int | None:
        """When to call `expire`, by the monotonic clock."""
        return self._deadlines.next()

    def expire(self, now: Now) -> GroupOutcome:
        """Do what is due."""
        out: GroupOutcome = Outcome()
        while (key := self._deadlines.pop_due(now.monotonic_ms)) is not None:
            group_id, what, member_id = key
            if what == OFFSET_CHECK:
                self._expire_offsets(now, out)
            else:
                self.groups[group_id].expire(now, what, member_id, out)
                if what == PENDING:
                    self._drop_unused(group_id)
        return out

    def _expire_offsets(self, now: Now, out: GroupOutcome) -> None:
        """Check some groups now and the others later, so as not to hold the event loop."""
        if not self._unchecked and not self._clock_jumped(now):
            self._unchecked = list(self.groups)
        checked, self._unchecked = (
            self._unchecked[:GROUPS_PER_CHECK],
            self._unchecked[GROUPS_PER_CHECK:],
        )
        for group_id in checked:
            self._expire_offsets_of(group_id, now, out)
        if self._unchecked:
            self._deadlines.set(_OFFSET_CHECK_KEY, now.monotonic_ms + 1)
        else:
            self._plan_offset_check(now)

    def _expire_offsets_of(self, group_id: str, now: Now, out: GroupOutcome) -> None:
        group = self.groups.get(group_id)
        rule = None if group is None else group.retention()
        if group is None or rule is None:
            return
        retention_ms = self._settings.offsets_retention_ms
        expired = [
            record
            for record in self.offsets.expired(group_id, rule, now.wall_ms, retention_ms)
            if not self.pending_offsets.has(group_id, record.topic, record.partition)
        ]
        out.records.extend(expired)
        unused = group.state is GroupState.EMPTY and group.vacant
        unused = unused and group_id not in self.pending_offsets
        if unused and len(expired) == self.offsets.count(group_id):
            out.records.append(GroupRecord(group_id, None))

    def _clock_jumped(self, now: Now) -> bool:
        """Whether the wall clock jumped ahead; then nothing expires until the next check."""
        last = self._last_check or now
        passed_ms = now.monotonic_ms - last.monotonic_ms
        return now.wall_ms - last.wall_ms - passed_ms > CLOCK_JUMP_MS

    def _plan_offset_check(self, now: Now) -> None:
        self._last_check = now
        at_ms = now.monotonic_ms + self._settings.offsets_check_interval_ms
        self._deadlines.set(_OFFSET_CHECK_KEY, at_ms)

    # -- helpers

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _new_group(self, group_id: str, now: Now) -> ClassicGroup:
        return ClassicGroup(group_id, self._settings, self._deadlines, now)

    def _refuse_join(self, command: JoinGroup) -> E:
        settings = self._settings
        if not command.group_id or _too_long(command.group_id):
            return E.INVALID_GROUP_ID
        protocols = (name for name, _ in command.protocols)
        names = (command.instance_id or "", command.client_id, command.protocol_type, *protocols)
        if any(_too_long(name) for name in names):
            return E.INVALID_REQUEST
        timeout_ms = command.session_timeout_ms
        if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
            return E.INVALID_SESSION_TIMEOUT
        group = self.groups.get(command.group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            return E.INCONSISTENT_GROUP_PROTOCOL
        if group is None and command.member_id != NO_MEMBER:
            return E.UNKNOWN_MEMBER_ID
        return E.NONE

    def _validate_commit(self, command: CommitOffsets, *, in_transaction: bool) -> E:
        if _too_long(command.group_id):
            return E.INVALID_GROUP_ID
        group = self.groups.get(command.group_id)
        if group is None:
            return E.NONE if command.generation < 0 else command.unknown_group_error
        return group.validate_commit(
            command.member_id,
            command.instance_id,
            command.generation,
            in_transaction=in_transaction,
        )


def _too_long(name: str) -> bool:
    """Return whether a member id with this name is too long for a string with an int16 length."""
    return len(name.encode()) > LONGEST_NAME


def _left_no_group(command: LeaveGroup) -> Left:
    """Refuse a group without a name; in an unknown group, every member is unknown."""
    if not command.group_id:
        return Left(E.INVALID_GROUP_ID)
    return Left(E.NONE, tuple((leaver, E.UNKNOWN_MEMBER_ID) for leaver in command.members))


def _no_such_group(group_id: str) -> E:
    return E.UNKNOWN_MEMBER_ID if group_id else E.INVALID_GROUP_ID
