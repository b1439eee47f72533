"""How far a reader of a partition may read (Kafka's FetchIsolation)."""

from enum import Enum


class FetchIsolation(Enum):
    """The end that a reader sees."""

    LOG_END = "log end"
    """For followers."""
    HIGH_WATERMARK = "high watermark"
    """For consumers with isolation.level=read_uncommitted."""
    LAST_STABLE = "last stable offset"
    """For consumers with isolation.level=read_committed."""
