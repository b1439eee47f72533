"""The records of the current poll: they count as delivered only when poll() has returned.

Ctrl-C or an exception from a signal handler may interrupt between any two statements of poll(). The
positions from before the poll are kept, so that records that never reached the caller are read
again. If the application fails, they also show what it has finished: everything before its last
poll.
"""

from collections.abc import Mapping

from headwater.client.consumer.partition_state import PartitionState
from headwater.client.consumer.record import OffsetAndMetadata
from headwater.model import TopicPartition

_Row = tuple[PartitionState, int, int | None, int]
"""A state with its version, position and epoch."""


class Handover:
    """The records of one poll, and the positions before it."""

    __slots__ = ("_before", "open", "undo")

    def __init__(self) -> None:
        self.open = False
        """Whether poll() has taken records that it has not returned. Code that returns them sets this
        to False by a plain assignment right before the return: Python runs no signal handler
        between the two."""
        self.undo = False
        """Whether the loop must call `restore_positions` before positions are used."""
        self._before: list[_Row] = []

    def begin(self) -> None:
        """Begin a poll: the application is done with the records of the last one."""
        if not self.check():
            self._before = []

    def check(self) -> bool:
        """Return whether positions must be restored first, because a poll was interrupted."""
        if self.open:
            self.undo = True
        return self.undo

    def remember(self, state: PartitionState) -> None:
        """Remember the position of `state` before records of it are taken."""
        self.open = True
        self._before.append((state, state.version, state.position, state.epoch))

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None) -> None:
        """Note that the application committed `offsets`, or everything: those records are done."""
        if offsets is None:
            self._before = []
            return
        rows: list[_Row] = []
        for state, version, position, epoch in self._before:
            done = offsets.get(state.key)
            if done is not None and position is not None and done.offset > position:
                rows.append((state, version, done.offset, done.leader_epoch))
            else:
                rows.append((state, version, position, epoch))
        self._before = rows

    def restore_positions(self) -> None:
        """On the loop: return to the positions before the poll; a seek since then wins."""
        for state, version, position, epoch in self._before:
            if state.version == version and position is not None:
                state.seek(position, epoch)
        self._before = []
        self.open = self.undo = False
