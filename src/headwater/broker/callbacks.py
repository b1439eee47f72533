"""Waiting for calls that answer by calling back."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headwater.controller.store.metadata_store import StoreError

T = TypeVar("T")


async def wait_for_callback(start: Callable[[Callable[[], None]], None]) -> None:
    """Wait for something that calls back once."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start(lambda: done.set_result(None))
    await done


async def wait_for_reply(ask: Callable[[Callable[[T | StoreError], None]], None]) -> T:
    """Wait for the store's answer; StoreError is raised."""
    answered: asyncio.Future[T | StoreError] = asyncio.get_running_loop().create_future()
    ask(answered.set_result)
    answer = await answered
    if isinstance(answer, StoreError):
        raise answer
    return answer
