"""Member ids that were assigned to clients which have not joined with them yet."""

from collections.abc import Iterator

MAX_BYTES = 2 * 1024 * 1024
"""The memory limit of such ids in one shard: a few thousand ids."""
OVERHEAD_BYTES = 400
"""The memory of one id beside its text."""


class PendingIds:
    """All ids of a shard, oldest first; ids that joined since are still counted."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], None] = {}
        self._bytes = 0

    def add(self, group_id: str, member_id: str) -> None:
        """Count an id; counting it twice changes nothing."""
        if (group_id, member_id) not in self._ids:
            self._ids[group_id, member_id] = None
            self._bytes += _size(group_id, member_id)

    def pop_excess(self) -> Iterator[tuple[str, str]]:
        """Remove the oldest ids, as group and member id, until the rest fits into MAX_BYTES."""
        while self._bytes > MAX_BYTES:
            group_id, member_id = next(iter(self._ids))
            del self._ids[group_id, member_id]
            self._bytes -= _size(group_id, member_id)
            yield group_id, member_id


def _size(group_id: str, member_id: str) -> int:
    return len(group_id) + len(member_id) + OVERHEAD_BYTES
