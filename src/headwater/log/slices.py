"""A range of a segment that is to be sent: found now, read when the socket wants it.

Bytes that are in the page cache come at once. A cold range, or one whose place cannot be told
without the disk, is loaded by a reader thread with a descriptor of its own: the shared ones may be
closed at any time. Whoever truncates meanwhile raises the segment's `cuts`, and the load fails
instead of giving bytes that are no longer the log's.
"""

from headwater.errors import E, KafkaError
from headwater.log.segment import DamagedSegment, Segment
from headwater.seams.files import Buffer, Files, read_fully

MAPPED_FROM = 128 * 1024
"""Below this a copy costs less than finding out whether a mapping is in memory."""


class Cold(Exception):
    """The page cache does not have what is asked."""


class FileSlice:
    """Whole batches of one segment."""

    __slots__ = ("_cuts", "_files", "_place", "_wanted", "position", "segment", "size")

    def __init__(self, files: Files, segment: Segment, position: int, size: int) -> None:
        self._files = files
        self.segment = segment
        self.position = position
        self.size = size
        self._cuts = segment.cuts
        # Where to look, and for what, while the place is not known.
        self._place: Segment | None = None
        self._wanted: tuple[int, int | None, int, bool] | None = None

    @classmethod
    def unplaced(
        cls, files: Files, segment: Segment, wanted: tuple[int, int | None, int, bool]
    ) -> "FileSlice":
        """A slice whose place must be looked up on the disk; its size is the most it can have."""
        cold = cls(files, segment, -1, min(wanted[2], segment.size))
        cold._place = segment.twin(segment.size)
        cold._wanted = wanted
        return cold

    def send_now(self) -> Buffer | list[Buffer] | None:
        """The bytes for a socket, and for nothing else, if the page cache has them all.

        Large ranges are the page cache's own pages. Never for TLS or for Python code to look at.
        """
        if self.size < MAPPED_FROM or self._wanted is not None or self._cuts != self.segment.cuts:
            return self.load_now()
        return self.segment.mapped_now(self.size, self.position) or self.load_now()

    def load_now(self) -> Buffer | None:
        """The bytes if the page cache has them all, else None."""
        if self._wanted is not None or self._cuts != self.segment.cuts:
            return None
        data = self.segment.read_now(self.size, self.position)
        return data if data is not None and len(data) == self.size else None

    def load(self) -> bytes:
        """The bytes, however long it takes. For reader threads; empty if there is nothing to read."""
        try:
            fd = self._files.open(self.segment.path, write=False)
        except FileNotFoundError:
            raise KafkaError(E.OFFSET_NOT_AVAILABLE, "the segment was removed meanwhile") from None
        try:
            self._look_up(fd)
            data = read_fully(self._files, fd, self.size, self.position) if self.size else b""
        finally:
            self._files.close(fd)
        if self._cuts != self.segment.cuts:
            raise KafkaError(E.OFFSET_NOT_AVAILABLE, "the log was truncated during the read")
        if len(data) != self.size:
            raise KafkaError(E.KAFKA_STORAGE_ERROR, f"{self.segment.path} is shorter than it was")
        return data

    def _look_up(self, fd: int) -> None:
        place, wanted = self._place, self._wanted
        if place is None or wanted is None:
            return
        try:
            found = place.slice(lambda size, at: read_fully(self._files, fd, size, at), *wanted)
        except DamagedSegment as damage:
            # The owner builds the index anew at the next read.
            self.segment.index.damaged = True
            raise KafkaError(E.KAFKA_STORAGE_ERROR, str(damage)) from damage
        self.position, end = found or (0, 0)
        self.size = end - self.position
        self._place = self._wanted = None
