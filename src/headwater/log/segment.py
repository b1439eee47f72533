"""One segment of a log: a `.log` file of batches and the indexes that lead into it.

A segment knows bytes, positions and offsets; the log decides what may be appended or read.
Only the active segment (the last one) grows. Memory is updated after the bytes are in the file,
so a failed write leaves the segment as it was, apart from bytes beyond `size` in the file.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TypeAlias

from headwater.log.aborted_index import AbortedIndex
from headwater.log.descriptors import Descriptors
from headwater.log.index_file import IndexFile
from headwater.log.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from headwater.log.segment_checksums import CHECKSUMS, SegmentChecksums
from headwater.log.settings import LogSettings
from headwater.log.time_index import TimeIndex
from headwater.records.batch import HEADER, HEADER_SIZE, MAGIC, OVERHEAD, RawHeader
from headwater.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA, LENGTH, MAGIC_BYTE
from headwater.seams.files import IOV_MAX, Buffer, Files, read_fully, write_fully

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
ABORTED_INDEX = ".txnindex"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
SUFFIXES = (LOG, INDEX, TIME_INDEX, ABORTED_INDEX, CHECKSUMS)

REMEMBERED = 256
"""Batches at the end of the active segment whose positions are kept in memory."""
RESUMES = 16
"""Readers of a segment whose next position is cached."""
READ_AHEAD = 32 << 20
"""More than a kernel reads ahead of a reader, even with a large `read_ahead_kb`."""
JITTER_SHARES = 1 << 16
WINDOW = 8192
"""Bytes read at once when walking over headers."""

_OFFSET_ENTRY = OffsetIndex.ENTRY.size
_TIME_ENTRY = TimeIndex.ENTRY.size

Staged: TypeAlias = tuple[int, int, int]
"""Last offset, size and max timestamp of a batch to be appended."""
Read: TypeAlias = Callable[[int, int], Buffer]
"""`read(size, position)`: bytes of the segment's file, fewer only at its end."""


class Cold(Exception):
    """The page cache does not have the bytes."""


class DamagedSegment(Exception):
    """The file has no valid batch where one must begin."""


