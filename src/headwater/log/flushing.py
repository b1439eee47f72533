"""One flush of a log: collected on the owner's thread, run on a file thread.

The order matters: first index entries (they can be rebuilt), then the data, then the folder, and
producer snapshots last, because a snapshot shows how far the log was flushed if the checkpoint is
damaged. When `run` returns, the log up to `end_offset` survives a power failure, and the recovery
point may move there. If the log is removed in the meantime, `run` raises LogRemoved.
"""

from typing import TYPE_CHECKING

from headwater.log import aborted_counts, snapshots, truncation_note
from headwater.log.folders import METADATA
from headwater.log.index_file import IndexFile, save_entries
from headwater.log.presence import LogRemoved, Presence
from headwater.log.segment import LOG, Segment
from headwater.seams.files import Files

if TYPE_CHECKING:
    from headwater.log.partition_log import PartitionLog

FEW_PRODUCERS = 64
"""Every flush writes a snapshot of up to this many producers, which shows how far it flushed."""
BYTES_PER_PRODUCER = 256
"""Each producer beyond that must be outweighed by this many new bytes before the next snapshot."""


class FlushWork:
    """One flush of one log."""

    __slots__ = (
        "_aborted", "_checksums", "_directory", "_entries", "_epochs", "_files", "_folders", "_indexes", "_needed",
        "_paths", "_presence", "_save", "_segments", "_snapshots", "decided_end", "end_offset", "first_offset", "syncing", "truncations",
    )  # fmt: skip

    def __init__(self, log: "PartitionLog") -> None:
        """Collect what the log's files lack, skipping segments that an earlier flush saved."""
        self._segments = segments = log.segments
        self._files = segments.files
        self._presence = log.presence
        self._directory = log.directory
        self.end_offset = log.log_end_offset
        self.decided_end = log.producers.undecided_below(self.end_offset)
        self.truncations = log.truncations
        self._entries: list[tuple[IndexFile, int, bytes]] = []
        self._indexes: list[IndexFile] = []
        self._paths: list[str] = []
        # Segments whose checksums are computed, their sizes, and whether they are sealed.
        self._checksums: list[tuple[Segment, int, bool]] = []
        self._folders = [log.directory]
        # Otherwise a full disk does no harm: the next flush writes the rest.
        self.syncing = False
        self._snapshots, log.snapshots = log.snapshots, []
        # A restart may begin its replay here; older snapshots are removed, except those of rolls.
        self._needed = log.checkpointed
        dirty = segments.rank(log.recovery_point)
        first = min(dirty, segments.rank(min(segments.unsaved_from, segments.flushing_from)))
        # The base offset of the first segment that this flush covers.
        self.first_offset = segments.flushing_from = segments[first].base_offset
        for rank in range(first, len(segments)):
            self._add_segment(segments[rank], sync=rank >= dirty)
        segments.unsaved_from = segments.active.base_offset
        self._aborted = segments.aborted_counts.unsaved(
            segments.from_rank(first), (segment.base_offset for segment in segments)
        )
        if log.recovery_point == 0:
            # The first flush of a log also syncs its topic id, its note and its folder.
            self._paths.append(f"{self._directory}/{METADATA}")
            if log.truncation_limit is not None:
                self._paths.append(f"{self._directory}/{truncation_note.FILE_NAME}")
            self._folders.append(self._directory.rpartition("/")[0])
        self._epochs = log.epochs
        worth_saving = log.epochs.worth_saving(log.log_end_offset)
        self._save = log.epochs.capture() if worth_saving else None
        if log.epochs.unsynced or worth_saving:
            self._paths.extend(log.epochs.paths)
            log.epochs.unsynced = False

    def _add_segment(self, segment: Segment, *, sync: bool) -> None:
        """Add the segment's file if it has unflushed data, and its index files.

        The indexes must be synced too: a start trusts a torn entry, and the final entry of a time
        index decides when its segment expires.
        """
        if sync:
            self._paths.append(segment.path)
        for rank, index in enumerate(segment.indexes):
            missing = index.unsaved()
            if missing is not None:
                self._entries.append((index, *missing))
                segment.checksums.stale.add(rank)
            if missing is not None or index.unsynced:
                self._paths.append(index.path)
                self._indexes.append(index)
        sealed = segment is not self._segments.active
        self._checksums.append((segment, segment.size, sealed))

    def run(self) -> None:
        """Write and sync. After an OSError the log must go offline: pages may be lost."""
        for index, start, data in self._entries:
            with self._presence:
                save_entries(self._files, index.path, start, data)
        if self._save is not None:
            self._save.run()
        self.syncing = True
        for path in self._paths:
            self._sync(path)
        for folder in self._folders:
            self._files.sync_dir(folder)
        self.syncing = False
        for segment, size, sealed in self._checksums:
            save_checksums(self._files, segment, size, self._presence, whole=sealed)
        if self._aborted is not None:
            with self._presence:
                aborted_counts.write_counts(self._files, self._directory, self._aborted)
        for stem, states in self._snapshots:
            content = snapshots.encode_states(states)
            with self._presence:
                snapshots.write(self._files, stem, content)
        if self._snapshots:
            with self._presence:
                self._remove_old_snapshots()

    def mark_saved(self) -> None:
        """Mark the index entries as saved. For the owner's thread."""
        for index, start, data in self._entries:
            index.mark_saved(start, len(data))
        for index in self._indexes:
            index.unsynced = False
        if self._aborted is not None:
            self._segments.aborted_counts.mark_saved(self._aborted)
        if self._save is not None and self._save.version == self._epochs.saved:
            self._epochs.unsynced = False

    def _remove_old_snapshots(self) -> None:
        names = self._files.listdir(self._directory)
        bases = {name.removesuffix(LOG) for name in names if name.endswith(LOG)}
        below = [offset for offset in snapshots.offsets_in(names) if offset <= self._needed]
        # A replay begins at the newest snapshot at or below the checkpointed recovery point.
        for offset in below[1:]:
            if f"{offset:020d}" not in bases:
                snapshots.remove(self._files, snapshots.stem(self._directory, offset))

    def _sync(self, path: str) -> None:
        try:
            with self._presence:
                fd = self._files.open(path)
        except LogRemoved:
            raise
        except FileNotFoundError:
            # Retention has dropped the segment in the meantime.
            return
        try:
            self._files.write_back(fd)
            self._files.fdatasync(fd)
        finally:
            self._files.close(fd)


