"""A time limit whose error names what was waited for, the setting, and the last error."""

import asyncio
from collections.abc import Callable
from typing import Any

from headwater.client.cluster import Cluster
from headwater.client.errors import TimedOutError


class ApiTimeout:
    """Limits a call to default.api.timeout.ms, and warns if it takes long.

    `problem` returns the last error of the call, where it has one.
    """

    def __init__(
        self,
        limit_ms: int,
        what: str,
        cluster: Cluster,
        problem: Callable[[], object] = lambda: None,
    ) -> None:
        self._limit_ms = limit_ms
        self._what = what
        self._cluster = cluster
        self._problem = problem
        self._timeout = asyncio.timeout(limit_ms / 1000)
        self._waiting = cluster.waiting(what, problem)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._waiting.__enter__()

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._waiting.__exit__()
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise TimedOutError(
                f"timed out after default.api.timeout.ms={self._limit_ms} waiting for "
                f"{self._what}: {self._problem() or self._cluster.trouble}"
            ) from None
