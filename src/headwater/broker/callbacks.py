"""Waiting for calls that answer by calling back."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headwater.controller.store.metadata_store import StoreError

T = TypeVar("T")


class Latch:
    """Something that happens once; callers register before or after it."""

    __slots__ = ("_calls", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._calls: list[Callable[[], None]] = []

    def set(self) -> None:
        """It happened: call everyone who waits. Later calls do nothing."""
        self.is_set = True
        calls, self._calls = self._calls, []
        for call in calls:
            call()

    def when_set(self, call: Callable[[], None]) -> None:
        """Call once it has happened, at once if it has."""
        if self.is_set:
            call()
        else:
            self._calls.append(call)


async def wait_for_callback(start: Callable[[Callable[[], None]], None]) -> None:
    """Start something that calls back once, and wait for the call."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start(lambda: done.set_result(None))
    await done


async def wait_for_reply(ask: Callable[[Callable[[T | StoreError], None]], None]) -> T:
    """Ask the store and wait for its reply; StoreError is raised."""
    answered: asyncio.Future[T | StoreError] = asyncio.get_running_loop().create_future()
    ask(answered.set_result)
    answer = await answered
    if isinstance(answer, StoreError):
        raise answer
    return answer
