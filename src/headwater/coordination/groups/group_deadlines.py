"""The deadlines of one classic group: its two phases, its members' sessions, and its pending ids."""

from collections.abc import Iterable

from headwater.coordination.deadlines import Deadlines, Now
from headwater.coordination.groups.group import DeadlineKey
from headwater.coordination.groups.members import Member
from headwater.coordination.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS

JOIN_PHASE = "join"
SYNC_PHASE = "sync"
SESSION = "session"
PENDING = "pending"


class GroupDeadlines:
    """Sets and cancels the deadlines of one group among those of its shard."""

    def __init__(self, group_id: str, deadlines: Deadlines[DeadlineKey]) -> None:
        self._group_id = group_id
        self._deadlines = deadlines

    def begin_phase(self, now: Now, phase: str, in_ms: int) -> None:
        self._set(now, phase, in_ms)

    def end_phase(self, phase: str) -> None:
        self._deadlines.cancel((self._group_id, phase, ""))

    def start_session(self, now: Now, member: Member) -> None:
        self._set(now, SESSION, member.session_timeout_ms, member.member_id)

    def await_first_generation(self, now: Now, member_id: str) -> None:
        """Limit how long a new member waits for its first generation."""
        self._set(now, SESSION, NEW_MEMBER_JOIN_TIMEOUT_MS, member_id)

    def end_session(self, member_id: str) -> None:
        self._deadlines.cancel((self._group_id, SESSION, member_id))

    def await_join(self, now: Now, member_id: str, in_ms: int) -> None:
        """Limit how long an id that was handed out may stay unused."""
        self._set(now, PENDING, in_ms, member_id)

    def end_await_join(self, member_id: str) -> None:
        self._deadlines.cancel((self._group_id, PENDING, member_id))

    def end_all(self, pending: Iterable[str]) -> None:
        """End what a group without members waits for: unused ids, and its first generation."""
        for member_id in pending:
            self.end_await_join(member_id)
        for phase in (JOIN_PHASE, SYNC_PHASE):
            self.end_phase(phase)

    def _set(self, now: Now, what: str, in_ms: int, member_id: str = "") -> None:
        self._deadlines.set((self._group_id, what, member_id), now.monotonic_ms + in_ms)
