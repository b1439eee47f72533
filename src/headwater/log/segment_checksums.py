"""The checksums of a segment and its indexes, in a `.checksums` file beside them.

The CRC of a batch leaves out its base offset, length, leader epoch and magic, and Kafka's indexes
have no checksum. This file has the CRC-32C of every 64 KiB of the segment and of each index. A flush
computes them while the bytes are in the page cache, and writes the file once the segment is sealed;
a clean stop writes that of the active segment too.

What a process has not written itself is checked before it is served for the first time
(`read_checked`), by a reader thread. The file may be missing: Kafka writes none, and a crash may lose
it. Then nothing is compared, until a scrub has checked the batches and written it. Only a file for
exactly the size of the segment counts. It is removed before anything of the segment is.
"""

import logging
import struct
from array import array
from collections.abc import Sequence
from sys import byteorder

from headwater.errors import E, KafkaError
from headwater.records.checksum import crc32c
from headwater.seams.files import Files, read_file, read_fully, replace_file

log = logging.getLogger(__name__)

CHECKSUMS = ".checksums"
CHUNK = 64 << 10
PIECE = 16 * CHUNK
INDEXES = 3
"""The offset index, the time index and the aborted transactions, in this order."""

_HEAD = struct.Struct(">4sIQ")
_SUM = struct.Struct(">II")
_END = struct.Struct(">I")
_FORMAT = b"HWC1"


class DamagedChecksums(Exception):
    """The file itself is damaged, or is not of this segment."""


