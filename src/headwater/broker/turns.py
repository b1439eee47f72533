"""Long requests in bounded steps: no request holds the event loop for more than one step.

A generator that yields after each element it handles is run for some hundred elements per round
of the event loop. One generator has its turn in a round, so several long requests do not add up.
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
"""Generators that take turns; the others begin as these end. Each keeps what it has made so far."""
MAX_WEIGHT = 4 * 1024 * 1024
"""Bytes of large requests that are decoded at a time, or one larger request: decoded, a request is
many times as large as received."""


class Requester(Protocol):
    """The client whose request is handled."""

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the result any more."""

    def hold_bytes(self, size: int) -> None:
        """Count `size` bytes of its requests as memory in use; negative to give them back."""


class _Work:
    """A generator on its way, with the bytes of the large request that it works on."""

    __slots__ = ("peer", "steps", "weight")

    def __init__(self, steps: Steps[None], peer: Requester, weight: int) -> None:
        self.steps = steps
        self.peer = peer
        self.weight = weight


class Turns:
    """Runs generators in turns on the event loop; those of clients that left are closed.

    A large request waits as it was received until few others are being decoded, and counts in the
    memory budget until it is handled: thousands of clients must not have theirs decoded at once.
    """

    def __init__(self) -> None:
        self.taken = 0
        self._running: deque[_Work] = deque()
        self._begun: deque[_Work] = deque()
        self._received: deque[_Work] = deque()
        # The bytes of large requests among the running and the begun.
        self._weight = 0
        # What a generator that is started within a step has in hand.
        self._inherited = 0
        self._scheduled = False

    def start(self, steps: Steps[None], peer: Requester) -> bool:
        """Run the first step now and the others in later rounds; whether it is done already."""
        work = _Work(steps, peer, self._inherited)
        if self._step(work):
            return True
        self._count(work, 1)
        self._weight += work.weight
        (self._running if len(self._running) < MAX_RUNNING else self._begun).append(work)
        self._schedule()
        return False

    def start_large(self, steps: Steps[None], peer: Requester, weight: int) -> None:
        """Run the steps that decode a request of `weight` bytes, once there is room for it."""
        work = _Work(steps, peer, weight)
        self._count(work, 1)
        self._received.append(work)
        self._admit()
        self._schedule()

    def _admit(self) -> None:
        """Begin with large requests in their order, after all that was begun before."""
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
        try:
            elements = sum(1 for _ in islice(work.steps, ELEMENTS_A_TURN))
        except Exception:
            log.exception("a request handled in turns failed")
            return True
        finally:
            self._inherited = outer
        return elements < ELEMENTS_A_TURN


def finish(work: Steps[T]) -> T:
    """Run all steps at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast("T", end.value)


def drained(items: list[T]) -> Iterator[T]:
    """The items in order; the list lets go of each as it is handed out, and is empty at the end."""
    items.reverse()
    while items:
        yield items.pop()


class _Each(Generic[T, R]):
    """An array of an answer whose items are made while the answer is encoded."""

    __slots__ = ("_items", "_make")

    def __init__(self, items: Collection[T], make: Callable[[T], R]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[R]:
        return map(self._make, self._items)


def each(items: Collection[T], make: Callable[[T], R]) -> list[R]:
    """`[make(item) for item in items]`, made one by one as a `Request.reply_in_turns` encodes it."""
    return cast("list[R]", _Each(items, make))
