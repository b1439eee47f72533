"""The classic group protocol: the coordinator picks a leader, and the leader assigns partitions.

    Empty -> PreparingRebalance (joins are parked) -> CompletingRebalance (syncs are parked) -> Stable

A state machine without clock, network or disk. Every state that has members has a deadline, so that
no group can hang: the join phase and the sync phase end by themselves, and in between each member has
a session. `Members` answers every parked token, once. A record holds
only what a restart needs, and is written when a generation is complete or the group becomes empty.
"""

from collections.abc import Callable, Collection
from typing import TypeAlias

from headwater.coordination.deadlines import Deadlines, Now
from headwater.coordination.groups.commands import (
    NO_MEMBER,
    Described,
    Heartbeat,
    Joined,
    JoinGroup,
    Leaver,
    RebalanceReason,
    RebalanceStarted,
    Synced,
    SyncGroup,
    leave_reason,
    rejoin_reason,
    shown_ids,
)
from headwater.coordination.groups.generation import Generation
from headwater.coordination.groups.group import DeadlineKey, GroupOutcome
from headwater.coordination.groups.group_deadlines import (
    JOIN_PHASE,
    PENDING,
    SYNC_PHASE,
    GroupDeadlines,
)
from headwater.coordination.groups.initial_delay import InitialDelay
from headwater.coordination.groups.members import Member
from headwater.coordination.groups.offsets import Retention
from headwater.coordination.groups.records import GroupRecord, StoredGroup
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.groups.states import ALLOWED_PREVIOUS, GroupKind, GroupState
from headwater.coordination.shard import Token
from headwater.errors import E

SHORTEST_WAIT_MS = 1_000
LONGEST_REASON = 255

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE

NewId: TypeAlias = Callable[[str], str]


