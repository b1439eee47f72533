"""How the process's descriptors are divided between files, connections and a reserve.

Kept apart, neither a log dir with many partitions nor a peer that opens connections can take the
descriptors that a flush, a checkpoint or a cold read needs.
"""

from typing import NamedTuple

LEAST_RESERVE = 64
MOST_FILES = 32_768
"""Open segments: with more partitions than this the least recently used ones are opened again."""
LEAST_SHARE = 8


class OpenFiles(NamedTuple):
    """The shares of one broker."""

    files: int
    """Segments that stay open."""
    connections: int
    backlog: int
    """Connections the kernel may hand over at once: they exist before they are counted."""

    @classmethod
    def of(cls, limit: int) -> "OpenFiles":
        """Divide `limit` descriptors."""
        reserve = LEAST_RESERVE + limit // 8
        rest = max(0, limit - reserve)
        files = max(LEAST_SHARE, min(rest // 2, MOST_FILES))
        return cls(files, max(LEAST_SHARE, rest - files), max(LEAST_SHARE, reserve // 2))
