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


class Requester(Protocol):
    """The client whose request is handled."""

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the result any more."""


class Turns:
    """Runs generators in turns on the event loop; those of clients that left are closed."""

    def __init__(self) -> None:
        self.taken = 0
        self._waiting: deque[tuple[Steps[None], Requester]] = deque()
        self._scheduled = False

    def start(self, work: Steps[None], peer: Requester) -> bool:
        """Run the first step now and the others in later rounds; whether it is done already."""
        if self._step(work):
            return True
        self._waiting.append((work, peer))
        self._schedule()
        return False

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        work, peer = self._waiting.popleft()
        if peer.gone:
            work.close()
        elif not self._step(work):
            self._waiting.append((work, peer))
        if self._waiting:
            self._schedule()

    def _step(self, work: Steps[None]) -> bool:
        self.taken += 1
        try:
            elements = sum(1 for _ in islice(work, ELEMENTS_A_TURN))
        except Exception:
            log.exception("a request handled in turns failed")
            return True
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
