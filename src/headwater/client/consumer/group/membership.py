"""A member of a classic group, as a machine without clock, socket or event loop.

    OUT ─► (on_revoked or on_lost) ─► JOINING ─► SYNCING ─► MEMBER ─► (on_revoked, on_assigned)

`next` returns what poll() must do now: call the listener (a ListenerCall), join, or nothing.
Answers of the coordinator come in through `joined`, `synced` and `heard`; `tick` tells when a
heartbeat is due and when the application has not polled for too long. With the eager protocol a
member gives up everything before it joins; with the cooperative one only what moves, after the new
assignments are known.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum

from headwater.client.consumer.listener import ListenerCall, RebalanceEvent
from headwater.client.errors import failure
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_GENERATION, TopicPartition

_BEGIN_ANEW = frozenset({E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID})
_TRY_AGAIN = frozenset(
    {
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.NETWORK_EXCEPTION,
        E.REQUEST_TIMED_OUT,
    }
)


class MemberState(Enum):
    """The states of a member."""

    OUT = "not in the group"
    JOINING = "waiting for the others to join"
    SYNCING = "waiting for its assignment"
    MEMBER = "in the group"


class Due(Enum):
    """What `tick` found to be due."""

    NOTHING = "nothing"
    HEARTBEAT = "a heartbeat"
    TOO_LATE = "the application has not polled for max.poll.interval.ms"


class PollAction(Enum):
    """What poll() must do if no listener call is due."""

    JOIN = "join"


class Membership:
    """One member."""

    def __init__(
        self,
        *,
        heartbeat_ms: int,
        poll_interval_ms: int,
        instance_id: str | None = None,
        cooperative: bool = False,
    ) -> None:
        self.state = MemberState.OUT
        self.member_id = ""
        self.generation = NO_GENERATION
        self.instance_id = instance_id
        self.told = NO_GENERATION, ""
        """Generation and member id of the last assignment that the application knows of. They outlive
        the membership: what it then does about those partitions is refused, as it must be."""
        self.owned: list[TopicPartition] = []
        """The partitions that this member may read."""
        self.had: list[TopicPartition] = []
        """The partitions that it last had, for sticky assignors."""
        self.had_generation = NO_GENERATION
        self.rejoin_because: str | None = None
        """Why another request to join is due; None if the last one said everything."""
        self.leading = False
        self.last_poll_ms = 0
        self._heartbeat_ms = heartbeat_ms
        self._poll_interval_ms = poll_interval_ms
        self._cooperative = cooperative
        self._last_heartbeat_ms = 0
        self._prepared = False
        self._joins_because = ""
        self._calls: deque[ListenerCall] = deque()

    # -- what poll() must do

    def wants(self, reason: str) -> None:
        """Join, or join again, because of `reason`."""
        if self.rejoin_because is None:
            self.rejoin_because = reason

    def polled(self, now: int) -> None:
        """Note that the application polled."""
        self.last_poll_ms = now

    @property
    def busy(self) -> bool:
        """Whether `next` would return something."""
        return bool(self._calls) or (
            self.rejoin_because is not None and self.state in (MemberState.OUT, MemberState.MEMBER)
        )

    def next(self, topics: Iterable[str]) -> ListenerCall | PollAction | None:
        """Return what to do next; `topics` is the current subscription."""
        if self._calls:
            return self._tell()
        if not self.busy:
            return None
        if not self._prepared:
            self._prepared = True
            self._give_up_first(frozenset(topics))
            if self._calls:
                return self._tell()
        self.state = MemberState.JOINING
        return PollAction.JOIN

    def _tell(self) -> ListenerCall:
        if self.generation != NO_GENERATION:
            self.told = self.generation, self.member_id
        return self._calls[0]

    @property
    def behind(self) -> bool:
        """Whether the application gave its partitions up, and does not know its new ones yet."""
        return self.generation not in (NO_GENERATION, self.told[0])

    def asks(self) -> str:
        """Return the reason for the request to join that is made now.

        What changes after this needs another request, once this one is answered.
        """
        self._joins_because = self.rejoin_because or self._joins_because
        self.rejoin_because = None
        return self._joins_because

    def listener_called(self, call: ListenerCall) -> None:
        """Continue after the listener was called; the member may have left meanwhile."""
        if self._calls and self._calls[0] is call:
            self._calls.popleft()
        if call.event is not RebalanceEvent.ASSIGNED:
            gone = set(call.partitions)
            self.owned = [name for name in self.owned if name not in gone]

    def _give_up_first(self, topics: frozenset[str]) -> None:
        """Return what to give up before joining: everything, or what is no longer subscribed to."""
        lost = self.generation == NO_GENERATION
        if self._cooperative and not lost:
            going = [name for name in self.owned if name.topic not in topics]
        else:
            going = list(self.owned)
        if going:
            self._calls.append(
                ListenerCall(RebalanceEvent.LOST if lost else RebalanceEvent.REVOKED, going)
            )

    # -- the coordinator's answers

    def joined(self, code: int, generation: int, member_id: str, leader: str) -> KafkaError | None:
        """Handle the answer to a join; return an error that ends the membership, if any."""
        problem = error_of(code)
        if problem is E.NONE:
            self.generation, self.member_id = generation, member_id
            if self.owned:  # kept: nobody else gets them before this member has given them up
                self.told = generation, member_id
            self.leading = leader == member_id
            self.state = MemberState.SYNCING
            return None
        if problem is E.MEMBER_ID_REQUIRED:
            self.member_id = member_id
        return self._refused(problem)

    def synced(
        self, code: int, assignment: Sequence[TopicPartition], now: int
    ) -> KafkaError | None:
        """Handle the answer to a sync; return an error that ends the membership, if any."""
        problem = error_of(code)
        if problem is not E.NONE:
            return self._refused(problem)
        self.state, self._prepared = MemberState.MEMBER, False
        self._last_heartbeat_ms = now
        before, after = set(self.owned), set(assignment)
        revoked = [name for name in self.owned if name not in after]
        if revoked:
            self._calls.append(ListenerCall(RebalanceEvent.REVOKED, revoked))
            self.wants("partitions were given up for others")
        added = [name for name in assignment if name not in before]
        self._calls.append(ListenerCall(RebalanceEvent.ASSIGNED, added))
        self.owned = [*self.owned, *added]
        self.had, self.had_generation = list(assignment), self.generation
        return None

    def interrupted(self) -> None:
        """Handle a join or sync without an answer."""
        self.state = MemberState.OUT if self.generation == NO_GENERATION else MemberState.MEMBER
        self.wants(self._joins_because or "the coordinator did not answer")

    def heard(self, code: int) -> KafkaError | None:
        """Handle the answer to a heartbeat or commit; return a fatal error, if any."""
        problem = error_of(code)
        if problem is E.NONE or problem in _TRY_AGAIN or self.state is not MemberState.MEMBER:
            return None
        if problem is E.REBALANCE_IN_PROGRESS:
            self.wants("the group is rebalancing")
            return None
        if problem in _BEGIN_ANEW:
            self._forget(problem)
            return None
        return self._ended(problem)

    def _refused(self, problem: E) -> KafkaError | None:
        self.state = MemberState.MEMBER if self.generation != NO_GENERATION else MemberState.OUT
        self.wants(self._joins_because or problem.text)
        if problem in _BEGIN_ANEW:
            self._forget(problem)
        elif problem not in _TRY_AGAIN | {E.REBALANCE_IN_PROGRESS, E.MEMBER_ID_REQUIRED}:
            return self._ended(problem)
        return None

    def _forget(self, problem: E) -> None:
        """Drop the membership: the group has removed this member, and its partitions are lost."""
        self.state, self.generation, self.leading = MemberState.OUT, NO_GENERATION, False
        self._prepared = False
        if problem is E.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.wants(problem.text)

    def _ended(self, problem: E) -> KafkaError:
        """End the membership: joining again would not help."""
        self.state, self.generation, self.member_id = MemberState.OUT, NO_GENERATION, ""
        self._prepared, self.leading = False, False
        self.rejoin_because = problem.text
        return failure(problem)

    # -- time

    def tick(self, now: int) -> Due:
        """Return what is due at `now`."""
        if self.state is not MemberState.MEMBER:
            return Due.NOTHING
        if now - self.last_poll_ms > self._poll_interval_ms:
            return Due.TOO_LATE
        if now - self._last_heartbeat_ms >= self._heartbeat_ms:
            self._last_heartbeat_ms = now
            return Due.HEARTBEAT
        return Due.NOTHING

    def next_deadline(self) -> int | None:
        """Return when to call `tick` again; None if nothing will be due."""
        if self.state is not MemberState.MEMBER:
            return None
        return min(
            self._last_heartbeat_ms + self._heartbeat_ms,
            self.last_poll_ms + self._poll_interval_ms + 1,
        )

    def left(self, reason: str | None = None) -> None:
        """Note that this member left; with a reason it will join again."""
        self.state, self.generation, self.member_id = MemberState.OUT, NO_GENERATION, ""
        self._prepared, self.leading = False, False
        self.rejoin_because = reason
        self._calls.clear()
