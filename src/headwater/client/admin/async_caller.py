"""Runs the calls of the asyncio admin."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from headwater.client.admin.admin_core import AdminCore
from headwater.client.errors import TimedOutError

T = TypeVar("T")


class AsyncCaller:
    """Runs the calls of one admin on the caller's event loop."""

    def __init__(self, core: AdminCore) -> None:
        self._core = core

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def close(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._core.calls.close()
        except TimeoutError:
            raise TimedOutError(f"not finished within {timeout_s:g} s") from None
