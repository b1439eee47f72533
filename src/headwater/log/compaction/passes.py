"""One pass over a log: builds the key map from its dirty part, then rewrites it from its start.

A pass reads sealed segments only, which never change. It maps the keys of the dirty part, as many as
the map has room for, and then cleans everything from the start of the log to the last offset that it
mapped. What did not fit is left to the next pass. Several small segments become one. The order
matters: older values go before the tombstone that deleted them, records before their marker.

The new segments are `.cleaned` files, synced when `CleaningPass.run` yields them. A file that a crash
leaves behind is removed at the next start. Nothing here changes the log itself.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from headwater.errors import KafkaError
from headwater.log.aborted_index import AbortedIndex, AbortedTransaction
from headwater.log.compaction.cleaned_batches import BatchCleaner, CleanCounts, uncompressed
from headwater.log.compaction.cleaned_transactions import CleanedTransactions
from headwater.log.compaction.jobs import CleanedGroup, CleaningJob, SourceSegment
from headwater.log.compaction.key_map import bytes_per_key, make_key_map
from headwater.log.descriptors import Descriptors
from headwater.log.flushing import save_checksums
from headwater.log.offset_index import MAX_RELATIVE_OFFSET
from headwater.log.presence import Presence
from headwater.log.segment import (
    ABORTED_INDEX,
    INDEX,
    LOG,
    SUFFIXES,
    TIME_INDEX,
    DamagedSegment,
    Segment,
    Staged,
)
from headwater.log.segment_checksums import CHECKSUMS, SegmentChecksums, read_checked
from headwater.records.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    RawHeader,
)
from headwater.records.checksum import crc32c
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    CRC,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAGIC_BYTE,
    MAX_TIMESTAMP,
    RECORD_COUNT,
)
from headwater.seams.files import Buffer, Files

if TYPE_CHECKING:
    from headwater.log.compaction.pure_key_map import KeyMap

MOST_SEGMENTS = 32
"""How many segments become one at most: the swap renames the files of all of them at once."""
LEAST_PIECE = 64 << 10

OnBytes = Callable[[int], None]
"""Called with the number of bytes read or written; it waits if that was too fast."""


class CleaningPass:
    """One pass over a log."""

    def __init__(self, files: Files, job: CleaningJob, on_bytes: OnBytes = lambda _: None) -> None:
        self._files = files
        self._job = job
        self._on_bytes = on_bytes
        # The first offset that the pass does not clean.
        self.cleaned_to = job.first_dirty
        self.counts = CleanCounts()
        self.keys = 0
        self._checksums: dict[int, SegmentChecksums] = {}

    def run(self) -> Iterator[CleanedGroup]:
        """Clean the log, and yield each new segment once its files are synced.

        Raises DamagedSegment or KafkaError if something in the log cannot be read, OSError if the
        disk fails.
        """
        job = self._job
        aborted = self._aborted_transactions()
        slots = max(1, job.map_bytes // bytes_per_key)
        # A record needs one slot at most: small logs need small maps.
        dirty = int((job.end_offset - job.first_dirty) / min(job.load_factor, 0.5)) + 1
        keys = make_key_map(min(slots, dirty), job.load_factor, job.secret)
        # The markers below the dirty part are not read: their transactions must not begin again.
        undecided = [row for row in aborted if row.last_offset >= job.first_dirty]
        self.cleaned_to = self._map_keys(keys, CleanedTransactions(undecided))
        self.keys = len(keys)
        cleaner = BatchCleaner(
            keys,
            self.cleaned_to - 1,
            CleanedTransactions(aborted),
            job.producers,
            job.now_ms,
            job.delete_retention_ms,
        )
        self.counts = cleaner.counts
        for group in self._groups():
            size = self._clean_group(group, cleaner)
            if size is not None:
                bases = [source.base_offset for source in group]
                yield CleanedGroup(bases, size, job.suffix)

    # -- the key map

    def _map_keys(self, keys: "KeyMap", transactions: CleanedTransactions) -> int:
        """Map the dirty part; return the first offset that is not mapped."""
        job = self._job
        for source, end in self._with_ends():
            if end <= job.first_dirty:
                continue
            for header, batch in self._batches(source):
                if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] < job.first_dirty:
                    continue
                if header[ATTRIBUTES] & CONTROL:
                    transactions.is_over(header, batch)
                elif not transactions.is_aborted(header) and header[RECORD_COUNT]:
                    full_at = keys.add_records(
                        uncompressed(header, batch),
                        header[RECORD_COUNT],
                        header[BASE_OFFSET],
                        job.first_dirty,
                    )
                    if full_at >= 0:
                        return full_at
        return job.end_offset

    def _aborted_transactions(self) -> list[AbortedTransaction]:
        found = list(self._job.later_aborted)
        for source in self._job.segments:
            path = self._stem(source.base_offset) + ABORTED_INDEX
            index = AbortedIndex(self._files, path, checksums=self._checksums_of(source))
            found += index
            if index.damaged:
                raise DamagedSegment(f"{index.path} is damaged")
        return found

    # -- the new segments

    def _groups(self) -> Iterator[list[SourceSegment]]:
        """Yield the segments to clean, those together that fit into one."""
        group: list[SourceSegment] = []
        sizes = [0, 0, 0]
        for source, end in self._with_ends():
            if source.base_offset >= self.cleaned_to:
                break
            more = [source.size, *self._index_sizes(source.base_offset)]
            total = [old + new for old, new in zip(sizes, more, strict=True)]
            if group and not self._fits(group, end, total):
                yield group
                group, total = [], more
            group.append(source)
            sizes = total
        if group:
            yield group

    def _fits(self, group: list[SourceSegment], end: int, total: list[int]) -> bool:
        return (
            len(group) < MOST_SEGMENTS
            and total[0] <= self._job.segment_bytes
            and max(total[1:]) <= self._job.segment_index_bytes
            and end - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
        )

    def _index_sizes(self, base_offset: int) -> list[int]:
        stem, sizes = self._stem(base_offset), [0, 0]
        for at, suffix in enumerate((INDEX, TIME_INDEX)):
            with suppress(FileNotFoundError):
                sizes[at] = self._files.path_size(stem + suffix)
        return sizes

    def _clean_group(self, group: list[SourceSegment], cleaner: BatchCleaner) -> int | None:
        """Write the new segment of a group and return its size; None if nothing changes."""
        descriptors = Descriptors(self._files, 4)
        stem = self._stem(group[0].base_offset)
        writer = _CleanedWriter(self._files, descriptors, self._job, group[0].base_offset)
        written = False
        try:
            writer.write(self._cleaned_batches(group, cleaner), self._on_bytes)
            kept = cleaner.transactions.kept
            cleaner.transactions.kept = []
            if len(group) > 1 or writer.changed or len(kept) != self._aborted_count(stem):
                writer.finish(kept)
                written = writer.size > 0
        finally:
            descriptors.close()
            if not written:
                _remove(self._files, stem, self._job.suffix)
        return writer.size if written else None

    def _cleaned_batches(
        self, group: list[SourceSegment], cleaner: BatchCleaner
    ) -> Iterator[tuple[Buffer, Buffer | None]]:
        """Yield each batch of the group and what remains of it."""
        filled = [source for source in group if source.size]
        for source in filled:
            left = source.size
            for header, batch in self._batches(source):
                left -= len(batch)
                is_final = source is filled[-1] and not left
                yield batch, cleaner.clean(header, batch, is_final=is_final)

    def _aborted_count(self, stem: str) -> int:
        return AbortedIndex(self._files, stem + ABORTED_INDEX).count

    # -- reading

    def _with_ends(self) -> Iterable[tuple[SourceSegment, int]]:
        sources = self._job.segments
        ends = [source.base_offset for source in sources[1:]]
        return zip(sources, [*ends, self._job.end_offset], strict=True)

    def _batches(self, source: SourceSegment) -> Iterator[tuple[RawHeader, memoryview]]:
        """Yield header and bytes of every batch of a segment, after checking each."""
        path = self._stem(source.base_offset) + LOG
        fd = self._files.open(path, write=False)
        position, wanted = 0, max(self._job.piece_bytes, LEAST_PIECE)
        checksums = self._checksums_of(source)
        try:
            while position < source.size:
                most = min(wanted, source.size - position)
                piece = read_checked(self._files, fd, checksums, path, most, position)
                self._on_bytes(len(piece))
                at = 0
                view = memoryview(piece)
                while at + HEADER_SIZE <= len(piece):
                    header: RawHeader = HEADER.unpack_from(piece, at)
                    size = header[LENGTH] + OVERHEAD
                    if header[MAGIC_BYTE] != MAGIC or size < HEADER_SIZE:
                        raise DamagedSegment(f"no batch at {position + at} of {path}")
                    if at + size > len(piece):
                        break
                    batch = view[at : at + size]
                    if crc32c(batch[CRC_START:]) != header[CRC]:
                        raise DamagedSegment(
                            f"wrong checksum at offset {header[BASE_OFFSET]} of {path}"
                        )
                    yield header, batch
                    at += size
                if not at:
                    if position + len(piece) >= source.size or len(piece) < wanted:
                        raise DamagedSegment(f"{path} ends inside a batch at {position}")
                    # One batch is larger than a piece.
                    wanted = max(2 * wanted, HEADER.unpack_from(piece)[LENGTH] + OVERHEAD)
                position += at
        except KafkaError as unreadable:
            raise DamagedSegment(f"{path} at {position}: {unreadable.message}") from unreadable
        finally:
            self._files.close(fd)

    def _checksums_of(self, source: SourceSegment) -> SegmentChecksums:
        found = self._checksums.get(source.base_offset)
        if found is None:
            path = self._stem(source.base_offset) + CHECKSUMS
            found = SegmentChecksums(self._files, path, source.size)
            self._checksums[source.base_offset] = found
        return found

    def _stem(self, base_offset: int) -> str:
        return f"{self._job.directory}/{base_offset:020d}"


class _CleanedWriter:
    """Writes one new segment."""

    def __init__(
        self, files: Files, descriptors: Descriptors, job: CleaningJob, base_offset: int
    ) -> None:
        self._files = files
        self._directory = job.directory
        self._interval = job.index_interval_bytes
        self._piece_bytes = max(job.piece_bytes, LEAST_PIECE)
        self._segment = Segment.create(
            files, descriptors, job.directory, base_offset, job.now_ms, suffix=job.suffix
        )
        self._descriptors = descriptors
        # Whether a batch differs from what it was, or is gone.
        self.changed = False

    @property
    def size(self) -> int:
        return self._segment.size

    def write(self, batches: Iterable[tuple[Buffer, Buffer | None]], on_bytes: OnBytes) -> None:
        """Write what remains of the batches, some at a time."""
        buffers: list[Buffer] = []
        rows: list[Staged] = []
        total = 0
        for batch, kept in batches:
            self.changed |= kept is not batch
            if kept is None:
                continue
            header: RawHeader = HEADER.unpack_from(kept)
            last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            buffers.append(kept)
            rows.append((last, len(kept), header[MAX_TIMESTAMP]))
            total += len(kept)
            if total >= self._piece_bytes:
                self._append(buffers, rows, total, on_bytes)
                buffers, rows, total = [], [], 0
        if rows:
            self._append(buffers, rows, total, on_bytes)

    def _append(
        self, buffers: list[Buffer], rows: list[Staged], total: int, on_bytes: OnBytes
    ) -> None:
        self._segment.append(buffers, rows, total, self._interval)
        on_bytes(total)

    def finish(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Seal the segment and sync all of its files."""
        segment = self._segment
        for row in sorted(aborted, key=lambda row: row.last_offset):
            segment.aborted.append(row)
        segment.seal()
        paths = [segment.path, segment.checksums.path]
        for index in segment.indexes:
            if index is not segment.aborted or index.count:
                index.save()
                paths.append(index.path)
        save_checksums(self._files, segment, segment.size, Presence(), whole=True)
        for path in paths:
            self._files.fdatasync(self._descriptors.of(path))
        self._files.sync_dir(self._directory)


def _remove(files: Files, stem: str, suffix: str) -> None:
    """Remove the files of a new segment that is not needed."""
    for part in SUFFIXES:
        with suppress(FileNotFoundError):
            files.unlink(stem + part + suffix)
