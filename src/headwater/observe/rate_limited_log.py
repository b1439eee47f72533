"""Warnings about peers, rationed: a client that misbehaves a million times is a few lines."""

import logging
from collections.abc import Callable

from headwater.observe.logs import printable

MAX_SOURCE = 256


class RateLimitedLog:
    """At most one line per kind and source in an interval, with the number of those left out.

    It remembers at most `capacity` pairs: a peer that invents sources costs no memory, and what it
    gains is that the count of the pair forgotten first is lost.
    """

    def __init__(
        self,
        logger: logging.Logger,
        now_ms: Callable[[], int],
        *,
        interval_ms: int = 10_000,
        capacity: int = 1024,
    ) -> None:
        self._logger = logger
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._capacity = capacity
        self._until: dict[tuple[str, str], int] = {}
        self._suppressed: dict[tuple[str, str], int] = {}

    def warning(self, kind: str, source: str, message: str) -> None:
        """Say `message` about `source`, unless something of that kind was said of it just now."""
        now = self._now_ms()
        pair = kind, source[:MAX_SOURCE]
        if now < self._until.get(pair, now):
            self._suppressed[pair] = self._suppressed.get(pair, 0) + 1
            return
        left_out = self._suppressed.pop(pair, 0)
        self._remember(pair, now + self._interval_ms)
        more = f" ({left_out} more like this since the last line)" if left_out else ""
        self._logger.warning("%s: %s: %s%s", kind, printable(pair[1]), message, more)

    def _remember(self, pair: tuple[str, str], until: int) -> None:
        self._until.pop(pair, None)
        if len(self._until) >= self._capacity:
            oldest = next(iter(self._until))
            del self._until[oldest]
            self._suppressed.pop(oldest, None)
        self._until[pair] = until
