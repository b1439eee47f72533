"""Scans the batches of a segment file past damage, and reports the damaged ranges.

Every yielded batch has passed its checksum. The bytes between two sound batches are yielded as one
`DamagedRange`, so the sizes of all results add up to the file. Only a window of the file is in memory.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from headwater.log.offset_index import MAX_RELATIVE_OFFSET
from headwater.records.batch import (
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    read_header,
)
from headwater.records.checksum import crc32c
from headwater.records.compression import Codec
from headwater.seams.files import OsFiles, read_fully

WINDOW: Final = 4 << 20
"""Bytes per read."""

_MAGIC_AT: Final = 16
_CODECS: Final = {codec.value: codec.name.lower() for codec in Codec}


class SoundBatch(NamedTuple):
    """A batch that has passed its checksum."""

    position: int
    header: BatchHeader
    data: memoryview

    @property
    def size(self) -> int:
        """Return its size in the file."""
        return len(self.data)


class DamagedRange(NamedTuple):
    """Bytes that are not a sound batch, up to the next one or to the end."""

    position: int
    size: int
    reason: str
    header: BatchHeader | None
    """The header, if it could be read; its values cannot be trusted."""


Found: TypeAlias = SoundBatch | DamagedRange


def scan_segment(
    path: str, base_offset: int, start: int = 0, end: int | None = None
) -> Iterator[Found]:
    """Yield sound batches and damaged ranges from position `start` to `end`, in order.

    Args:
        path: The file.
        base_offset: The number in its name; offsets must be at or shortly above it.
        start: The position of a batch.
        end: The end of a batch; the file's end if not given.
    """
    files = OsFiles()
    fd = files.open(path, write=False)
    try:
        size = files.size(fd)
        yield from _Walk(fd, base_offset, size if end is None else min(end, size)).run(start)
    finally:
        files.close(fd)


def codec_name(header: BatchHeader) -> str:
    """Return the name of a batch's codec."""
    return _CODECS.get(header.codec) or f"unknown-{header.codec}"


class _Walk:
    def __init__(self, fd: int, base_offset: int, end: int) -> None:
        self._fd = fd
        self._base_offset = base_offset
        self._end = end
        self._window = memoryview(b"")
        self._window_at = 0

    def run(self, position: int) -> Iterator[Found]:
        while position < self._end:
            found = self._at(position)
            if isinstance(found, DamagedRange):
                found = found._replace(size=self._next_sound(found) - position)
            yield found
            position += found.size

    def _at(self, position: int) -> Found:
        """Return the batch at a position, or a damaged range of unknown size."""
        head = self._read(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return DamagedRange(
                position, 0, f"{len(head)} bytes are too few for a batch header", None
            )
        header = read_header(head)
        left = self._end - position
        if header.magic != MAGIC:
            return DamagedRange(position, 0, "not a record batch of format 2", None)
        if not 0 <= header.base_offset - self._base_offset <= MAX_RELATIVE_OFFSET:
            # The checksum does not cover the offset, which the broker sets.
            reason = f"offset {header.base_offset} cannot be in this segment"
            return DamagedRange(position, 0, reason, header)
        if not HEADER_SIZE <= header.size <= left:
            return DamagedRange(
                position, 0, f"a batch of {header.size} bytes, but {left} left", header
            )
        data = self._read(position, header.size)
        if len(data) < header.size:
            return DamagedRange(position, 0, "the file was truncated during the read", header)
        if crc32c(data[CRC_START:]) != header.crc:
            return DamagedRange(position, 0, "the checksum is wrong", header)
        if header.last_offset_delta < 0 or header.count < 0:
            return DamagedRange(position, 0, "the record count is negative", header)
        return SoundBatch(position, header, data)

    def _next_sound(self, damage: DamagedRange) -> int:
        """Return the position of the next sound batch: after the damaged one, if its length is right."""
        header = damage.header
        if header is not None and header.size >= HEADER_SIZE:
            after = damage.position + header.size
            if after == self._end or (after < self._end and self._is_sound(after)):
                return after
        return self._search(damage.position + 1)

    def _search(self, position: int) -> int:
        """Return the first position from `position` at which a sound batch begins, or the end."""
        while position + HEADER_SIZE <= self._end:
            window = bytes(self._read(position, min(WINDOW, self._end - position)))
            if len(window) < HEADER_SIZE:
                break
            at = window.find(MAGIC, _MAGIC_AT)
            while at >= 0:
                candidate = position + at - _MAGIC_AT
                if self._is_sound(candidate):
                    return candidate
                at = window.find(MAGIC, at + 1)
            position += len(window) - _MAGIC_AT
        return self._end

    def _is_sound(self, position: int) -> bool:
        """Return whether a sound batch of this segment begins here."""
        return isinstance(self._at(position), SoundBatch)

    def _read(self, position: int, size: int) -> memoryview:
        """Return bytes of the file; fewer than `size` only at its end."""
        at = position - self._window_at
        if at < 0 or at + size > len(self._window):
            wanted = min(max(size, WINDOW), self._end - position)
            self._window = memoryview(read_fully(OsFiles(), self._fd, wanted, position))
            self._window_at, at = position, 0
        return self._window[at : at + size]
