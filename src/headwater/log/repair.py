"""Rebuilds what follows from a log's batches: indexes, checksums, leader epochs; removes damaged snapshots.

The batches themselves are never changed. A segment whose batches are damaged is left alone: its
checksums and indexes are evidence. No broker may run on the folder meanwhile.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from headwater.log import snapshots
from headwater.log.batch_scan import headers
from headwater.log.descriptors import Descriptors
from headwater.log.epochs import EpochCache
from headwater.log.flushing import save_checksums
from headwater.log.index_rebuild import rebuild_aborted, rebuild_indexes
from headwater.log.log_segments import LogSegments
from headwater.log.presence import Presence
from headwater.log.segment import LOG, Segment
from headwater.log.settings import LogSettings
from headwater.log.verify import VerifyResult, segments_in, verify_log
from headwater.model import TopicPartition
from headwater.records.header_fields import BASE_OFFSET, LEADER_EPOCH
from headwater.seams.files import Files

FILES_OPEN = 8


class RepairStep(NamedTuple):
    """One thing to be done."""

    text: str
    run: Callable[[], None]


def repairs(files: Files, directory: str, *, gaps: bool) -> tuple[VerifyResult, list[RepairStep]]:
    """Check a partition's folder; return the result and the steps of a repair, none of them taken."""
    verdict = verify_log(directory, files, gaps=gaps)
    return verdict, list(_Repair(files, directory.rstrip("/"), verdict).steps())


class _Repair:
    def __init__(self, files: Files, directory: str, verdict: VerifyResult) -> None:
        self._files = files
        self._directory = directory
        self._verdict = verdict
        descriptors = Descriptors(files, FILES_OPEN)
        name = TopicPartition(directory.rpartition("/")[2], 0)
        self._segments = LogSegments(files, descriptors, directory, name, LogSettings())
        for base in segments_in(files, directory):
            size = files.path_size(f"{directory}/{base:020d}{LOG}")
            self._segments.adopt(Segment(files, descriptors, directory, base, size))

    def steps(self) -> Iterator[RepairStep]:
        """Yield what a repair does."""
        for segment in self._segments:
            if segment.size and segment.base_offset not in self._verdict.damaged_segments:
                yield from self._of_segment(segment)
        for offset in snapshots.offsets(self._files, self._directory):
            stem = snapshots.stem(self._directory, offset)
            if stem + snapshots.SNAPSHOT in self._verdict.rebuildable:
                yield RepairStep(
                    f"remove {stem}{snapshots.SNAPSHOT}; a start reads the log instead",
                    partial(snapshots.remove, self._files, stem),
                )
        epochs = EpochCache(self._files, self._directory)
        if epochs.path in self._verdict.rebuildable and not self._verdict.damaged_segments:
            yield RepairStep(
                f"rebuild the leader epochs of {self._directory}",
                partial(self._rebuild_epochs, epochs),
            )

    def _of_segment(self, segment: Segment) -> Iterator[RepairStep]:
        checksums = segment.checksums.path
        parts = {*(index.path for index in segment.indexes), checksums}
        if not parts.isdisjoint(self._verdict.rebuildable):
            yield RepairStep(
                f"rebuild the indexes and checksums of {segment.path}",
                partial(self._rebuild, segment),
            )
        elif segment is not self._segments.active and not self._files.exists(checksums):
            yield RepairStep(f"write {checksums}", partial(self._write_checksums, segment))

    def _rebuild(self, segment: Segment) -> None:
        segment.checksums.forget()
        rebuild_indexes(segment, self._segments.settings.index_interval_bytes)
        rebuild_aborted(self._segments, segment)
        segment.save_indexes()
        if segment is not self._segments.active:
            self._write_checksums(segment)

    def _write_checksums(self, segment: Segment) -> None:
        segment.checksums.begin(indexes=True)
        save_checksums(self._files, segment, segment.size, Presence(), whole=True)

    def _rebuild_epochs(self, epochs: EpochCache) -> None:
        for segment in self._segments:
            for _, header in headers(segment):
                epochs.assign(header[LEADER_EPOCH], header[BASE_OFFSET])
        epochs.save(sync=True)
