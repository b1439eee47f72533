"""How much of a partition one request asks for, and how much of it may wait to be handed out. Pure."""

from headwater.config.client import ConsumerSettings

_KEY = "max.partition.fetch.bytes"
_GROWN = 2 * 1024 * 1024
"""What a partition may send at once where nobody set a limit: each request costs both ends the same
time, whatever it brings. Columns are handed over at this size."""
_DEPTH = 3
"""How many answers of max.partition.fetch.bytes may wait."""


class FetchLimits:
    """The limits of one consumer."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._bytes = settings.max_partition_fetch_bytes
        self._grows = _KEY not in settings.chosen
        self._in_all = settings.fetch_max_bytes
        self.room = _DEPTH * self._bytes
        """If more bytes of a partition wait for poll(), no more are requested."""

    def partition_bytes(self, partitions: int) -> int:
        """Return the most bytes of each of `partitions` in one response.

        A few partitions may send more than the default of max.partition.fetch.bytes, as long as all
        of them together stay within fetch.max.bytes. A limit that was set is kept.
        """
        if not self._grows:
            return self._bytes
        return max(min(self._in_all // max(partitions, 1), _GROWN), self._bytes)
