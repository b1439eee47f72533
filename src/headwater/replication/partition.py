"""The state of one partition at its local replica: role, epochs, in-sync set, high watermark.

A pure state machine: inputs in the past tense, effects out. It never reads a clock, a file or a socket,
and supports any number of replicas. Invariants: the high watermark never goes back while this replica
leads, and never passes the end of a replica that is, or may soon be, in the in-sync set; it waits
while there are eligible leader replicas, or fewer in-sync ones than min.insync.replicas (KIP-966); a
change of these sets takes effect only once the controller has stored it.
"""

from collections.abc import Container, Sequence
from enum import Enum

from headwater.errors import E, KafkaError
from headwater.model import NO_EPOCH, NO_LEADER
from headwater.replication.effects import NOTHING, AdvanceHW, Effect, ProposeIsr
from headwater.replication.isr import FollowerProgress, IsrState

NEVER_MS = -(1 << 62)
"""A time before every other."""
LEAVE: frozenset[int] = frozenset()
"""The in-sync set that a follower proposes: the stored one without itself."""


class Role(Enum):
    """The role of the local replica."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


# Enum members are slow to look up, and every batch needs these.
_LEADER = Role.LEADER


class Partition:
    """Leadership and commitment of one partition."""

    __slots__ = (
        "elr",
        "enough_in_sync",
        "followers",
        "high_watermark",
        "isr",
        "lag_limit_ms",
        "leader",
        "leader_epoch",
        "leader_epoch_start",
        "leader_high_watermark",
        "left_with_records",
        "log_end",
        "min_insync",
        "node_id",
        "partition_epoch",
        "proposed_isr",
        "replicas",
        "role",
    )

    def __init__(self, node_id: int, lag_limit_ms: int, min_insync: int) -> None:
        self.node_id = node_id
        self.lag_limit_ms = lag_limit_ms
        self.min_insync = min_insync
        self.enough_in_sync = False
        """Whether acks=all writes are accepted."""
        self.role = Role.NONE
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start = -1
        # The high watermark that the current leader sent last; it may be above the follower's log end.
        self.leader_high_watermark = 0
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: frozenset[int] = frozenset()
        self.elr: frozenset[int] = frozenset()
        self.proposed_isr: frozenset[int] | None = None
        self.left_with_records = False
        """Whether the proposed set is that of a replica whose disk is full."""
        self.followers: dict[int, FollowerProgress] = {}
        self.high_watermark = 0
        self.log_end = 0

    # -- leadership

    def led(
        self,
        now_ms: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        log_end: int,
        epoch_start: int | None = None,
        elr: Sequence[int] = (),
    ) -> Sequence[Effect]:
        """The controller made this replica the leader (or confirmed it).

        `log_end` is the end of what is durable enough; the epoch starts there, or behind it at
        `epoch_start`.
        """
        if leader_epoch != self.leader_epoch or self.role is not _LEADER:
            self.leader_epoch_start = log_end if epoch_start is None else epoch_start
            self.followers = {}
        self.role, self.leader = _LEADER, self.node_id
        self._apply_state(leader_epoch, partition_epoch, replicas, isr, elr)
        self.log_end = log_end
        for replica in replicas:
            if replica != self.node_id:
                self.followers.setdefault(replica, FollowerProgress(caught_up_ms=now_ms))
        for gone in self.followers.keys() - set(replicas):
            del self.followers[gone]
        return self._advance(now_ms)

    def followed(
        self,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
    ) -> None:
        """The controller made another replica the leader; `leader` may be NO_LEADER.

        In an epoch that was known, only the in-sync set has changed. What the leader sent then still
        counts for what is about to be written, and it sends the same mark only once.
        """
        if leader_epoch != self.leader_epoch or self.role is not Role.FOLLOWER:
            self.leader_high_watermark = 0
        self.role, self.leader = Role.FOLLOWER, leader
        self.followers = {}
        self._apply_state(leader_epoch, partition_epoch, replicas, isr)

    def _apply_state(
        self,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        elr: Sequence[int] = (),
    ) -> None:
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas, self.isr, self.elr = tuple(replicas), frozenset(isr), frozenset(elr)
        self.proposed_isr = None
        self._count_in_sync()

    # -- the log grew, here or there

    def appended(self, now_ms: int, log_end: int) -> Sequence[Effect]:
        """The local log now ends at `log_end`, written."""
        self.log_end = log_end
        if not self.followers and self.role is _LEADER and self.enough_in_sync:
            return self._raise_to(log_end)  # as `_advance` does: no other replica counts
        return self._advance(now_ms)

    def check_follower(self, replica: int, broker_epoch: int) -> None:
        """Refuse a broker that has no replica here, and an earlier life of one (KIP-903)."""
        progress = self.followers.get(replica)
        if progress is None:
            # Its controller may have told it of a reassignment before this leader heard of it.
            why = f"broker {replica} has no replica of this partition"
            raise KafkaError(E.UNKNOWN_LEADER_EPOCH, why)
        if -1 < broker_epoch < progress.broker_epoch:
            why = f"broker {replica} has been started again since epoch {broker_epoch}"
            raise KafkaError(E.NOT_LEADER_OR_FOLLOWER, why)

    def follower_fetched(
        self, now_ms: int, replica: int, offset: int, log_start: int, broker_epoch: int = -1
    ) -> Sequence[Effect]:
        """A follower fetched from `offset`, so it has everything from `log_start` up to it."""
        progress = self.followers.get(replica)
        if progress is None:
            return NOTHING
        progress.broker_epoch = broker_epoch
        progress.fetched(now_ms, offset, self.log_end)
        progress.log_start = log_start
        effects = list(self._advance(now_ms))
        if self._may_join(replica, progress):
            effects.append(self._propose(self.isr | {replica}))
        return effects

    def follower_log_start(self, replica: int) -> int:
        """Return the log start that a follower sent last, -1 if it sent none."""
        progress = self.followers.get(replica)
        return -1 if progress is None else progress.log_start

    def leader_hw_received(self, high_watermark: int) -> Sequence[Effect]:
        """The leader sent its high watermark; this replica's own never passes its log end."""
        self.leader_high_watermark = high_watermark
        return self._raise_to(min(high_watermark, self.log_end))

    def truncated(self, log_end: int) -> None:
        """The local log was truncated to `log_end`; the high watermark follows."""
        self.log_end = log_end
        self.high_watermark = min(self.high_watermark, log_end)
        self.leader_high_watermark = 0

    def restarted(self, start: int) -> None:
        """The local log was emptied and continues at `start`, which its leader has committed.

        The high watermark moves there too; otherwise this replica could lead with a high watermark
        below its log start (KAFKA-9491).
        """
        self.log_end = self.high_watermark = start
        self.leader_high_watermark = 0

    # -- the in-sync set

    def lag_checked(self, now_ms: int) -> Sequence[Effect]:
        """Drop followers that have been behind for longer than the limit."""
        if self.role is not _LEADER:
            self.proposed_isr = None  # the disk takes writes: a follower may leave the set again
        if self.role is not _LEADER or self.proposed_isr is not None:
            return NOTHING
        late = {
            replica
            for replica, progress in self.followers.items()
            if replica in self.isr and not progress.in_sync(now_ms, self.log_end, self.lag_limit_ms)
        }
        return [self._propose(self.isr - late)] if late else NOTHING

    def write_refused(self, *, keeps_records: bool) -> Sequence[Effect]:
        """The disk here takes no more writes: let another in-sync replica lead, if there is one.

        A follower leaves the in-sync set: records are committed without it. It does not know the set of
        now, so it proposes none (`LEAVE`). A replica whose disk is full `keeps_records`: it may stay
        eligible until its disk fails, too. Only then does a leader that is alone in sync leave: an
        eligible replica has what was committed.
        """
        failed_since = self.left_with_records and not keeps_records
        if self.role is Role.NONE or (self.proposed_isr is not None and not failed_since):
            return NOTHING
        isr = LEAVE if self.role is Role.FOLLOWER else self.isr - {self.node_id}
        if self.role is _LEADER and not isr and (keeps_records or not self.elr):
            return NOTHING
        proposal = self._propose(isr)._replace(keeps_records=keeps_records)
        self.left_with_records = keeps_records
        return [proposal]

    def isr_stored(
        self, now_ms: int, isr: Sequence[int], partition_epoch: int, elr: Sequence[int] = ()
    ) -> Sequence[Effect]:
        """The controller stored the sets; they take effect now."""
        if partition_epoch <= self.partition_epoch:
            return NOTHING
        for left in self.isr.difference(isr):
            if left in self.followers:
                self.followers[left].caught_up_ms = NEVER_MS  # it is not about to join
        self.isr, self.elr = frozenset(isr), frozenset(elr)
        self.partition_epoch, self.proposed_isr = partition_epoch, None
        self._count_in_sync()
        return self._advance(now_ms)

    def isr_refused(self, now_ms: int) -> Sequence[Effect]:
        """The proposal is not stored, and never will be: what it would have added no longer counts.

        A follower that may not join, because its broker stops, does not hold back the high watermark
        until it fetches again.
        """
        proposed, self.proposed_isr = self.proposed_isr, None
        for replica in (proposed or frozenset()) - self.isr:
            if replica in self.followers:
                self.followers[replica].caught_up_ms = NEVER_MS
        return self._advance(now_ms)

    def proposes(self, proposal: ProposeIsr) -> bool:
        """Return whether the outcome of this proposal is what the partition waits for."""
        return (
            (self.role is _LEADER or (self.role is Role.FOLLOWER and proposal.isr == LEAVE))
            and proposal.isr == self.proposed_isr
            and proposal.leader_epoch == self.leader_epoch
            and proposal.partition_epoch == self.partition_epoch
        )

    def require_in_sync(self, min_insync: int) -> None:
        """The topic's min.insync.replicas changed."""
        self.min_insync = min_insync
        self._count_in_sync()

    @property
    def _needed_in_sync(self) -> int:
        return min(self.min_insync, max(1, len(self.replicas)))

    def _count_in_sync(self) -> None:
        self.enough_in_sync = len(self.isr) >= self._needed_in_sync

    @property
    def isr_state(self) -> IsrState:
        """Return how complete the in-sync set is."""
        replicas, in_sync = len(self.replicas), len(self.isr)
        at_min = replicas > 1 and in_sync == self._needed_in_sync
        return IsrState(in_sync < replicas, not self.enough_in_sync, at_min)

    def low_watermark(self, log_start: int, live: Container[int]) -> int:
        """Return the smallest log start of the live replicas: none of them has records below it."""
        starts = [
            progress.log_start for replica, progress in self.followers.items() if replica in live
        ]
        return min([log_start, *starts])

    # -- helpers

    def _may_join(self, replica: int, progress: FollowerProgress) -> bool:
        """Return whether a follower is at the high watermark and past the start of this epoch (KAFKA-7128)."""
        return (
            replica not in self.isr
            and self.proposed_isr is None
            and progress.log_end >= self.high_watermark
            and progress.log_end >= self.leader_epoch_start
        )

    def _propose(self, isr: frozenset[int]) -> ProposeIsr:
        self.proposed_isr, self.left_with_records = isr, False
        return ProposeIsr(isr, self.leader_epoch, self.partition_epoch)

    def _advance(self, now_ms: int) -> Sequence[Effect]:
        if self.role is not _LEADER:
            # A follower does not know the others' log ends: it uses the leader's high watermark.
            return self._raise_to(min(self.leader_high_watermark, self.log_end))
        if not self.enough_in_sync or self.elr:
            return NOTHING
        mark = self.log_end
        for replica, progress in self.followers.items():
            if progress.log_end < mark and self._counts(now_ms, replica, progress):
                mark = progress.log_end
        return self._raise_to(mark)

    def _counts(self, now_ms: int, replica: int, progress: FollowerProgress) -> bool:
        """Return whether a follower is in the set, proposed for it, or caught up and about to join."""
        if replica in self.isr or (self.proposed_isr is not None and replica in self.proposed_isr):
            return True
        return progress.log_end >= 0 and now_ms - progress.caught_up_ms <= self.lag_limit_ms

    def _raise_to(self, mark: int) -> Sequence[Effect]:
        if mark <= self.high_watermark:
            return NOTHING
        self.high_watermark = mark
        return (AdvanceHW(mark),)
