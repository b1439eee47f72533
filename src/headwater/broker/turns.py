"""Runs long requests in bounded steps, so that no request holds the event loop for longer.

A generator that yields after each element runs for some hundred elements per round of the event loop.
Only one generator runs per round, so several long requests do not add up.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator
from itertools import islice
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

log = logging.getLogger("headwater.server")

T = TypeVar("T")
R = TypeVar("R")
Steps: TypeAlias = Generator[None, None, T]
"""Work that pauses after each element; its result is what the generator returns."""

ELEMENTS_A_TURN = 400
"""Elements take 2 to 5 microseconds each, so a turn stays near one or two milliseconds."""


MAX_RUNNING = 8
"""The most generators that take turns; others start as these end. Each keeps its partial result."""
MAX_WEIGHT = 4 * 1024 * 1024
"""The most bytes of large requests decoded at a time, or one larger request: a decoded request is many
times as large as its bytes."""


class Requester(Protocol):
    """The client whose request is handled."""

    @property
    def gone(self) -> bool:
        """Return whether the client has disconnected."""

    def hold_bytes(self, size: int) -> None:
        """Count `size` bytes of its requests as memory in use; negative to release them."""


class StepTimer(Protocol):
    """Counts the time of long requests against the quotas of their clients."""

    def begin_step(self, peer: Requester) -> bool:
        """Return whether the time of a client's step counts; then `end_step` is called after it."""

    def end_step(self, peer: Requester) -> None:
        """Count the time."""


class _Work:
    """A running generator, with the bytes of its large request."""

    __slots__ = ("peer", "steps", "weight")

    def __init__(self, steps: Steps[None], peer: Requester, weight: int) -> None:
        self.steps = steps
        self.peer = peer
        self.weight = weight


class Turns:
    """Runs generators in turns on the event loop; closes those of disconnected clients.

    A large request waits undecoded until few others are being decoded, and counts in the memory
    budget until it is handled: the requests of thousands of clients must not be decoded at once.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.timer: StepTimer | None = None
        """None if no client has a quota."""
        self._running: deque[_Work] = deque()
        self._begun: deque[_Work] = deque()
        self._received: deque[_Work] = deque()
        # The bytes of large requests among the running and the begun.
        self._weight = 0
        # What a generator that is started within a step has in hand.
        self._inherited = 0
        self._scheduled = False

    def start(self, steps: Steps[None], peer: Requester, weight: int = 0) -> bool:
        """Run the first step now and the others in later rounds; return whether it is done.

        The later steps keep `weight` bytes of a request in memory.
        """
        work = _Work(steps, peer, weight or self._inherited)
        if self._step(work):
            return True
        self._count(work, 1)
        self._weight += work.weight
        (self._running if len(self._running) < MAX_RUNNING else self._begun).append(work)
        self._schedule()
        return False

    def start_large(self, steps: Steps[None], peer: Requester, weight: int) -> None:
        """Run the steps that decode a request of `weight` bytes, once the limits allow it."""
        work = _Work(steps, peer, weight)
        self._count(work, 1)
        self._received.append(work)
        self._admit()
        self._schedule()

    def _admit(self) -> None:
        """Start waiting large requests in order, after the generators that already run."""
        running = self._running
        while self._begun and len(running) < MAX_RUNNING:
            running.append(self._begun.popleft())
        while self._received and len(running) < MAX_RUNNING:
            weight = self._received[0].weight
            if self._weight and self._weight + weight > MAX_WEIGHT:
                return
            work = self._received.popleft()
            if work.peer.gone:
                work.steps.close()
                self._count(work, -1)
            else:
                self._weight += weight
                running.append(work)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        if not self._running:
            return
        work = self._running.popleft()
        if work.peer.gone:
            work.steps.close()
            self._end(work)
        elif self._step(work):
            self._end(work)
        else:
            self._running.append(work)
        self._admit()
        if self._running:
            self._schedule()

    def _end(self, work: _Work) -> None:
        self._weight -= work.weight
        self._count(work, -1)

    def _count(self, work: _Work, sign: int) -> None:
        if work.weight:
            work.peer.hold_bytes(sign * work.weight)

    def _step(self, work: _Work) -> bool:
        self.taken += 1
        outer, self._inherited = self._inherited, work.weight
        timer = self.timer
        timed = timer is not None and timer.begin_step(work.peer)
        try:
            elements = sum(1 for _ in islice(work.steps, ELEMENTS_A_TURN))
        except Exception:
            log.exception("a request handled in turns failed")
            return True
        finally:
            self._inherited = outer
            if timer is not None and timed:
                timer.end_step(work.peer)
        return elements < ELEMENTS_A_TURN


def finish(work: Steps[T]) -> T:
    """Run all steps at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast("T", end.value)


def drained(items: list[T]) -> Iterator[T]:
    """Yield the items in order and remove each from the list."""
    items.reverse()
    while items:
        yield items.pop()


class _Each(Generic[T, R]):
    """An array of a response whose items are built while the response is encoded."""

    __slots__ = ("_items", "_make")

    def __init__(self, items: Collection[T], make: Callable[[T], R]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[R]:
        return map(self._make, self._items)


def each(items: Collection[T], make: Callable[[T], R]) -> list[R]:
    """Return `[make(item) for item in items]`, built lazily while `Request.reply_in_turns` encodes it."""
    return cast("list[R]", _Each(items, make))
