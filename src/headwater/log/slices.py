"""A range of a segment to be sent: found now, read when the socket takes it.

Bytes in the page cache are read at once. A cold range, or one whose position is known only after a
read from the disk, is loaded by a reader thread with a descriptor of its own: the shared ones may be
closed at any time. A large range is loaded piece by piece as its reader takes it (`SliceStream`). A
truncation meanwhile raises the segment's `truncation_count`, and the load fails instead of returning
bytes that are no longer in the log. A segment that compaction replaces is renamed and still read.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import E, KafkaError
from headwater.log.offset_index import OffsetIndex
from headwater.log.segment import Cold, DamagedSegment, Segment
from headwater.log.segment_checksums import read_checked
from headwater.seams.files import Buffer, Files

MAPPED_FROM = 128 * 1024
"""Below this size a copy is cheaper than checking whether a mapping is in memory."""


class PlainSocket:
    """Proof that the kernel alone reads what is sent; a connection with TLS has none."""


PLAIN_SOCKET = PlainSocket()


class FileSlice:
    """Whole batches of one segment."""

    __slots__ = ("_files", "_place", "_truncations_seen", "_wanted", "position", "segment", "size")

    def __init__(self, files: Files, segment: Segment, position: int, size: int) -> None:
        self._files = files
        self.segment = segment
        self.position = position
        self.size = size
        self._truncations_seen = segment.truncation_count
        # The arguments of the lookup, while the position is unknown.
        self._place: Segment | None = None
        self._wanted: tuple[int, int | None, int, bool] | None = None

    @classmethod
    def unplaced(
        cls, files: Files, segment: Segment, wanted: tuple[int, int | None, int, bool]
    ) -> "FileSlice":
        """Return a slice whose position must be found on the disk; its size is an upper bound."""
        cold = cls(files, segment, -1, min(wanted[2], segment.size))
        cold._place = segment.uncached_copy(segment.size)
        cold._wanted = wanted
        return cold

    def bytes_for(self, socket: PlainSocket | None, most: int) -> Buffer | list[Buffer] | None:
        """Return the bytes if the page cache has them all: a copy of at most `most` for TLS."""
        if socket is not None:
            return self.send_now(socket, most)
        return self.load_now() if self.size <= most else None

    def send_now(self, socket: PlainSocket, most: int) -> Buffer | list[Buffer] | None:
        """Return the bytes for a plain socket, if the page cache has them all.

        Large ranges that the kernel has just read ahead are left to a reader thread too: on a virtual
        machine the first access to such a page makes the host map it, which takes longer than the
        rest of the answer.

        Large ranges are pages of the page cache, never a copy of more than `most` bytes. Only the
        kernel may read them: a truncation meanwhile would end a process that does (SIGBUS).
        """
        if self._wanted is not None or self._truncations_seen != self.segment.truncation_count:
            return None
        if self.size < MAPPED_FROM and self.size <= most:
            return self.load_now()
        segment, position = self.segment, self.position
        if segment.cold_ends and segment.was_read_ahead(position, position + self.size):
            return None
        pages = segment.mapped_now(self.size, position)
        return pages or (self.load_now() if self.size <= most else None)

    def load_now(self) -> Buffer | None:
        """Return the bytes if the page cache has them all, else None."""
        if self._wanted is not None or self._truncations_seen != self.segment.truncation_count:
            return None
        try:
            return self.segment.read_cached(self.size, self.position)
        except Cold:
            return None

    def note_cold(self) -> None:
        """Note that a reader thread has loaded the bytes: the kernel now reads ahead of them."""
        if self._wanted is None and self.size >= MAPPED_FROM:
            self.segment.note_cold_end(self.position + self.size)

    def load(self) -> bytes:
        """Return the bytes, from the disk if necessary; empty if there are none. For reader threads."""
        with self._opened() as fd:
            self._look_up(fd)
            return self._read(fd, 0, self.size)

    def load_up_to(self, most: int) -> "bytes | SliceStream":
        """Return the bytes, or a stream of them if they are more than `most`. For reader threads."""
        with self._opened() as fd:
            self._look_up(fd)
            return SliceStream(self) if self.size > most else self._read(fd, 0, self.size)

    def load_part(self, start: int, size: int) -> bytes:
        """Return `size` bytes from `start` of the slice. For reader threads."""
        with self._opened() as fd:
            return self._read(fd, start, size)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            fd = self.segment.open_for_reading()
        except FileNotFoundError:
            raise KafkaError(E.OFFSET_NOT_AVAILABLE, "the segment was removed meanwhile") from None
        try:
            yield fd
        finally:
            self._files.close(fd)

    def _read(self, fd: int, start: int, size: int) -> bytes:
        data = self._read_at(fd, size, self.position + start) if size else b""
        if self._truncations_seen != self.segment.truncation_count:
            raise KafkaError(E.OFFSET_NOT_AVAILABLE, "the log was truncated during the read")
        if len(data) != size:
            raise KafkaError(E.KAFKA_STORAGE_ERROR, f"{self.segment.path} is shorter than it was")
        return data

    def _read_at(self, fd: int, size: int, position: int) -> bytes:
        segment = self.segment
        return read_checked(self._files, fd, segment.checksums, segment.path, size, position)

    def _look_up(self, fd: int) -> None:
        place, wanted = self._place, self._wanted
        if place is None or wanted is None:
            return

        def read(size: int, position: int) -> bytes:
            return self._read_at(fd, size, position)

        try:
            try:
                found = place.slice(read, *wanted)
            except DamagedSegment:
                # The index is damaged, or that of the segment that replaced this one.
                if not self.segment.moving_to:
                    self.segment.index.damaged = True  # the owner rebuilds it on the next read
                place.index = OffsetIndex(self._files, "", fresh=True)
                found = place.slice(read, *wanted)
        except DamagedSegment as damage:
            raise KafkaError(E.KAFKA_STORAGE_ERROR, str(damage)) from damage
        self.position, end = found or (0, 0)
        self.size = end - self.position
        self._place = self._wanted = None


class SliceStream:
    """A slice that is read from the disk while the answer is sent."""

    __slots__ = ("_at", "_slice")

    def __init__(self, found: FileSlice) -> None:
        self._slice = found
        self._at = 0

    def __len__(self) -> int:
        return self._slice.size

    @property
    def left(self) -> int:
        """Bytes that are not loaded yet."""
        return self._slice.size - self._at

    def load(self, size: int) -> bytes:
        """Return the next bytes. For reader threads."""
        data = self._slice.load_part(self._at, size)
        self._at += size
        return data
