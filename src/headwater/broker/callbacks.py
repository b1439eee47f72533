"""Helpers to wait for callbacks."""

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
        """Call the registered callbacks; later calls do nothing."""
        self.is_set = True
        calls, self._calls = self._calls, []
        for call in calls:
            call()

    def when_set(self, call: Callable[[], None]) -> None:
        """Call `call` once the latch is set, at once if it is set already."""
        if self.is_set:
            call()
        else:
            self._calls.append(call)


async def wait_for_callback(start: Callable[[Callable[[], None]], None]) -> None:
    """Start something that calls back once, and wait for the call."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start(lambda: None if done.done() else done.set_result(None))
    await done


async def wait_for_reply(ask: Callable[[Callable[[T | StoreError], None]], None]) -> T:
    """Call the store and wait for its reply; raise a StoreError."""
    answered: asyncio.Future[T | StoreError] = asyncio.get_running_loop().create_future()
    ask(lambda result: None if answered.done() else answered.set_result(result))
    answer = await answered
    if isinstance(answer, StoreError):
        raise answer
    return answer
