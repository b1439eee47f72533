"""One budget for the bytes that peers make a server hold: received, queued and not yet sent.

Pure accounting. A connection is charged for its receive buffer beyond the small one that every
connection has, for batches that wait for a codec, for large requests until they are handled, and
for answers that its peer does not read.

While the budget is used up, a frame that needs a larger buffer waits; smaller requests are served,
so that groups keep their sessions under overload. One frame at a time may exceed the limit, so that
some frame can always be completed, unless requests in progress will free memory. `stuck` returns
the connections that hold memory and make no progress: closing them frees it for the others.
"""

from typing import Protocol

LEAST_PROGRESS = 64 * 1024
"""A connection that holds memory and moves fewer bytes between two checks is stuck."""
WORTH_CLOSING = 64 * 1024
"""Bytes: closing a connection that holds less does not help."""


class MemoryHolder(Protocol):
    """A connection that is charged."""

    @property
    def frames_read(self) -> int:
        """The number of whole frames so far."""

    def missing(self) -> int:
        """Return the number of missing bytes of its unfinished frame."""

    def progress(self) -> int | None:
        """Return a number that grows with each byte moved; None while the server makes it wait."""

    def memory_granted(self) -> None:
        """Take the memory it waits for, at once."""


class MemoryBudget:
    """What all connections of a server hold together."""

    __slots__ = (
        "_exempt",
        "_granting",
        "_looks",
        "_waiting",
        "held",
        "limit",
        "tight",
        "used",
        "working",
    )

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.tight = False
        """Whether three quarters are used: then no connection keeps a larger buffer than it needs."""
        self.working = 0
        """The part of `used` that the server frees without any action of a peer."""
        self.held: dict[MemoryHolder, int] = {}
        self._waiting: dict[MemoryHolder, int] = {}
        self._exempt: tuple[MemoryHolder, int] | None = None
        """The holder that may exceed the limit, and the number of its frame."""
        self._looks: dict[MemoryHolder, int] = {}
        self._granting = False

    def charge(self, holder: MemoryHolder, size: int) -> None:
        """Charge `holder` for `size` more bytes, or fewer if negative."""
        held = self.held.get(holder, 0) + size
        if held:
            self.held[holder] = held
        else:
            self.held.pop(holder, None)
        self._use(size)

    def charge_work(self, holder: MemoryHolder, size: int) -> None:
        """Charge `holder` for bytes that the server is working on."""
        self.working += size
        self.charge(holder, size)

    def leave(self, holder: MemoryHolder) -> None:
        """Free what a closed connection held."""
        self._waiting.pop(holder, None)
        self._looks.pop(holder, None)
        if self._exempt is not None and self._exempt[0] is holder:
            self._exempt = None
        self._use(-self.held.pop(holder, 0))
        self._grant()

    def _use(self, size: int) -> None:
        self.used += size
        self.tight = 4 * self.used > 3 * self.limit
        if size < 0 and self._waiting:
            self._grant()

    def ask(self, holder: MemoryHolder, size: int) -> bool:
        """Return whether the unfinished frame of `holder` may take `size` more bytes now.

        If not, `memory_granted` is called once it may. The caller takes them before it returns.
        """
        self._grant()
        if self._exempt is not None and self._exempt[0] is holder:
            return True
        if not self._waiting and self.used + size <= self.limit:
            return True
        if self._may_exempt:
            self._exempt = holder, holder.frames_read
            return True
        self._waiting[holder] = size
        return False

    @property
    def waiting(self) -> int:
        """The number of connections that wait for memory."""
        return len(self._waiting)

    def _grant(self) -> None:
        """Grant memory in the order of requests; without room, exempt the frame that lacks least."""
        if self._granting:
            return
        self._granting = True
        try:
            while (holder := self._next()) is not None:
                del self._waiting[holder]
                holder.memory_granted()
        finally:
            self._granting = False

    def _next(self) -> MemoryHolder | None:
        if self._exempt is not None and self._exempt[0].frames_read != self._exempt[1]:
            self._exempt = None  # that frame is complete: another one may be exempt
        if not self._waiting:
            return None
        first, size = next(iter(self._waiting.items()))
        if self.used + size <= self.limit:
            return first
        if not self._may_exempt:
            return None
        least = min(self._waiting, key=lambda waiting: waiting.missing())
        self._exempt = least, least.frames_read
        return least

    @property
    def _may_exempt(self) -> bool:
        return self._exempt is None and 2 * self.working <= self.limit

    def stuck(self) -> list[MemoryHolder]:
        """Return the connections to close: those that made no progress since the last call, largest first.

        Empty while the budget suffices, so that slow peers are closed under overload only.
        """
        self._grant()
        if not self._waiting and self.used <= self.limit:
            self._looks.clear()
            return []
        before, self._looks = self._looks, {}
        idle = []
        for holder, held in self.held.items():
            progress = None if held < WORTH_CLOSING else holder.progress()
            if progress is None:
                continue
            self._looks[holder] = progress
            if holder in before and progress - before[holder] < LEAST_PROGRESS:
                idle.append(holder)
        return sorted(idle, key=lambda holder: -self.held[holder])