class SegmentChecksums:
    """What the bytes of one segment must be, and which of them were compared."""

    __slots__ = (
        "_bad", "_checked", "_files", "_reported", "absent", "covered", "cuts", "indexes", "path", "stale",
        "sums", "trusted", "unsaved",
    )  # fmt: skip

    def __init__(self, files: Files, path: str, size: int) -> None:
        self._files = files
        self.path = path
        fresh = size == 0
        # Whether this process wrote or compared every byte.
        self.trusted = fresh
        # Whether there is nothing to compare with.
        self.absent = False
        # CRC of each chunk of the first `covered` bytes; None if they are not in memory.
        self.sums: array[int] | None = array("I") if fresh else None
        # The file counts only if it is for this size.
        self.covered = size
        # Size and CRC of each index.
        self.indexes = [(0, 0)] * INDEXES
        # Indexes that were written since.
        self.stale = set(range(INDEXES)) if fresh else set[int]()
        self.unsaved = fresh
        # One byte for each chunk: 1 once it was compared.
        self._checked: bytearray | None = None
        # Chunks that were found to be damaged.
        self._bad: set[int] = set()
        self._reported = False
        # Counts truncations: what a reader thread read in the meantime is invalid.
        self.cuts = 0

    # -- comparing

    def passed(self, position: int, size: int) -> bool:
        """Return whether these bytes may be served: they were compared, or cannot be."""
        bad, checked = self._bad, self._checked
        if not bad and (self.trusted or self.absent):
            return True
        first, end = position // CHUNK, (position + size - 1) // CHUNK + 1
        if not bad.isdisjoint(range(first, end)):
            return False
        if self.trusted or self.absent:
            return True
        return checked is not None and checked.find(0, first, end) < 0

    def load(self) -> None:
        """Read the file unless its content is in memory. Safe on any thread."""
        while self.sums is None and not self.absent:
            path = self.path
            try:
                content = read_file(self._files, path)
                covered, indexes, sums = decode(content)
                if covered != self.covered:
                    raise DamagedChecksums(f"it is for {covered} bytes, not {self.covered}")
            except (OSError, DamagedChecksums) as missing:
                if self.path != path:
                    continue  # compaction has renamed it meanwhile
                if isinstance(missing, DamagedChecksums):
                    log.warning("%s is not used: %s", path, missing)
                self.absent = True
                return
            if self.path == path:
                self.indexes = indexes
                if not self.trusted and self._checked is None:
                    self._checked = bytearray(len(sums))
                self.sums = sums

    def damage(self, data: bytes | memoryview, start: int) -> int | None:
        """Compare whole chunks, the first of which begins at `start`; return where one differs."""
        sums, view = self.sums, memoryview(data)
        if sums is None:
            return None
        for rank in range(start // CHUNK, min(len(sums), -(-(start + len(view)) // CHUNK))):
            begin = rank * CHUNK
            end = min(begin + CHUNK, self.covered)
            if crc32c(view[begin - start : end - start]) != sums[rank]:
                return begin
            self._passed(rank)
        return None

    def compare(self, fd: int, position: int = 0) -> int | None:
        """Compare the file from `position` on; return where it differs. None also without checksums."""
        self.load()
        if self.sums is None or self.trusted:
            return None
        for start in range(position // CHUNK * CHUNK, self.covered, PIECE):
            data = read_fully(self._files, fd, min(PIECE, self.covered - start), start)
            wrong = self.damage(data, start)
            if wrong is not None:
                return wrong
        return None

    def distrust(self, position: int) -> None:
        """Serve nothing of the chunk at `position` any more: its batches are damaged."""
        self._bad.add(position // CHUNK)

    def _passed(self, rank: int) -> None:
        self._bad.discard(rank)
        checked = self._checked
        if checked is not None and rank < len(checked):
            checked[rank] = 1
            if 0 not in checked:
                self.trusted, self._checked = True, None

    def refuse(self, path: str, position: int) -> KafkaError:
        """Return the error for readers of damaged bytes; the first time, log it."""
        if not self._reported:
            self._reported = True
            log.error(
                "%s is damaged near byte %d: these records are not served; check the log with "
                "`headwater log verify`, and copy it from a sound replica",
                path,
                position,
            )
        return KafkaError(E.CORRUPT_MESSAGE, f"{path} is damaged near byte {position}")

    def index_is_intact(self, rank: int, data: bytes | bytearray) -> bool:
        """Return whether an index begins with what it had when the file was written."""
        if rank in self.stale:
            return True
        self.load()
        if self.absent:
            return True
        size, crc = self.indexes[rank]
        return len(data) >= size and crc32c(memoryview(data)[:size]) == crc

    # -- computing

    def lacks(self, size: int, *, whole: bool) -> bool:
        """Return whether `extend` has something to do."""
        end = size if whole else size // CHUNK * CHUNK
        return not self.absent and self.covered < end

    def extend(self, fd: int, size: int, *, whole: bool) -> None:
        """Read the chunks up to `size`, and with `whole` also the rest. For one thread at a time."""
        self.load()
        sums, covered = self.sums, self.covered
        end = size if whole else size // CHUNK * CHUNK
        if sums is None or end <= covered:
            return
        at = covered // CHUNK * CHUNK
        while at < end:
            data = memoryview(read_fully(self._files, fd, min(PIECE, end - at), at))
            if not data or (at < covered and crc32c(data[: covered - at]) != sums[at // CHUNK]):
                return  # damage in what was written earlier: a reader or a scrub will report it
            del sums[at // CHUNK :]
            sums.extend(crc32c(data[begin : begin + CHUNK]) for begin in range(0, len(data), CHUNK))
            at += len(data)
            self.covered = at
            self.unsaved = True

    def content(self, index_paths: Sequence[str]) -> bytes | None:
        """Return what the file lacks, after reading the indexes that were written; None if nothing."""
        if not self.unsaved and not self.stale:
            return None
        self.load()
        if self.sums is None:
            return None
        for rank in sorted(self.stale):
            self.indexes[rank] = _sum_of(self._files, index_paths[rank])
        return encode(self.covered, self.indexes, self.sums)

    def write(self, content: bytes) -> None:
        """Write the file without a sync: a torn one is detected."""
        replace_file(self._files, self.path, content, sync=False)
        self.stale.clear()
        self.unsaved = False

    def release(self) -> None:
        """Free the memory if the file has everything."""
        if not self.unsaved and not self.stale:
            self.sums = None

    # -- the segment changes

    def remove(self) -> None:
        """Remove the file, before anything of the segment is cut."""
        self.load()
        self.cuts += 1
        if self._files.exists(self.path):
            self._files.unlink(self.path)
            self._files.sync_dir(self.path.rpartition("/")[0])

    def forget(self) -> None:
        """Remove the file: nothing is known of the segment."""
        self.remove()
        self.absent, self.sums, self._checked = True, None, None

    def doubt(self) -> None:
        """Keep the file if it is of the whole segment; its indexes are about to be built again.

        It was written after a flush, so it still holds, although a crash came before the checkpoint.
        """
        self.load()
        if not self.absent:
            self.stale, self.unsaved = set(range(INDEXES)), True
        elif self._files.exists(self.path):
            self.forget()

    def begin(self, *, indexes: bool) -> None:
        """Begin without checksums: the batches were checked, with `indexes` those too."""
        self.trusted = True
        self.sums, self.covered, self.absent = array("I"), 0, False
        self.indexes = [(0, 0)] * INDEXES
        self.stale, self.unsaved = set(range(INDEXES)) if indexes else set(), True

    def cut(self, size: int) -> None:
        """Keep what holds for the first `size` bytes; the indexes were compared and cut before."""
        self.cuts += 1
        count = size // CHUNK
        self._bad = {rank for rank in self._bad if rank < count}
        if self.sums is None:
            return
        del self.sums[count:]
        self.covered = min(self.covered, count * CHUNK)
        if self._checked is not None:
            del self._checked[count:]
        self.stale = set(range(INDEXES))
        self.unsaved = True


def read_checked(
    files: Files, fd: int, checksums: SegmentChecksums, path: str, size: int, position: int
) -> bytes:
    """Return bytes of a segment's file, after comparing what was not compared yet; KafkaError."""
    if not checksums.passed(position, size):
        checksums.load()
    if checksums.passed(position, size) or not size:
        return read_fully(files, fd, size, position)
    start = position // CHUNK * CHUNK
    end = max(position + size, min(-(-(position + size) // CHUNK) * CHUNK, checksums.covered))
    cuts = checksums.cuts
    data = read_fully(files, fd, end - start, start)
    if len(data) == end - start:
        wrong = checksums.damage(data, start)
        if checksums.cuts != cuts:
            raise KafkaError(E.OFFSET_NOT_AVAILABLE, "the log was truncated during the read")
        if wrong is not None:
            checksums.distrust(wrong)
        if not checksums.passed(position, size):
            raise checksums.refuse(path, start if wrong is None else wrong)
    return data[position - start : position - start + size]


def encode(covered: int, indexes: list[tuple[int, int]], sums: "array[int]") -> bytes:
    """Return the content of the file."""
    head = _HEAD.pack(_FORMAT, CHUNK, covered)
    body = head + b"".join(_SUM.pack(*row) for row in indexes) + _big_endian(sums)
    return body + _END.pack(crc32c(body))


def decode(content: bytes) -> tuple[int, list[tuple[int, int]], "array[int]"]:
    """Return the covered size, size and CRC of each index, and the CRCs of the chunks."""
    begin = _HEAD.size + INDEXES * _SUM.size
    if len(content) < begin + _END.size or content[:4] != _FORMAT:
        raise DamagedChecksums("it has another format")
    body = content[: -_END.size]
    if _END.unpack_from(content, len(body))[0] != crc32c(body):
        raise DamagedChecksums("its own checksum does not match")
    _, chunk, covered = _HEAD.unpack_from(body)
    if chunk != CHUNK or len(body) - begin != -(-covered // CHUNK) * 4:
        raise DamagedChecksums("its size does not match")
    rows = _SUM.iter_unpack(body[_HEAD.size : begin])
    return covered, [(size, crc) for size, crc in rows], _native(body[begin:])


def _big_endian(sums: "array[int]") -> bytes:
    copy = array("I", sums)
    if byteorder == "little":
        copy.byteswap()
    return copy.tobytes()


def _native(data: bytes) -> "array[int]":
    sums = array("I", data)
    if byteorder == "little":
        sums.byteswap()
    return sums


def _sum_of(files: Files, path: str) -> tuple[int, int]:
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return 0, 0
    return len(data), crc32c(data)
