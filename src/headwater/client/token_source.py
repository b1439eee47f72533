"""Tokens for a client's logins: taken from where the settings say, and replaced in time.

Used by the threads of blocking readers and, through a thread, by clients on a loop: calls block while
a token is fetched, and only one is fetched at a time.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from headwater.client.backoff import Backoff
from headwater.client.errors import AuthenticationError, NoTokenError
from headwater.client.token_grants import BearerToken, obtain
from headwater.config.client_oauth import OAuthCredentials, RefreshWindow
from headwater.errors import KafkaError
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.randomness import Randomness, SystemRandomness

T = TypeVar("T")
log = logging.getLogger(__name__)

_KEPT = 16
"""How many sources a process keeps, for readers that come and go."""
_LEAST_LIFETIME_MS = 1


class TokenSource:
    """Holds the token of one client."""

    def __init__(self, credentials: OAuthCredentials, clock: Clock, randomness: Randomness) -> None:
        self._credentials = credentials
        self._clock = clock
        self._randomness = randomness
        self._lock = threading.Lock()
        self._backoff = Backoff(credentials.retry_ms, credentials.retry_max_ms, randomness)
        self._token: BearerToken | None = None
        self._refresh_ms = 0
        """When to replace the token, by the monotonic clock; so are the following."""
        self._ends_ms = 0
        self._failure: KafkaError | None = None
        self._pause_ends_ms = 0

    @property
    def current(self) -> BearerToken:
        """Return the token of the last `refresh`."""
        if self._token is None:
            raise AuthenticationError(f"there is no token of {self._credentials.source}")
        return self._token

    def forget(self, refused: str) -> None:
        """Get a new token next time: a broker has refused this one."""
        if self._token is not None and self._token.text == refused:
            self._refresh_ms = 0
            self._ends_ms = 0

    @property
    def is_fresh(self) -> bool:
        """Return whether `refresh` would keep the token."""
        return self._token is not None and self._clock.monotonic_ms() < self._refresh_ms

    def refresh(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Replace the token if it is due; blocks. KafkaError if there is none to log in with.

        A provider that is a coroutine function runs on `loop`.
        """
        with self._lock:
            if self.is_fresh:
                return
            now_ms = self._clock.monotonic_ms()
            try:
                if self._failure is not None and now_ms < self._pause_ends_ms:
                    raise self._failure
                token = self._obtain(loop)
            except KafkaError as failure:
                self._failed(failure)
                if self._clock.monotonic_ms() >= self._ends_ms:
                    raise
                log.warning("%s; the token before it stays in use", failure.message)
            else:
                self._obtained(token)

    def _obtain(self, loop: asyncio.AbstractEventLoop | None) -> BearerToken:
        try:
            return obtain(self._credentials, self._clock.wall_ms(), loop)
        except NoTokenError as missing:
            if self._token is None and str(self._credentials.url).startswith("file:"):
                raise AuthenticationError(missing.message) from missing  # nobody writes it later
            raise

    def _failed(self, failure: KafkaError) -> None:
        now_ms = self._clock.monotonic_ms()
        if failure is not self._failure:
            self._failure = failure
            self._pause_ends_ms = now_ms + int(self._backoff.next_ms())

    def _obtained(self, token: BearerToken) -> None:
        credentials, now_ms = self._credentials, self._clock.monotonic_ms()
        self._backoff = Backoff(credentials.retry_ms, credentials.retry_max_ms, self._randomness)
        self._failure = None
        self._token = token
        self._refresh_ms = self._ends_ms = now_ms
        if token.expires_ms is not None:
            lifetime_ms = max(token.expires_ms - self._clock.wall_ms(), _LEAST_LIFETIME_MS)
            jitter = self._randomness.below(2001) / 1000 - 1
            self._ends_ms += lifetime_ms
            self._refresh_ms += refresh_after_ms(lifetime_ms, credentials.window, jitter)


def refresh_after_ms(lifetime_ms: int, window: RefreshWindow, jitter: float) -> int:
    """Return after how long to replace a token, as Java clients do; `jitter` is -1 to 1.

    A lifetime too short for the least period and the buffer ignores both.
    """
    wanted_ms = int(lifetime_ms * (window.factor + window.jitter * jitter))
    if lifetime_ms > window.min_period_ms + window.buffer_ms:
        latest_ms = lifetime_ms - window.buffer_ms
        return max(window.min_period_ms, min(wanted_ms, latest_ms))
    return min(wanted_ms, lifetime_ms)


async def on_thread(call: Callable[[], T]) -> T:
    """Run a call that may block for long on a daemon thread, which a program does not wait for at its end."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def tell(set_it: Callable[[Any], None], value: object) -> None:
        if not result.done():
            set_it(value)

    def run() -> None:
        try:
            found = call()
        except BaseException as failure:  # noqa: BLE001 - passed on to the caller
            outcome: tuple[Callable[[Any], None], object] = (result.set_exception, failure)
        else:
            outcome = (result.set_result, found)
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, *outcome)

    threading.Thread(target=run, name="headwater-token", daemon=True).start()
    return await result


_sources: dict[tuple[int, OAuthCredentials], TokenSource] = {}


def source_of(credentials: OAuthCredentials) -> TokenSource:
    """Return the source of a login; clients of one process with the same settings share it."""
    if credentials.provider is not None:
        return TokenSource(credentials, SystemClock(), SystemRandomness())
    shared = (os.getpid(), credentials)  # a child process must not wait for a lock of its parent
    if shared not in _sources and len(_sources) >= _KEPT:
        _sources.clear()
    return _sources.setdefault(shared, TokenSource(credentials, SystemClock(), SystemRandomness()))
