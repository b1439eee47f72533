"""Logs what a start is waiting for: without a controller, a broker never serves."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.model import NO_LEADER
from headwater.seams.timers import Timer

if TYPE_CHECKING:
    from headwater.broker.context import Context

log = logging.getLogger("headwater.server")

TOLD_AFTER_S = 10.0
"""How long a start waits before it says so, and between two lines."""


class _Telling:
    """Logs every `TOLD_AFTER_S` that the controller has not sent everything, until it has."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._waited_s = 0.0
        self._timer: Timer | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TOLD_AFTER_S, self._tell)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        self._waited_s += TOLD_AFTER_S
        controller = self._context.controller.controller_id
        if controller == NO_LEADER:
            log.warning(
                "this broker does not serve yet: the cluster has had no controller for %d s",
                self._waited_s,
            )
        else:
            known = self._context.control.metadata_known.is_set
            log.warning(
                "this broker does not serve yet: for %d s it has waited for broker %d, the "
                "controller, to send it %s; the log of broker %d says why it cannot",
                self._waited_s,
                controller,
                "its partitions" if known else "the metadata of the cluster",
                controller,
            )
        self.start()


@contextmanager
def told_while_waiting(context: "Context") -> Iterator[None]:
    """Log what this broker waits for, as long as it waits."""
    telling = _Telling(context)
    telling.start()
    try:
        yield
    finally:
        telling.stop()
