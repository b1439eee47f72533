"""A time limit with words: what was not told in time, and which setting says so."""

import asyncio
from typing import Any

from headwater.client.errors import TimedOutError


class Limit:
    """Within default.api.timeout.ms, with words."""

    def __init__(self, limit_ms: int, what: str) -> None:
        self._limit_ms = limit_ms
        self._what = what
        self._timeout = asyncio.timeout(limit_ms / 1000)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise TimedOutError(
                f"{self._what} was not told within default_api_timeout_ms={self._limit_ms}"
            ) from None