class Segment:
    """The batches from `base_offset` on, in files of that name."""

    __slots__ = (
        "_descriptors", "_files", "aborted", "base_offset", "checksums", "cold_ends", "created_ms",
        "first_timestamp", "index", "jitter", "max_timestamp", "max_timestamp_offset", "moving_to",
        "path", "ready", "resumes", "since_index", "size", "stem", "tail_offsets", "tail_positions",
        "time_index", "truncation_count",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        descriptors: Descriptors,
        directory: str,
        base_offset: int,
        size: int,
        suffix: str = "",
    ) -> None:
        """Open the files of a segment; `suffix` follows their names until compaction swaps them in."""
        self._files = files
        self._descriptors = descriptors
        self.base_offset = base_offset
        self.stem = f"{directory}/{base_offset:020d}"
        self.path = self.stem + LOG + suffix
        # The file's next path, from shortly before it is renamed.
        self.moving_to = ""
        self.size = size
        fresh = size == 0
        stem, sums = self.stem, SegmentChecksums(files, self.stem + CHECKSUMS + suffix, size)
        self.checksums = sums
        self.index = OffsetIndex(files, stem + INDEX + suffix, fresh=fresh, checksums=sums)
        self.time_index = TimeIndex(files, stem + TIME_INDEX + suffix, fresh=fresh, checksums=sums)
        self.aborted = AbortedIndex(files, stem + ABORTED_INDEX + suffix, checksums=sums)
        self.created_ms = -1
        # The share of segment.jitter.ms, out of JITTER_SHARES, by which this segment rolls earlier.
        self.jitter = 0
        # Valid only if the segment is `ready`: written by this process, or walked to its end.
        self.ready = fresh
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.since_index = 0
        self.tail_offsets: list[int] = []
        self.tail_positions: list[int] = []
        # Where readers continue after their last read: offset -> position.
        self.resumes: dict[int, int] = {}
        # Positions where readers continue whose last bytes came from the disk, oldest first.
        self.cold_ends: dict[int, None] = {}
        # Counts truncations: what another thread read in the meantime is invalid.
        self.truncation_count = 0

    @property
    def indexes(self) -> tuple[OffsetIndex, TimeIndex, AbortedIndex]:
        """The three indexes, in the order of their checksums."""
        return self.index, self.time_index, self.aborted

    def relocate(self, directory: str) -> None:
        """Use the folder's new path after a rename; none of its files may be open."""
        self.stem = f"{directory}/{self.base_offset:020d}"
        self.path = self.stem + LOG
        self.index.path = self.stem + INDEX
        self.time_index.path = self.stem + TIME_INDEX
        self.aborted.path = self.stem + ABORTED_INDEX
        self.checksums.path = self.stem + CHECKSUMS

    @classmethod
    def create(
        cls,
        files: Files,
        descriptors: Descriptors,
        directory: str,
        base_offset: int,
        now_ms: int,
        suffix: str = "",
    ) -> "Segment":
        """Create an empty segment with its `.log` file."""
        segment = cls(files, descriptors, directory, base_offset, 0, suffix)
        segment.created_ms = now_ms
        descriptors.create(segment.path)
        return segment

    def uncached_copy(self, size: int) -> "Segment":
        """Return a segment of `size` bytes over the same files and indexes, with nothing cached.

        For a rebuild of the indexes, or a lookup on another thread while the owner's cache changes.
        """
        copy = Segment.__new__(Segment)
        copy._files, copy._descriptors = self._files, self._descriptors
        copy.base_offset, copy.stem, copy.path = self.base_offset, self.stem, self.path
        copy.moving_to = self.moving_to
        copy.index, copy.time_index, copy.aborted = self.index, self.time_index, self.aborted
        copy.checksums = self.checksums
        copy.created_ms, copy.jitter = self.created_ms, self.jitter
        copy.truncation_count = self.truncation_count
        copy.tail_offsets, copy.tail_positions, copy.resumes, copy.cold_ends = [], [], {}, {}
        copy.reset(size)
        return copy

    def is_full(
        self, more: int, last_offset: int, timestamp: int, now_ms: int, limits: LogSettings
    ) -> bool:
        """Return whether batches (size, last offset, newest timestamp) need a new segment."""
        if self.size == 0:
            return more > limits.segment_bytes or not self.spans(last_offset)
        if self.first_timestamp >= 0:
            waited = timestamp - self.first_timestamp
        else:
            waited = now_ms - self.created_ms
        return (
            self.size + more > limits.segment_bytes
            or waited > limits.segment_ms - (limits.segment_jitter_ms and self._jitter_ms(limits))
            or not self.spans(last_offset)
            or len(self.index.entries) + _OFFSET_ENTRY > limits.segment_index_bytes
            or len(self.time_index.entries) + _TIME_ENTRY > limits.segment_index_bytes
        )

    def spans(self, offset: int) -> bool:
        """Return whether the offset is near enough to the base for the indexes."""
        return offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def _jitter_ms(self, limits: LogSettings) -> int:
        return min(limits.segment_jitter_ms, limits.segment_ms) * self.jitter // JITTER_SHARES

    def append(
        self, buffers: Sequence[Buffer], batches: Sequence[Staged], total: int, interval: int
    ) -> None:
        """Write the batches at the end; OSError leaves the segment as it was."""
        start = self.size
        fd = self._descriptors.of(self.path)
        count = self._files.pwritev(
            fd, buffers if len(buffers) <= IOV_MAX else buffers[:IOV_MAX], start
        )
        if count != total:
            write_fully(self._files, fd, _after(buffers, count), start + count)
        self.index_batches(batches, interval)

    def index_batches(self, batches: Sequence[Staged], interval: int) -> None:
        """Add batches that are in the file from `size` on to the indexes and the tail cache."""
        if self.first_timestamp < 0 and batches:
            self.first_timestamp = batches[0][2]
        position, since, base = self.size, self.since_index, self.base_offset
        offsets, positions = self.tail_offsets, self.tail_positions
        for last_offset, size, timestamp in batches:
            if timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset
            if since > interval:
                self.index.append(last_offset - base, position)
                self.time_index.append(self.max_timestamp, self.max_timestamp_offset - base)
                since = 0
            since += size
            offsets.append(last_offset)
            positions.append(position)
            position += size
        self.since_index = since
        self.size = position
        if len(offsets) > 2 * REMEMBERED:
            del offsets[:-REMEMBERED], positions[:-REMEMBERED]

    def remember(self, last_offset: int, position: int) -> None:
        """Cache the position of a batch near the end."""
        self.tail_offsets.append(last_offset)
        self.tail_positions.append(position)

    def reset(self, size: int) -> None:
        """Set the size and drop all cached state of the batches."""
        self.drop_tail_cache()
        self.size = size
        self.ready = size == 0
        self.first_timestamp = self.max_timestamp = -1
        self.max_timestamp_offset, self.since_index = self.base_offset, 0

    def seal(self) -> None:
        """Add the final time index entry: this process appends no more batches."""
        if self.ready and self.size:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def drop_tail_cache(self) -> None:
        """Free the memory that only the active segment needs."""
        self.tail_offsets.clear()
        self.tail_positions.clear()
        self.resumes.clear()
        self.cold_ends.clear()

    # -- reading: `read` may read the page cache only, or another thread's descriptor

    def find(self, read: Read, offset: int) -> tuple[int, RawHeader] | None:
        """Return position and header of the first batch that ends at or above `offset`."""
        position, window = self._enter(read, self.index.lookup(offset - self.base_offset))
        while window:
            at, last = 0, len(window) - HEADER_SIZE
            while at <= last:
                header = self._header(window, at, position)
                if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] >= offset:
                    return position + at, header
                at += header[LENGTH] + OVERHEAD
            position += at
            window = self._window(read, position)
        return None

    def find_last(self, read: Read) -> tuple[int, RawHeader] | None:
        """Return position and header of the last batch."""
        position, window = self._enter(read, self.index.last())
        found = None
        while window:
            at, last = 0, len(window) - HEADER_SIZE
            while at <= last:
                found = position + at, self._header(window, at, position)
                at += found[1][LENGTH] + OVERHEAD
            position += at
            window = self._window(read, position)
        return found

    def slice(
        self, read: Read, offset: int, upper: int | None, max_bytes: int, at_least_one: bool
    ) -> tuple[int, int] | None:
        """Return start and end position of whole batches from `offset` to below `upper`.

        Both are the same if the first batch is too large or not below `upper`. None means that the
        segment has nothing from `offset` on.
        """
        start = self._position_of(read, offset)
        if start >= self.size:
            return None
        end = self.size if upper is None else self._position_of(read, upper)
        if end - start > max_bytes:
            end = self._whole(read, start, start + max_bytes, at_least_one)
        return start, max(start, end)

    def _position_of(self, read: Read, offset: int) -> int:
        """Return where the batch that holds `offset` begins; the end if there is none."""
        offsets = self.tail_offsets
        if offsets and (offset > offsets[0] or not self.tail_positions[0]):
            rank = bisect_left(offsets, offset)
            return self.tail_positions[rank] if rank < len(offsets) else self.size
        if offset in self.resumes:
            return self.resumes[offset]
        found = self.find(read, offset)
        return self.size if found is None else found[0]

    def _whole(self, read: Read, start: int, limit: int, at_least_one: bool) -> int:
        """Return the end of the last batch that ends at or before `limit`."""
        positions = self.tail_positions
        if positions and start >= positions[0]:
            rank = bisect_right(positions, limit) - 1
            if positions[rank] == start and at_least_one:
                return positions[rank + 1] if rank + 1 < len(positions) else self.size
            return positions[rank]
        entry = self.index.lookup_position(limit)
        if entry[1] > start:
            place, window = self._enter(read, entry)
        else:
            place, window = start, self._window(read, start)
        while window:
            at, last = 0, len(window) - HEADER_SIZE
            while at <= last:
                header = self._header(window, at, place)
                after = at + header[LENGTH] + OVERHEAD
                if place + after > limit:
                    if place + at == start and at_least_one:
                        return self._resume(
                            header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1, place + after
                        )
                    return self._resume(header[BASE_OFFSET], place + at)
                at = after
            place += at
            window = self._window(read, place)
        return place

    def _enter(self, read: Read, entry: tuple[int, int]) -> tuple[int, Buffer]:
        """Return the position of an index entry and the bytes there, after checking its batch."""
        relative, position = entry
        if relative < 0:
            return 0, self._window(read, 0)
        if position + HEADER_SIZE <= self.size:
            window = self._window(read, position)
            header = HEADER.unpack_from(window)
            if (
                header[MAGIC_BYTE] == MAGIC
                and header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] == self.base_offset + relative
            ):
                return position, window
        raise DamagedSegment(f"entry {relative}:{position} of {self.index.path} is wrong")

    def _resume(self, offset: int, position: int) -> int:
        resumes = self.resumes
        if len(resumes) >= RESUMES and offset not in resumes:
            del resumes[next(iter(resumes))]
        resumes[offset] = position
        return position

    def _window(self, read: Read, position: int) -> Buffer:
        """Return the bytes where a batch must begin; none at the end of the segment."""
        if position >= self.size:
            return b""
        window = read(min(WINDOW, self.size - position), position)
        if len(window) < HEADER_SIZE:
            raise DamagedSegment(f"{self.path} ends inside a batch at {position}")
        return window

    def _header(self, window: Buffer, at: int, position: int) -> RawHeader:
        header: RawHeader = HEADER.unpack_from(window, at)
        if (
            header[MAGIC_BYTE] != MAGIC
            or header[LENGTH] < HEADER_SIZE - OVERHEAD
            or header[LAST_OFFSET_DELTA] < 0
        ):
            raise DamagedSegment(f"no batch at {position + at} of {self.path}")
        return header

    def read_cached(self, size: int, position: int) -> Buffer:
        """Return that many bytes from the page cache; raise Cold if a reader thread must get them."""
        if not self.checksums.passed(position, size):
            raise Cold
        data = self._files.pread_now(self._descriptors.of(self.path), size, position)
        if data is None or len(data) < size:
            raise Cold
        return data

    def mapped_now(self, size: int, position: int) -> list[Buffer] | None:
        """Return mapped pages of the page cache, to be passed to a socket only, or None."""
        if not self.checksums.passed(position, size):
            return None
        descriptors = self._descriptors
        return descriptors.mmaps.view(self.path, descriptors.of, position, size)

    def open_for_reading(self) -> int:
        """Return another descriptor of the file, even while compaction renames it. For any thread."""
        while True:
            path = self.path
            try:
                fd = self._files.open(path, write=False)
            except FileNotFoundError:
                if self.path != path:
                    continue
                if not self.moving_to:
                    raise
                return self._files.open(self.moving_to, write=False)
            if self.path == path:
                return fd
            # By now another segment may have had that name.
            self._files.close(fd)

    def note_cold_end(self, position: int) -> None:
        """Note where a reader continues that has just been given bytes from the disk."""
        if position < self.size:
            if len(self.cold_ends) >= RESUMES and position not in self.cold_ends:
                del self.cold_ends[next(iter(self.cold_ends))]
            self.cold_ends[position] = None

    def was_read_ahead(self, position: int, end: int) -> bool:
        """Return whether the range, which is in memory, was probably read ahead by the kernel.

        It was if a reader of the disk continues there, and what lies beyond the reach of the
        kernel is not in memory. A range is asked about once. (A read with RWF_NOWAIT could not tell:
        it makes the kernel fetch what is missing.)
        """
        if position not in self.cold_ends:
            return False
        del self.cold_ends[position]
        beyond = end + READ_AHEAD
        return beyond >= self.size or self.mapped_now(1, beyond) is None

    def read_blocking(self, size: int, position: int) -> bytes:
        """Return bytes, from the disk if necessary. Only for the thread that owns the log."""
        return read_fully(self._files, self._descriptors.of(self.path), size, position)

    def use_descriptors(self, descriptors: Descriptors) -> None:
        """Open files through another set from now on; those of the old one are closed."""
        self._descriptors.close_path(self.path)
        self._descriptors = descriptors

    def cut(self, size: int, end_offset: int) -> None:
        """Cut the file to `size` bytes, the batches below `end_offset`, and sync it.

        The indexes are cut in memory; `save_indexes` needs space that a full disk does not have.
        """
        self.truncation_count += 1
        self._descriptors.mmaps.evict(self.path)
        fd = self._descriptors.of(self.path)
        self.checksums.remove()
        self._files.truncate(fd, size)
        self.cut_indexes(end_offset)
        self.checksums.cut(size)
        self.reset(size)
        self._files.fdatasync(fd)

    def cut_indexes(self, end_offset: int) -> None:
        """Drop the entries at and above `end_offset`."""
        self.index.cut_from(end_offset - self.base_offset)
        self.time_index.cut_from(end_offset - self.base_offset)
        self.aborted.cut_from(end_offset)

    def save_indexes(self) -> None:
        """Write what the index files lack; the next flush syncs them."""
        for rank, index in enumerate(self.indexes):
            if index.unsaved() is not None:
                self.checksums.stale.add(rank)
            index.save()
            index.unsynced = True

    def move_aside(self, number: int) -> list[str]:
        """Rename the files of a segment that compaction replaced, and return their new names.

        Reads in progress continue in the renamed file. The `.log` comes last: while it is there, a
        start takes the other files for those of this segment.
        """
        self._descriptors.close_path(self.path)
        aside = []
        parts: tuple[IndexFile | SegmentChecksums, ...] = (*self.indexes, self.checksums)
        for suffix, part in zip(SUFFIXES[1:], parts, strict=True):
            if self._files.exists(part.path):
                path = f"{self.stem}{suffix}.{number}{DELETED}"
                self._files.rename(part.path, path)
                part.path = path
                aside.append(path)
        self.moving_to = f"{self.stem}{LOG}.{number}{DELETED}"
        self._files.rename(self.path, self.moving_to)
        self.path = self.moving_to
        return [*aside, self.path]

    def mark_deleted(self) -> list[str]:
        """Rename the files and return their new names, to be unlinked later."""
        self.truncation_count += 1
        self._descriptors.close_path(self.path)
        gone = []
        for suffix in SUFFIXES:
            path = self.stem + suffix
            if suffix == LOG or self._files.exists(path):
                self._files.rename(path, path + DELETED)
                gone.append(path + DELETED)
        return gone


def _after(buffers: Sequence[Buffer], count: int) -> list[Buffer]:
    """Return the buffers without their first `count` bytes."""
    rest: list[Buffer] = []
    for buffer in buffers:
        if count < len(buffer):
            rest.append(memoryview(buffer)[count:] if count else buffer)
        count = max(0, count - len(buffer))
    return rest
