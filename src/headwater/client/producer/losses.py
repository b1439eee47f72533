"""Logs records that failed without a future or callback that reports it."""

import contextlib
import logging

from headwater.errors import KafkaError
from headwater.seams.clock import Clock

log = logging.getLogger(__name__)

REPEAT_MS = 30_000


class Losses:
    """The unreported failures of one producer."""

    def __init__(self, client_id: str, clock: Clock) -> None:
        self._client_id = client_id
        self._clock = clock
        self._next_ms = 0
        self._records = 0
        self._where = ""
        self._why: KafkaError | None = None

    def add(self, records: int, where: str, why: KafkaError) -> None:
        """Count an unreported failure; log a WARNING for the first, then twice a minute."""
        if self._why is None:
            self._where, self._why = where, why
        self._records += records
        if self._clock.monotonic_ms() >= self._next_ms:
            self.report()

    def report(self) -> None:
        """Log the failures that are not logged yet."""
        records, why = self._records, self._why
        if why is None:
            return
        self._records, self._why = 0, None
        self._next_ms = self._clock.monotonic_ms() + REPEAT_MS
        with contextlib.suppress(Exception):  # the interpreter may be shutting down
            log.warning(
                "producer %s: %d records were not stored, the first for %s: %s; nobody looked at "
                "their futures: keep what send() returns, or give it on_delivery",
                self._client_id,
                records,
                self._where,
                why,
            )


class Unheard:
    """Held by the future of a failed batch; reports the failure when its last view is gone."""

    __slots__ = ("_losses", "_records", "_where", "_why", "heard")

    def __init__(self, losses: Losses, records: int, where: str, why: KafkaError) -> None:
        self.heard = False
        self._losses = losses
        self._records = records
        self._where = where
        self._why = why

    def __del__(self) -> None:
        if not self.heard:
            self._losses.add(self._records, self._where, self._why)