class ClassicGroup:
    """One group. All changes enter through join, sync, heartbeat, leave and expire."""

    kind = GroupKind.CLASSIC

    def __init__(
        self, group_id: str, settings: GroupSettings, deadlines: Deadlines[DeadlineKey], now: Now
    ) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.state_timestamp = now.wall_ms
        self.current = Generation()
        self.members = self.current.members
        self.pending: dict[str, None] = {}  # ids handed out that have not joined yet
        self._unsynced: set[str] = set()  # members of this generation that have not synced yet
        self._initial: InitialDelay | None = None
        self._settings = settings
        self._deadlines = GroupDeadlines(group_id, deadlines)

    @classmethod
    def loaded(
        cls,
        group_id: str,
        stored: StoredGroup,
        settings: GroupSettings,
        deadlines: Deadlines[DeadlineKey],
        now: Now,
    ) -> "ClassicGroup":
        """Restore the group from the log: sessions start again, and no member has to rejoin."""
        group = cls(group_id, settings, deadlines, now)
        group.state_timestamp = stored.state_timestamp
        group.current.restore(stored)
        for member in group.members.by_id.values():
            group._deadlines.start_session(now, member)
            group.state = STABLE
        return group

    # -- joining

    def join(
        self, now: Now, command: JoinGroup, token: Token, new_id: NewId, out: GroupOutcome
    ) -> None:
        """Add a member, or start a rebalance for one that joins again."""
        if not self._has_room_for(command.member_id):
            self._turn_away(now, command.member_id, token, out)
        elif not self.current.speaks(command):
            out.reply(token, Joined(E.INCONSISTENT_GROUP_PROTOCOL, command.member_id))
        elif command.member_id == NO_MEMBER:
            self._join_unknown(now, command, token, new_id, out)
        elif command.member_id in self.pending and command.instance_id is None:
            self._add(now, command.member_id, command, token, out)
        else:
            self._join_known(now, command, token, out)

    def _has_room_for(self, member_id: str) -> bool:
        if self.state is EMPTY:
            return True
        if self.state is PREPARING:
            # Counting waiting members lets a group over its limit drop the last ones to rejoin.
            member = self.members.by_id.get(member_id)
            waits = member is not None and member.join_token is not None
            return waits or self.members.waiting() < self._settings.max_size
        return member_id in self.members or len(self.members) < self._settings.max_size

    def _turn_away(self, now: Now, member_id: str, token: Token, out: GroupOutcome) -> None:
        if member_id in self.members:
            self._remove(member_id, out)
        self._forget_pending(member_id)
        out.reply(token, Joined(E.GROUP_MAX_SIZE_REACHED))
        self._maybe_complete_join(now, out)

    def _join_unknown(
        self, now: Now, command: JoinGroup, token: Token, new_id: NewId, out: GroupOutcome
    ) -> None:
        if command.instance_id is not None:
            member_id = new_id(command.instance_id)
            former = self.members.static_member_id(command.instance_id)
            if former is None:
                self._add(now, member_id, command, token, out)
            else:
                self._replace_static(now, former, member_id, command, token, out)
            return
        member_id = new_id(command.client_id)
        if not command.needs_member_id:
            self._add(now, member_id, command, token, out)
            return
        self.pending[member_id] = None
        self._deadlines.await_join(now, member_id, command.session_timeout_ms)
        out.reply(token, Joined(E.MEMBER_ID_REQUIRED, member_id))

    def _join_known(self, now: Now, command: JoinGroup, token: Token, out: GroupOutcome) -> None:
        refusal = self.members.validate(command.member_id, command.instance_id)
        if refusal is not E.NONE:
            out.reply(token, Joined(refusal, command.member_id))
            return
        member = self.members.by_id[command.member_id]
        unchanged = member.protocols == command.protocols
        leads = self.members.leader == member.member_id
        if unchanged and (self.state is COMPLETING or (self.state is STABLE and not leads)):
            # The member may have missed the response to its join: send it again.
            out.reply(token, self.current.joined(member))
            return
        reason = rejoin_reason(command.reason, unchanged_leader=leads and unchanged)
        again = Joined(E.REBALANCE_IN_PROGRESS, member.member_id)
        self.members.answer_join(member, again, out)
        self.members.update(member, command, token)
        self._rebalance_or_complete(
            now, self._because(reason, member.member_id, command.reason), out
        )

    def _add(
        self, now: Now, member_id: str, command: JoinGroup, token: Token, out: GroupOutcome
    ) -> None:
        self._forget_pending(member_id)
        if not self.members.by_id:
            self.current.protocol_type = command.protocol_type
        if self._initial is not None:
            self._initial = self._initial._replace(joined_meanwhile=True)
        member = Member.joining(member_id, command)
        member.join_token = token
        self.members.add(member)
        self._deadlines.await_first_generation(now, member_id)
        why = self._because(RebalanceReason.JOIN, member_id, command.reason)
        self._rebalance_or_complete(now, why, out)

    def _replace_static(
        self,
        now: Now,
        old_id: str,
        new_id: str,
        command: JoinGroup,
        token: Token,
        out: GroupOutcome,
    ) -> None:
        """Give a returning static member a new id, and fence its old one."""
        former_leader = self.members.leader
        member = self.members.by_id[old_id]
        self.members.answer_join(member, Joined(E.FENCED_INSTANCE_ID, old_id), out)
        self.members.answer_sync(member, Synced(E.FENCED_INSTANCE_ID), out)
        self.members.replace(old_id, new_id)
        self._unsynced.discard(old_id)
        self._deadlines.end_session(old_id)
        self.members.update(member, command, token)
        self._deadlines.start_session(now, member)
        if self.state is not STABLE or self.members.choose_protocol() != self.current.protocol:
            why = self._because(RebalanceReason.STATIC, new_id, command.reason)
            self._rebalance_or_complete(now, why, out)
            return
        self._store(out)
        if command.may_skip_assignment:
            leads = self.members.leader == new_id
            answer = self.current.joined(member)._replace(skip_assignment=leads)
        else:
            # An old client must not see itself as the leader: it would compute an assignment.
            answer = self.current.joined(member)._replace(
                leader=former_leader or NO_MEMBER, members=()
            )
        self.members.answer_join(member, answer, out)

    # -- the two phases of a rebalance

    def _rebalance_or_complete(self, now: Now, why: RebalanceStarted, out: GroupOutcome) -> None:
        if self.state is PREPARING:
            self._maybe_complete_join(now, out)
        else:
            self.prepare_rebalance(now, why, out)

    def prepare_rebalance(self, now: Now, why: RebalanceStarted, out: GroupOutcome) -> None:
        """Start the join phase: every member must join again before its deadline."""
        out.effects.append(why)
        self._end_sync_phase()
        if self.state is COMPLETING:
            self._call_off_sync(now, out)
        is_first = self.state is EMPTY
        self._enter(PREPARING, now)
        if is_first:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._initial = InitialDelay.first(delay_ms, self.members.rebalance_timeout_ms())
            self._deadlines.begin_phase(now, JOIN_PHASE, delay_ms)
            return
        self._deadlines.begin_phase(now, JOIN_PHASE, self.members.rebalance_timeout_ms())
        self._maybe_complete_join(now, out)

    def _call_off_sync(self, now: Now, out: GroupOutcome) -> None:
        for member in self.members.by_id.values():
            member.assignment = b""
            if self.members.answer_sync(member, Synced(E.REBALANCE_IN_PROGRESS), out):
                self._deadlines.start_session(now, member)

    def _maybe_complete_join(self, now: Now, out: GroupOutcome) -> None:
        if self.state is not PREPARING or self._initial is not None:
            return
        if self.members.all_joined() and not self.pending:
            self._complete_join(now, out)

    def _join_phase_expired(self, now: Now, out: GroupOutcome) -> None:
        initial = self._initial
        if initial is None or not initial.joined_meanwhile:
            self._complete_join(now, out)
            return
        self._initial = initial.extended(self._settings.initial_rebalance_delay_ms)
        self._deadlines.begin_phase(now, JOIN_PHASE, self._initial.delay_ms)

    def _complete_join(self, now: Now, out: GroupOutcome) -> None:
        """End the join phase: remove dynamic members that did not join."""
        for member in list(self.members.by_id.values()):
            if member.join_token is None and member.instance_id is None:
                self._remove(member.member_id, out)
        self._initial = None
        if self.members.by_id and not self.members.elect_joined_leader():
            # Only static members are left and none joined: wait for one, or for their sessions to end.
            patience_ms = max(self.members.rebalance_timeout_ms(), SHORTEST_WAIT_MS)
            self._deadlines.begin_phase(now, JOIN_PHASE, patience_ms)
            return
        self._deadlines.end_phase(JOIN_PHASE)
        self.current.number += 1
        if self.members.by_id:
            self._begin_sync_phase(now, out)
        else:
            self.current.protocol = None
            self._enter(EMPTY, now)
            self._store(out)

    def _begin_sync_phase(self, now: Now, out: GroupOutcome) -> None:
        self.current.protocol = self.members.choose_protocol()
        self._enter(COMPLETING, now)
        self._unsynced = set(self.members.by_id)
        self._deadlines.begin_phase(now, SYNC_PHASE, self.members.rebalance_timeout_ms())
        for member in self.members.by_id.values():
            member.is_new = False
            self._deadlines.start_session(now, member)
            self.members.answer_join(member, self.current.joined(member), out)

    def _end_sync_phase(self) -> None:
        self._unsynced.clear()
        self._deadlines.end_phase(SYNC_PHASE)

    def _sync_phase_expired(self, now: Now, out: GroupOutcome) -> None:
        late = set(self._unsynced)
        if not late:
            return
        for member_id in sorted(late):
            self._remove(member_id, out)
        self.prepare_rebalance(now, self._because(RebalanceReason.SYNC, shown_ids(late)), out)

    # -- syncing

    def sync(self, now: Now, command: SyncGroup, token: Token, out: GroupOutcome) -> None:
        """Answer with the member's assignment, now or when the leader sends it."""
        refusal = self.current.validate_sync(command)
        if refusal is E.NONE and self.state is PREPARING:
            refusal = E.REBALANCE_IN_PROGRESS
        if refusal is not E.NONE:
            out.reply(token, Synced(refusal))
            return
        member = self.members.by_id[command.member_id]
        self._unsynced.discard(member.member_id)
        if self.state is STABLE:
            if not self._unsynced:
                self._end_sync_phase()
            self._deadlines.start_session(now, member)
            out.reply(token, self.current.synced(member))
            return
        self.members.answer_sync(member, Synced(E.REBALANCE_IN_PROGRESS), out)
        member.sync_token = token
        if self.members.leader == member.member_id:
            self._assign(now, command, out)

    def _assign(self, now: Now, command: SyncGroup, out: GroupOutcome) -> None:
        for member in self.members.by_id.values():
            member.assignment = command.assignments.get(member.member_id, b"")
        self._enter(STABLE, now)
        self._store(out)
        if not self._unsynced:
            self._end_sync_phase()
        for member in self.members.by_id.values():
            if self.members.answer_sync(member, self.current.synced(member), out):
                self._deadlines.start_session(now, member)

    # -- living and leaving

    def heartbeat(self, now: Now, command: Heartbeat) -> E:
        """Extend the session; the answer says whether a rebalance is in progress."""
        refusal = self.current.validate(command.member_id, command.instance_id, command.generation)
        if refusal is not E.NONE:
            return refusal
        self._deadlines.start_session(now, self.members.by_id[command.member_id])
        return E.REBALANCE_IN_PROGRESS if self.state is PREPARING else E.NONE

    def committed_by(self, now: Now, member_id: str) -> None:
        member = self.members.by_id.get(member_id)
        if member is not None and self.state in (STABLE, PREPARING):
            self._deadlines.start_session(now, member)

    def leave(self, now: Now, leavers: tuple[Leaver, ...], out: GroupOutcome) -> list[E]:
        """Remove members, with one rebalance for all of them."""
        gone: set[str] = set()
        errors = [self._leave_one(leaver, gone, out) for leaver in leavers]
        if gone:
            client_reason = next((one.reason for one in leavers if one.reason), None)
            why = self._because(leave_reason(client_reason), shown_ids(gone), client_reason)
            self._members_went(now, why, out)
        self._maybe_complete_join(now, out)  # it may have waited for a pending id that left
        return errors

    def _leave_one(self, leaver: Leaver, gone: set[str], out: GroupOutcome) -> E:
        if leaver.member_id in self.pending:
            self._forget_pending(leaver.member_id)
            return E.NONE
        by_instance = self.members.static_member_id(leaver.instance_id) or NO_MEMBER
        member_id = leaver.member_id or by_instance
        refusal = self.members.validate(member_id, leaver.instance_id)
        if refusal is E.NONE:
            self._remove(member_id, out)
            gone.add(member_id)
        return refusal

    def _members_went(self, now: Now, why: RebalanceStarted, out: GroupOutcome) -> None:
        if self.state is PREPARING:
            self._maybe_complete_join(now, out)
        elif self.state is not EMPTY:
            self.prepare_rebalance(now, why, out)

    def expire(self, now: Now, what: str, member_id: str, out: GroupOutcome) -> None:
        if what == JOIN_PHASE:
            self._join_phase_expired(now, out)
        elif what == SYNC_PHASE:
            self._sync_phase_expired(now, out)
        elif what == PENDING:
            self.pending.pop(member_id, None)
            self._maybe_complete_join(now, out)
        else:
            self._session_expired(now, member_id, out)

    def _session_expired(self, now: Now, member_id: str, out: GroupOutcome) -> None:
        member = self.members.by_id[member_id]
        parked = member.join_token is not None or member.sync_token is not None
        if parked and not member.is_new:
            return  # it waits for an answer, and its session starts again with it
        self._remove(member_id, out)
        self._members_went(now, self._because(RebalanceReason.SESSION, member_id), out)

    def newest_pending(self) -> str | None:
        """Return the newest member id that has not joined yet."""
        return next(reversed(self.pending), None)

    def drop_pending(self, now: Now, member_id: str, out: GroupOutcome) -> bool:
        """Drop an id that has not joined; return False if it is not pending."""
        if member_id not in self.pending:
            return False
        self._forget_pending(member_id)
        self._maybe_complete_join(now, out)
        return True

    def check_capacity(self, now: Now, out: GroupOutcome) -> None:
        """Rebalance a loaded group that is over a smaller group.max.size: rejoining drops the excess."""
        if len(self.members) > self._settings.max_size:
            self.prepare_rebalance(now, self._because(RebalanceReason.CAPACITY), out)

    def close(self) -> None:
        self._deadlines.end_all(self.pending)
        self.pending.clear()
        self.state = GroupState.DEAD

    # -- validating

    def validate_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool
    ) -> E:
        """Return NONE if the member may commit: a member of this generation, or any client while Empty."""
        unnamed = member_id == NO_MEMBER and instance_id is None
        if generation < 0 and (self.state is EMPTY or unnamed):
            return E.NONE if self.state is EMPTY or in_transaction else E.UNKNOWN_MEMBER_ID
        refusal = self.current.validate(member_id, instance_id, generation)
        if refusal is E.NONE and self.state is COMPLETING and not in_transaction:
            return E.REBALANCE_IN_PROGRESS
        return refusal

    def validate_delete(self) -> E:
        return E.NONE if self.state is EMPTY else E.NON_EMPTY_GROUP

    def validate_offset_delete(self) -> E:
        """Return NONE if offsets may be deleted; for consumers, subscriptions are checked per topic."""
        allowed = self.state is EMPTY or self.current.of_consumers
        return E.NONE if allowed else E.NON_EMPTY_GROUP

    # -- reading

    @property
    def vacant(self) -> bool:
        return not self.members.by_id and not self.pending

    @property
    def protocol_type(self) -> str | None:
        return self.current.protocol_type

    def subscribed_among(self, topics: Collection[str]) -> frozenset[str]:
        return self.current.subscribed_among(topics)

    def retention(self) -> Retention | None:
        """Return which offsets may expire; None during a rebalance or if a subscription is unknown."""
        if self.protocol_type is None:
            return Retention()
        if self.state is EMPTY:
            return Retention(since_ms=self.state_timestamp)
        topics = self.current.subscribed_topics()
        if self.state is not STABLE or topics is None:
            return None
        return Retention(kept_topics=topics)

    def describe(self) -> Described:
        return self.current.described(self.state)

    def parked(self) -> list[Token]:
        return self.members.parked()

    # -- helpers

    def _because(
        self, reason: RebalanceReason, member_id: str = NO_MEMBER, client_reason: str | None = None
    ) -> RebalanceStarted:
        shown = (client_reason or "")[:LONGEST_REASON]
        return RebalanceStarted(self.group_id, reason, member_id, shown)

    def _enter(self, state: GroupState, now: Now) -> None:
        if self.state not in ALLOWED_PREVIOUS[state]:
            raise AssertionError(f"group {self.group_id!r}: {self.state.value} -> {state.value}")
        self.state = state
        self.state_timestamp = now.wall_ms

    def _store(self, out: GroupOutcome) -> None:
        out.records.append(GroupRecord(self.group_id, self.current.to_stored(self.state_timestamp)))

    def _forget_pending(self, member_id: str) -> None:
        self.pending.pop(member_id, None)
        self._deadlines.end_await_join(member_id)

    def _remove(self, member_id: str, out: GroupOutcome) -> None:
        member = self.members.remove(member_id)
        self._unsynced.discard(member_id)
        self._deadlines.end_session(member_id)
        self.members.answer_join(member, Joined(E.UNKNOWN_MEMBER_ID, member_id), out)
        self.members.answer_sync(member, Synced(E.UNKNOWN_MEMBER_ID), out)
