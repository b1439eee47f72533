"""Checks that a partition's folder is consistent, and says what can be rebuilt.

Reads every batch of every segment and compares it with the checksums, the offsets, the leader
epochs, the indexes, the aborted transactions and the sequences of the producers. A quick check
compares a segment that has a file of checksums with those only. It only reads, so it may run on a
copy, after a load test, or beside a stopped broker.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.log.aborted_index import AbortedIndex
from headwater.log.epochs import EpochCache
from headwater.log.file_names import offsets_in
from headwater.log.offset_index import OffsetIndex
from headwater.log.segment import ABORTED_INDEX, INDEX, LOG, TIME_INDEX
from headwater.log.segment_checksums import (
    CHECKSUMS,
    CHUNK,
    DamagedChecksums,
    SegmentChecksums,
    decode,
)
from headwater.log.time_index import TimeIndex
from headwater.log.verify_notes import beside_the_log, snapshot_problems
from headwater.model import NO_EPOCH, NO_SEQUENCE
from headwater.records.batch import CRC_START, HEADER, HEADER_SIZE, MAGIC, OVERHEAD, SEQUENCES
from headwater.records.checksum import crc32c
from headwater.records.codec import sound_run
from headwater.records.codec.pure_runs import LAST_SEQUENCE
from headwater.seams.files import Files, OsFiles, read_file, read_fully

PIECE = 8 * CHUNK
NEVER = (1 << 63) - 1
NO_LAST = LAST_SEQUENCE
NO_PRODUCER = -1
"""Epoch -1 and NO_LAST."""


@dataclass(slots=True)
class VerifyResult:
    """The result of a check; without problems the log is intact."""

    start_offset: int = 0
    end_offset: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)
    repairable: list[str] = field(default_factory=list)
    """Those of the problems that `headwater log repair` removes."""
    rebuildable: set[str] = field(default_factory=set)
    """Paths of the damaged files that a repair rebuilds or removes."""
    damaged_segments: list[int] = field(default_factory=list)
    """Base offsets of segments whose batches are damaged."""


def verify_log(
    directory: str, files: Files | None = None, *, gaps: bool = False, quick: bool = False
) -> VerifyResult:
    """Check the partition in `directory`; with `gaps` offsets may be missing, as after compaction."""
    return _Check(files or OsFiles(), directory.rstrip("/"), gaps, quick).run()


def segments_in(files: Files, directory: str) -> list[int]:
    """Return the base offsets of the segments in a folder."""
    return offsets_in(files.listdir(directory), LOG)


class _Check:
    def __init__(self, files: Files, directory: str, gaps: bool, quick: bool) -> None:
        self._files = files
        self._directory = directory
        self._gaps = gaps
        self._quick = quick
        self._next_offset: int | None = None
        self._epoch = -1
        self._epochs = EpochCache(files, directory)
        # Where the epoch after this one begins.
        self._epoch_end = -1
        # Newest epoch and last sequence of each producer, as `sound_run` reads them.
        self._producers: dict[int, int] = {}
        self._verdict = VerifyResult()
        # Of the segment that is being checked, and the position of its next batch.
        self._base, self._stem, self._at = 0, "", 0

    def run(self) -> VerifyResult:
        self._epochs.load()
        bases = segments_in(self._files, self._directory)
        if not bases:
            self._problem("there are no segments")
        for base in bases:
            self._check_segment(base, is_last=base == bases[-1])
        verdict = self._verdict
        if self._epochs.damaged and verdict.size:
            self._problem("the leader epochs are missing or damaged", repair=self._epochs.path)
        verdict.start_offset = bases[0] if bases else 0
        verdict.end_offset = self._next_offset or 0
        for text, path in snapshot_problems(self._files, self._directory, verdict.end_offset):
            self._problem(text, repair=path)
        if self._epochs.starts and self._epochs.starts[-1] > verdict.end_offset:
            end = verdict.end_offset
            self._problem(f"epoch {self._epochs.latest} begins behind the end {end}")
        for text in beside_the_log(self._files, self._directory):
            self._problem(text)
        return verdict

    def _problem(self, text: str, *, repair: str = "") -> None:
        """Note a problem; `repair` is the path of the file that a repair rebuilds or removes."""
        self._verdict.problems.append(text)
        if repair:
            self._verdict.repairable.append(text)
            self._verdict.rebuildable.add(repair)

    def _damaged(self, text: str) -> None:
        self._problem(f"{self._stem}{LOG}: {text}")
        if self._base not in self._verdict.damaged_segments[-1:]:
            self._verdict.damaged_segments.append(self._base)

    # -- segments

    def _check_segment(self, base: int, *, is_last: bool) -> None:
        end = base if self._next_offset is None else self._next_offset
        if base < end:
            # No CRC covers the base offset of a batch; that of a segment is also its name.
            self._damaged(f"it ends at offset {end}, but the next segment begins at {base}")
        self._base, self._stem = base, f"{self._directory}/{base:020d}"
        if base > end and not self._gaps:
            self._problem(f"{self._stem}{LOG} begins where offset {end} must be")
        self._next_offset = base
        self._verdict.segments += 1
        size = self._files.path_size(self._stem + LOG)
        self._verdict.size += size
        checksums = self._checksums(size, is_last=is_last)
        fd = self._files.open(self._stem + LOG, write=False)
        try:
            if self._quick and checksums is not None and checksums.covered == size:
                self._compare_all(fd, size, checksums)
            else:
                self._check_batches(fd, size, checksums)
        finally:
            self._files.close(fd)

    def _checksums(self, size: int, *, is_last: bool) -> SegmentChecksums | None:
        path = self._stem + CHECKSUMS
        if not self._files.exists(path):
            return None
        try:
            covered, indexes, sums = decode(read_file(self._files, path))
            if covered != size and not (is_last and covered < size):
                raise DamagedChecksums(f"it is for {covered} bytes, the segment has {size}")
        except DamagedChecksums as damage:
            self._problem(f"{path}: {damage}", repair="" if is_last else path)
            return None
        known = SegmentChecksums(self._files, path, covered)
        known.sums, known.indexes = sums, indexes
        return known

    def _compare_all(self, fd: int, size: int, checksums: SegmentChecksums) -> None:
        """Compare a segment with its checksums; its last batch tells where it ends."""
        for at in range(0, size, PIECE):
            data = read_fully(self._files, fd, min(PIECE, size - at), at)
            self._compare(checksums, memoryview(data), at)
        for index, suffix in ((OffsetIndex, INDEX), (TimeIndex, TIME_INDEX)):
            self._load_index(index(self._files, self._stem + suffix, checksums=checksums))
        self._load_index(self._aborted(checksums))
        self._next_offset = self._end_of_last(fd, size)

    def _compare(self, checksums: SegmentChecksums, data: memoryview, at: int) -> None:
        wrong = checksums.damage(data[: max(0, checksums.covered - at)], at)
        if wrong is not None:
            self._damaged(f"bytes {wrong} to {wrong + CHUNK - 1} differ from their checksum")

    def _end_of_last(self, fd: int, size: int) -> int:
        index = OffsetIndex(self._files, self._stem + INDEX)
        _, at = index.last()
        end = self._base
        while at + HEADER_SIZE <= size:
            header = HEADER.unpack(read_fully(self._files, fd, HEADER_SIZE, at))
            if header[3] != MAGIC or header[1] < HEADER_SIZE - OVERHEAD:
                self._damaged(f"no whole batch at position {at}")
                break
            end = header[0] + header[6] + 1
            at += header[1] + OVERHEAD
        return end

    def _check_batches(self, fd: int, size: int, checksums: SegmentChecksums | None) -> None:
        entries = _Entries(*self._index_entries(checksums if size else None), self._base)
        for piece in self._pieces(fd, size, checksums):
            self._check_piece(*piece, entries)
        for position, relative in entries.offsets.items():
            self._problem(
                f"{self._stem}{INDEX}: entry {relative}:{position} leads to no such batch",
                repair=self._stem + INDEX,
            )
        for relative, timestamp in entries.times.items():
            self._problem(
                f"{self._stem}{TIME_INDEX}: entry {timestamp}:{relative} is not what a scan finds",
                repair=self._stem + TIME_INDEX,
            )
        if size:
            self._check_aborted(checksums)

    def _pieces(
        self, fd: int, size: int, checksums: SegmentChecksums | None
    ) -> Iterator[tuple[memoryview, int, int]]:
        """Yield bytes, their position and where in them the next batch begins, up to a broken one."""
        most, compared = PIECE, 0
        self._at = 0
        while self._at < size:
            at, start = self._at, self._at // CHUNK * CHUNK
            data = memoryview(read_fully(self._files, fd, min(most, size - start), start))
            if checksums is not None and compared < start + len(data):
                self._compare(checksums, data[max(0, compared - start) :], max(compared, start))
                compared = start + len(data) // CHUNK * CHUNK
            yield data, start, at - start
            if self._at == at:
                if start + len(data) >= size:
                    self._damaged(f"no whole batch at position {at}")
                    return
                most *= 4  # one batch is larger than a piece
        if self._at > size:
            self._damaged("the last batch is cut off")

    def _check_piece(self, data: memoryview, start: int, at: int, entries: "_Entries") -> None:
        """Check whole batches: those that an index entry or an epoch names singly, others in runs."""
        unpack, end, gaps, verdict = HEADER.unpack_from, len(data), self._gaps, self._verdict
        expected = self._next_offset or 0
        while at + HEADER_SIZE <= end:
            reach = min(entries.reach, self._epoch_end)
            at, expected, batches, records, newest = sound_run(
                data, at, entries.stop - start, expected, reach, self._epoch, self._producers, gaps
            )
            entries.newest = max(entries.newest, newest)
            verdict.batches += batches
            verdict.records += records
            if at + HEADER_SIZE > end:
                break
            header = unpack(data, at)
            base, length, epoch, magic, crc, _, delta, _, timestamp, producer, _, _, count = header
            stop = at + length + OVERHEAD
            if magic != MAGIC or length < HEADER_SIZE - OVERHEAD or stop > end:
                break
            if crc32c(data[at + CRC_START : stop]) != crc:
                self._damaged(f"wrong checksum at offset {base}")
            if base != expected and not (gaps and base > expected):
                self._damaged(f"offset {base} where {expected} must be")
            if epoch != self._epoch or base >= self._epoch_end:
                self._check_epoch(base, epoch)
            if producer >= 0:
                self._check_sequence(header)
            entries.found(start + at, base + delta, timestamp)
            expected = base + delta + 1
            verdict.batches += 1
            verdict.records += count
            at = stop
        self._at = start + at
        self._next_offset = expected

    def _check_epoch(self, base: int, epoch: int) -> None:
        if epoch < self._epoch:
            self._damaged(f"epoch {epoch} after {self._epoch}")
        known = self._epochs.epoch_at(base)
        if not self._epochs.damaged and known not in {epoch, NO_EPOCH}:
            self._damaged(f"epoch {epoch} at {base}, not {known}")
        self._epoch = max(self._epoch, epoch)
        rank = bisect_right(self._epochs.starts, base)
        self._epoch_end = self._epochs.starts[rank] if rank < len(self._epochs.starts) else NEVER

    def _check_sequence(self, header: tuple[int, ...]) -> None:
        """Check that epochs grow and sequences are in order; a producer may begin with any number.

        Markers and the offsets of groups belong to a producer and have no sequence.
        """
        base, _, _, _, _, _, delta, _, _, producer, epoch, sequence, _ = header
        known = self._producers.get(producer, NO_PRODUCER)
        newest, last = known >> 32, known & LAST_SEQUENCE
        if epoch < newest:
            self._damaged(f"producer {producer} at offset {base} has epoch {epoch} after {newest}")
        if epoch != newest:
            last = NO_LAST
        if sequence == NO_SEQUENCE:
            self._producers[producer] = max(newest, epoch) << 32 | last
            return
        if last != NO_LAST and not self._gaps and sequence != (last + 1) % SEQUENCES:
            self._damaged(
                f"producer {producer} at offset {base} has sequence {sequence} after {last}"
            )
        self._producers[producer] = max(newest, epoch) << 32 | (sequence + delta) % SEQUENCES

    # -- indexes

    def _index_entries(
        self, checksums: SegmentChecksums | None
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return the entries: relative offset by position, and timestamp by relative offset."""
        offsets = OffsetIndex(self._files, self._stem + INDEX, checksums=checksums)
        times = TimeIndex(self._files, self._stem + TIME_INDEX, checksums=checksums)
        if not self._files.path_size(self._stem + LOG):
            return {}, {}  # a broker does not read the indexes of an empty segment
        self._load_index(offsets)
        self._load_index(times)
        return (
            {position: last for last, position in OffsetIndex.ENTRY.iter_unpack(offsets.entries)},
            {last: timestamp for timestamp, last in TimeIndex.ENTRY.iter_unpack(times.entries)},
        )

    def _load_index(self, index: OffsetIndex | TimeIndex | AbortedIndex) -> None:
        index.load()
        if index.damaged and self._files.exists(index.path):
            self._problem(f"{index.path} is damaged", repair=index.path)

    def _aborted(self, checksums: SegmentChecksums | None) -> AbortedIndex:
        return AbortedIndex(self._files, self._stem + ABORTED_INDEX, checksums=checksums)

    def _check_aborted(self, checksums: SegmentChecksums | None) -> None:
        index = self._aborted(checksums)
        index.load()
        if index.damaged:
            self._problem(f"{index.path} is damaged or missing", repair=index.path)
        for aborted in index:
            if not self._base <= aborted.last_offset < (self._next_offset or 0):
                self._problem(
                    f"{index.path}: marker {aborted.last_offset} is not in here", repair=index.path
                )


class _Entries:
    """The index entries of a segment that no batch has confirmed yet."""

    def __init__(self, offsets: dict[int, int], times: dict[int, int], base: int) -> None:
        # Relative offset by position, and timestamp by relative offset.
        self.offsets = offsets
        self.times = times
        self._base = base
        self.newest = -1
        # What is still to come, the next one last.
        self._places = sorted(offsets, reverse=True)
        self._lasts = [base + last for last in sorted(times, reverse=True)]
        # The position and the last offset of the next batches that entries name.
        self.stop = self._places[-1] if self._places else NEVER
        self.reach = self._lasts[-1] if self._lasts else NEVER

    def found(self, place: int, last_offset: int, timestamp: int) -> None:
        """Confirm the entries of the batch at position `place`."""
        last = last_offset - self._base
        self.newest = max(self.newest, timestamp)
        if self.offsets.get(place) == last:
            del self.offsets[place]
        if self.times.get(last) == timestamp == self.newest:
            del self.times[last]
        while self.stop <= place:
            self._places.pop()
            self.stop = self._places[-1] if self._places else NEVER
        while self.reach <= last_offset:
            self._lasts.pop()
            self.reach = self._lasts[-1] if self._lasts else NEVER
