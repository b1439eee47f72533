"""Divides the process's descriptors between segments, connections and a reserve.

So neither a log dir with many partitions nor a peer with many connections can use up the descriptors
that a flush, a checkpoint or a cold read needs.
"""

from typing import NamedTuple

LEAST_RESERVE = 64
MOST_FILES = 32_768
"""The most open segments; beyond that the least recently used are closed and reopened on use."""
LEAST_SHARE = 8


class OpenFiles(NamedTuple):
    """The descriptors of one broker by use."""

    files: int
    """The most open segments."""
    connections: int
    backlog: int
    """Connections that the kernel may accept at once, before they are counted."""

    @classmethod
    def of(cls, limit: int) -> "OpenFiles":
        """Divide `limit` descriptors."""
        reserve = LEAST_RESERVE + limit // 8
        rest = max(0, limit - reserve)
        files = max(LEAST_SHARE, min(rest // 2, MOST_FILES))
        return cls(files, max(LEAST_SHARE, rest - files), max(LEAST_SHARE, reserve // 2))
