"""Fetches the keys of an identity provider, off the loop, and holds what was fetched last.

A login with an unknown key waits for one fetch, if one may begin. The rules are in
`security/key_refresh.py`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from headwater.broker.context import OffLoop
from headwater.observe.rate_limited_log import RateLimitedLog
from headwater.seams.clock import Clock
from headwater.seams.tasks import Lane
from headwater.seams.web import WebError
from headwater.security.bearer_tokens import TokenRefused
from headwater.security.key_refresh import KeyRefresh
from headwater.security.sasl_exchange import WaitFirst
from headwater.security.signing_keys import KeySet, parse_key_set

log = logging.getLogger("headwater.server")

LOG_INTERVAL_MS = 60_000
WOKEN_AT_ONCE = 50
"""How many waiting logins one round of the loop answers."""


class TokenKeys:
    """The keys of one JWKS."""

    def __init__(
        self,
        url: str,
        read: Callable[[], bytes],
        refresh: KeyRefresh,
        off_loop: OffLoop,
        clock: Clock,
    ) -> None:
        self.url = url
        self._read = read
        self._refresh = refresh
        self._off_loop = off_loop
        self._clock = clock
        self._peer_log = RateLimitedLog(log, clock.monotonic_ms, interval_ms=LOG_INTERVAL_MS)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._waiting: deque[Callable[[], None]] = deque()

    def find(self, kid: str) -> KeySet:
        """Return the keys with `kid` among them; WaitFirst to ask again after a fetch."""
        refresh = self._refresh
        if refresh.keys is not None and refresh.knows(kid):
            return refresh.keys
        if refresh.may_hurry(self._clock.monotonic_ms()):
            self.fetch()
        if refresh.fetching:
            raise WaitFirst(self._waiting.append)
        if refresh.keys is None:
            raise TokenRefused(f"there are no keys to check tokens with: {self.url} was not read")
        raise TokenRefused(f"the JWKS {self.url} has no key {kid!r}")

    def read_now(self) -> KeySet:
        """Read and parse; blocks. Raises WebError or ValueError."""
        return parse_key_set(self._read())

    def use(self, keys: KeySet) -> None:
        """Check tokens with these keys from now on."""
        self._fetch_in(self._refresh.succeeded(keys))
        left_out = f", {keys.unusable} are not usable" if keys.unusable else ""
        log.info("%s: tokens are checked with %d keys%s", self.url, len(keys.keys), left_out)

    def fetch(self) -> None:
        """Begin to fetch the keys, unless that is under way."""
        if self._refresh.fetching:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._refresh.began(self._clock.monotonic_ms())
        self._off_loop(self.read_now, self._fetched, Lane.KEYS)

    def close(self) -> None:
        """Fetch nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._closed = True

    def _fetched(self, keys: object, failure: Exception | None) -> None:
        if self._closed:
            return
        if isinstance(keys, KeySet):
            self.use(keys)
        else:
            self._failed(failure)
        self._wake_some()

    def _failed(self, failure: Exception | None) -> None:
        self._fetch_in(self._refresh.failed())
        if not isinstance(failure, WebError | ValueError):
            log.error("internal error while reading %s", self.url, exc_info=failure)
            return
        kept = self._refresh.keys
        meanwhile = "users of OAUTHBEARER cannot log in"
        if kept is not None:
            meanwhile = f"the {len(kept.keys)} keys that were read before stay in use"
        self._peer_log.warning(
            "JWKS", self.url, f"the keys for tokens cannot be read: it {failure}; {meanwhile}"
        )

    def _fetch_in(self, delay_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_ms / 1000, self.fetch)

    def _wake_some(self) -> None:
        for _ in range(min(WOKEN_AT_ONCE, len(self._waiting))):
            self._waiting.popleft()()
        if self._waiting and not self._refresh.fetching:
            asyncio.get_running_loop().call_soon(self._wake_some)