class DataSync:
    """A sync of what was appended to the active segment: one call on a file thread.

    It leaves out everything that a start can do without, as long as the recovery point does not move.
    """

    __slots__ = ("_fd", "_files", "end_offset", "syncing", "truncations")

    def __init__(self, log: "PartitionLog") -> None:
        self._files = log.segments.files
        # Not that of the segment, which may be closed during the sync.
        self._fd = self._files.open(log.segments.active.path)
        self.end_offset = log.log_end_offset
        self.truncations = log.truncations
        self.syncing = True

    def run(self) -> None:
        """Sync, and close the file. After an OSError the log must go offline: pages may be lost."""
        try:
            self._files.fdatasync(self._fd)
        finally:
            self._files.close(self._fd)


def unsynced(log: "PartitionLog") -> DataSync | None:
    """Return the work of a sync: run it on a file thread, then pass it to `mark_synced`."""
    return DataSync(log) if log.synced_end < log.log_end_offset else None


def mark_synced(log: "PartitionLog", work: DataSync) -> None:
    """Advance the end of the data on the disk to where the log ended when `work` was collected."""
    if work.truncations == log.truncations:
        log.synced_end = max(log.synced_end, work.end_offset)


def is_data_enough(log: "PartitionLog") -> bool:
    """Return whether a sync of the active segment's data makes everything appended durable.

    A segment's name and the start of a leader epoch must be on the disk too, which a flush syncs.
    """
    epochs = log.epochs
    return not (
        log.recovery_point <= log.segments.active.base_offset
        or epochs.unsynced
        or epochs.worth_saving(log.log_end_offset)
    )


def save_checksums(
    files: Files, segment: Segment, size: int, presence: Presence, *, whole: bool
) -> None:
    """Compute the checksums of a segment up to `size`, and with `whole` write their file.

    What was just written is read back from the page cache. The folder is not held meanwhile.
    """
    try:
        content = computed_checksums(files, segment, size, presence, whole=whole)
        if content is not None:
            with presence:
                segment.checksums.write(content)
    except LogRemoved:
        raise
    except FileNotFoundError:
        return  # retention has dropped the segment in the meantime


def computed_checksums(
    files: Files, segment: Segment, size: int, presence: Presence, *, whole: bool
) -> bytes | None:
    """Compute the checksums up to `size`; with `whole` return what their file lacks."""
    sums = segment.checksums
    if sums.lacks(size, whole=whole):
        with presence:
            fd = segment.open_for_reading()
        try:
            sums.extend(fd, size, whole=whole)
        finally:
            files.close(fd)
    return sums.content([index.path for index in segment.indexes]) if whole else None


def save_active_checksums(log: "PartitionLog") -> None:
    """Write the checksums of the active segment, at a clean stop."""
    active = log.segments.active
    if active.size:
        save_checksums(log.segments.files, active, active.size, log.presence, whole=True)


def snapshot_due(log: "PartitionLog", *, closing: bool) -> bool:
    """Return whether a flush should write a producer snapshot too."""
    if log.snapshot_offset == log.log_end_offset:
        return False
    base, size = log.snapshot_at
    active = log.segments.active
    since = active.size - (size if base == active.base_offset else 0)
    many = len(log.producers) - FEW_PRODUCERS
    return closing or since >= many * BYTES_PER_PRODUCER
