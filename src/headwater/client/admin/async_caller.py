"""Runs the calls of the asyncio admin."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from headwater.client.admin.admin_core import AdminCore
from headwater.client.errors import TimedOutError
from headwater.client.waits import check_loop

T = TypeVar("T")


class AsyncCaller:
    """Runs the calls of one admin on the caller's event loop."""

    def __init__(self, core: AdminCore) -> None:
        self._core = core
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._check_loop()
        except BaseException:
            work.close()
            raise
        return await work

    def _check_loop(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        check_loop("Admin", self._loop)

    async def close(self, timeout_s: float | None) -> None:
        self._check_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await self._core.calls.close()
        except TimeoutError:
            raise TimedOutError(f"not finished within {timeout_s:g} s") from None
