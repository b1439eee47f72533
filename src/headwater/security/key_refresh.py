"""When the keys of an identity provider are fetched: in time, never twice at once, seldom. Pure.

Keys that were fetched stay usable until others replace them, so a provider that is down for a while
stops nobody who has a token. A stranger who invents names of keys causes one fetch in ten seconds.
"""

from headwater.security.signing_keys import KeySet

MIN_INTERVAL_MS = 10_000
"""Between two fetches that logins ask for."""


class KeyRefresh:
    """The state of one set of keys. Times are of a monotonic clock."""

    def __init__(self, refresh_ms: int, retry_ms: int, retry_max_ms: int) -> None:
        self.keys: KeySet | None = None
        self.fetching = False
        self._refresh_ms = refresh_ms
        self._retry_ms = retry_ms
        self._retry_max_ms = max(retry_ms, retry_max_ms)
        self._failures = 0
        self._began_ms: int | None = None

    def knows(self, kid: str) -> bool:
        """Return whether the set has the key."""
        return self.keys is not None and kid in self.keys.keys

    def may_hurry(self, now_ms: int) -> bool:
        """Return whether a login with an unknown key may cause a fetch now."""
        if self.fetching:
            return False
        return self._began_ms is None or now_ms - self._began_ms >= MIN_INTERVAL_MS

    def began(self, now_ms: int) -> None:
        """A fetch has begun."""
        self.fetching = True
        self._began_ms = now_ms

    def succeeded(self, keys: KeySet) -> int:
        """Replace the keys; return in how many milliseconds to fetch them again."""
        self.keys = keys
        self.fetching = False
        self._failures = 0
        return self._refresh_ms

    def failed(self) -> int:
        """Keep the keys; return in how many milliseconds to try again."""
        self.fetching = False
        delay_ms = min(self._retry_ms << min(self._failures, 20), self._retry_max_ms)
        self._failures += 1
        return delay_ms
