"""Logs a warning about every wait that takes more than a few seconds."""

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

FIRST_S = 5.0
"""A wait is reported after this many seconds."""
AGAIN_S = 30.0
"""A wait, and a cause of one client, is reported again after this many seconds."""


class Warnings:
    """At most one WARNING per cause and half minute."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last_ms: dict[str, int] = {}

    def warn(self, cause: str, text: str, *values: object) -> None:
        """Log a warning, unless `cause` was reported a moment ago."""
        now = self._now_ms()
        last = self._last_ms.get(cause)
        if last is None or now - last >= (AGAIN_S - 1) * 1000:
            self._last_ms[cause] = now
            log.warning(text, *values)

    def over(self, cause: str) -> None:
        """Reset a cause that is over: its next occurrence is reported at once."""
        self._last_ms.pop(cause, None)


class Waiting:
    """A wait on the loop; calls `report` with the elapsed seconds after 5 and then every 30.

    ```python
    with Waiting(report):
        await something
    ```
    """

    __slots__ = ("_begun", "_report", "_timer")

    def __init__(self, report: Callable[[float], None]) -> None:
        self._report = report
        self._begun = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._begun = loop.time()
        self._timer = loop.call_later(FIRST_S, self._due)

    def __exit__(self, *exc: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(AGAIN_S, self._due)
        self._report(loop.time() - self._begun)
