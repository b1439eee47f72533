"""Removes delegation tokens that have expired, from time to time, while this broker is the controller.

A jump of the wall clock removes none for an hour, as with all deletions by age.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from headwater.broker.token_changes import TokenChanges
from headwater.broker.wall_clock import WallClockWatch
from headwater.controller.store.metadata_store import StoreError
from headwater.seams.timers import CallLater, Timer
from headwater.security.delegation_tokens import TokenInformation

log = logging.getLogger("headwater.server")

CHECKED_AT_ONCE = 100
"""How many tokens one step looks at, and removes at most."""


class TokenExpiry:
    """Checks the tokens in steps, one at a time, so that many of them never hold the loop."""

    def __init__(
        self,
        changes: TokenChanges,
        wall_clock: WallClockWatch,
        interval_ms: int,
        is_controller: Callable[[], bool],
        removed: Callable[[TokenInformation], None],
        call_later: CallLater,
    ) -> None:
        self._changes = changes
        self._wall_clock = wall_clock
        self._interval_s = interval_ms / 1000
        self._is_controller = is_controller
        self._removed = removed
        self._call_later = call_later
        self._timer: Timer | None = None

    def start(self) -> None:
        """Check after the interval, and again after each check."""
        self._wait()

    def stop(self) -> None:
        """End the checks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = self._call_later(self._interval_s, self._begin)

    def _begin(self) -> None:
        self._step(iter([token.token_id for token in self._changes.tokens]))

    def _step(self, ids: Iterator[str]) -> None:
        now_ms = self._wall_clock.believed_ms()
        some = list(islice(ids, CHECKED_AT_ONCE)) if self._is_controller() else []
        if not some:
            self._wait()
            return
        known = map(self._changes.tokens.get, some)
        expired = [token for token in known if token is not None and token.has_expired(now_ms)]
        if expired:
            done = partial(self._done, ids, expired)
            self._changes.remove([token.token_id for token in expired], done)
        else:
            self._timer = self._call_later(0, partial(self._step, ids))

    def _done(
        self, ids: Iterator[str], expired: list[TokenInformation], failure: StoreError | None
    ) -> None:
        """Go on; tokens that could not be removed wait for the next check."""
        if failure is None:
            for token in expired:
                self._removed(token)
        else:
            log.info("expired delegation tokens are removed later: %s", failure)
        if self._timer is not None:
            self._timer = self._call_later(0, partial(self._step, ids))
