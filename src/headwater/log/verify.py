"""Checks that a partition's folder is consistent.

Reads every batch of every segment and compares it with the checksums, the offsets, the leader
epochs, both indexes, the aborted transactions and the sequences of the producers. It only reads, so
it may run on a copy, after a load test, or beside a stopped broker.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.log import snapshots
from headwater.log.aborted_index import AbortedIndex
from headwater.log.epochs import EpochCache
from headwater.log.offset_index import OffsetIndex
from headwater.log.segment import ABORTED_INDEX, INDEX, LOG, TIME_INDEX
from headwater.log.time_index import TimeIndex
from headwater.model import NO_EPOCH, NO_SEQUENCE
from headwater.records.batch import (
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    SEQUENCES,
    BatchHeader,
    read_header,
)
from headwater.records.checksum import crc32c
from headwater.seams.files import Files, OsFiles, read_file


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


def verify_log(directory: str, files: Files | None = None, *, gaps: bool = False) -> VerifyResult:
    """Check the partition in `directory`; with `gaps` offsets may be missing, as after compaction."""
    return _Check(files or OsFiles(), directory.rstrip("/"), gaps).run()


class _Check:
    def __init__(self, files: Files, directory: str, gaps: bool) -> None:
        self._files = files
        self._directory = directory
        self._gaps = gaps
        self._next_offset: int | None = None
        self._epoch = -1
        self._epochs = EpochCache(files, directory)
        # Last sequence by (producer id, epoch), and the newest epoch by producer id.
        self._sequences: dict[tuple[int, int], int] = {}
        self._producer_epochs: dict[int, int] = {}
        self._verdict = VerifyResult()

    def run(self) -> VerifyResult:
        self._epochs.load()
        bases = sorted(
            int(name.removesuffix(LOG))
            for name in self._files.listdir(self._directory)
            if name.endswith(LOG) and name.removesuffix(LOG).isdecimal()
        )
        if not bases:
            self._problem("there are no segments")
        for base in bases:
            self._check_segment(base)
        if self._epochs.damaged and self._verdict.batches:
            self._problem("the leader epochs are missing or damaged")
        self._verdict.start_offset = bases[0] if bases else 0
        self._verdict.end_offset = self._next_offset or 0
        self._check_traces(self._verdict.end_offset)
        return self._verdict

    def _check_traces(self, end: int) -> None:
        """Check that snapshots and epochs do not go beyond the end of the log."""
        for offset in snapshots.offsets(self._files, self._directory):
            if offset > end:
                self._problem(f"there is a snapshot at {offset}, but the log ends at {end}")
        if self._epochs.starts and self._epochs.starts[-1] > end:
            self._problem(f"epoch {self._epochs.latest} begins behind the end {end}")

    def _problem(self, text: str) -> None:
        self._verdict.problems.append(text)

    def _check_segment(self, base: int) -> None:
        stem = f"{self._directory}/{base:020d}"
        if self._next_offset is None:
            self._next_offset = base
        if base != self._next_offset and not (self._gaps and base > self._next_offset):
            self._problem(f"{stem}{LOG} begins where offset {self._next_offset} must be")
            self._next_offset = base
        self._verdict.segments += 1
        data = read_file(self._files, stem + LOG)
        self._verdict.size += len(data)
        batches = list(self._check_batches(stem, data))
        if not data:
            return  # a broker does not read the indexes of an empty segment
        self._check_offset_index(stem, base, batches)
        self._check_time_index(stem, base, batches)
        self._check_aborted(stem, base)

    def _check_batches(self, stem: str, data: bytes) -> Iterator[tuple[int, BatchHeader]]:
        view, at = memoryview(data), 0
        while at < len(data):
            header = read_header(data, at) if at + HEADER_SIZE <= len(data) else None
            if (
                header is None
                or header.magic != MAGIC
                or not HEADER_SIZE <= header.size <= len(data) - at
            ):
                self._problem(f"{stem}{LOG}: no whole batch at position {at}")
                return
            if crc32c(view[at + CRC_START : at + header.size]) != header.crc:
                self._problem(f"{stem}{LOG}: wrong checksum at offset {header.base_offset}")
            self._check_place(stem, header)
            self._check_sequence(stem, header)
            self._verdict.batches += 1
            self._verdict.records += header.count
            yield at, header
            at += header.size

    def _check_place(self, stem: str, header: BatchHeader) -> None:
        expected = self._next_offset or 0
        if header.base_offset != expected and not (self._gaps and header.base_offset > expected):
            self._problem(f"{stem}{LOG}: offset {header.base_offset} where {expected} must be")
        if header.leader_epoch < self._epoch:
            self._problem(f"{stem}{LOG}: epoch {header.leader_epoch} after {self._epoch}")
        known = self._epochs.epoch_at(header.base_offset)
        if not self._epochs.damaged and known not in {header.leader_epoch, NO_EPOCH}:
            self._problem(
                f"{stem}{LOG}: epoch {header.leader_epoch} at {header.base_offset}, not {known}"
            )
        self._epoch = max(self._epoch, header.leader_epoch)
        self._next_offset = header.next_offset

    def _check_sequence(self, stem: str, header: BatchHeader) -> None:
        """Check that epochs grow and sequences are in order; a producer may begin with any number.

        Markers and the offsets of groups belong to a producer and have no sequence.
        """
        if header.producer_id < 0:
            return
        where = f"{stem}{LOG}: producer {header.producer_id} at offset {header.base_offset}"
        newest = self._producer_epochs.get(header.producer_id, -1)
        if header.producer_epoch < newest:
            self._problem(f"{where} has epoch {header.producer_epoch} after {newest}")
        self._producer_epochs[header.producer_id] = max(newest, header.producer_epoch)
        if header.base_sequence == NO_SEQUENCE:
            return
        key = (header.producer_id, header.producer_epoch)
        last = None if self._gaps else self._sequences.get(key)
        if last is not None and header.base_sequence != (last + 1) % SEQUENCES:
            self._problem(f"{where} has sequence {header.base_sequence} after {last}")
        self._sequences[key] = header.last_sequence

    def _check_offset_index(
        self, stem: str, base: int, batches: list[tuple[int, BatchHeader]]
    ) -> None:
        """Check that every lookup leads to a batch at or before the one a full scan finds."""
        if not self._files.exists(stem + INDEX):
            return
        index = OffsetIndex(self._files, stem + INDEX)
        ends = {position: header.last_offset - base for position, header in batches}
        for relative, position in OffsetIndex.ENTRY.iter_unpack(index.entries):
            if ends.get(position) != relative:
                self._problem(f"{stem}{INDEX}: entry {relative}:{position} leads to no such batch")

    def _check_time_index(
        self, stem: str, base: int, batches: list[tuple[int, BatchHeader]]
    ) -> None:
        """Check that each entry matches its batch and that no earlier batch is newer."""
        if not self._files.exists(stem + TIME_INDEX):
            return
        newest, seen = -1, {}
        for _, header in batches:
            newest = max(newest, header.max_timestamp)
            seen[header.last_offset - base] = (header.max_timestamp, newest)
        index = TimeIndex(self._files, stem + TIME_INDEX)
        for timestamp, relative in TimeIndex.ENTRY.iter_unpack(index.entries):
            if seen.get(relative) != (timestamp, timestamp):
                self._problem(
                    f"{stem}{TIME_INDEX}: entry {timestamp}:{relative} is not what a scan finds"
                )

    def _check_aborted(self, stem: str, base: int) -> None:
        for aborted in AbortedIndex(self._files, stem + ABORTED_INDEX):
            if not base <= aborted.last_offset < (self._next_offset or 0):
                self._problem(f"{stem}{ABORTED_INDEX}: marker {aborted.last_offset} is not in here")
