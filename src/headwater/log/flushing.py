"""What must reach the disk, gathered on the owner's thread and done on a file thread.

The order matters: index entries and the producer snapshot first (both can be rebuilt), then the
data, then the folder. When `run` returns, the log up to `end_offset` survives a power cut, and the
recovery point may move there. A log that is removed meanwhile ends the work with LogRemoved.
"""

from headwater.log import snapshots
from headwater.log.entries import EntryFile, save_entries
from headwater.log.presence import LogRemoved, Presence
from headwater.log.segment import Segment
from headwater.seams.files import Files


class FlushWork:
    """One flush of one log."""

    __slots__ = (
        "_bases", "_directory", "_entries", "_files", "_folders", "_indexes", "_needed", "_paths",
        "_presence", "_snapshots", "end_offset", "syncing", "truncations",
    )  # fmt: skip

    def __init__(
        self, files: Files, presence: Presence, directory: str, end_offset: int, truncations: int
    ) -> None:
        self._files = files
        self._presence = presence
        self._directory = directory
        self.end_offset = end_offset
        self.truncations = truncations
        self._entries: list[tuple[EntryFile, int, bytes]] = []
        self._indexes: list[EntryFile] = []
        self._paths: list[str] = []
        self._folders = [directory]
        # Until then a full disk costs nothing: what was not written can be written again.
        self.syncing = False
        self._snapshots: list[tuple[str, tuple[bytes, bytes]]] = []
        self._bases: set[int] = set()
        self._needed = 0

    def add_segment(self, segment: Segment, *, sync: bool) -> None:
        """Flush the segment's file if it has something new, and what its indexes lack.

        An entry that a power cut tore would be believed: the final one of a time index decides
        when its segment expires, and nobody looks at those batches again.
        """
        if sync:
            self._paths.append(segment.path)
        for index in (segment.index, segment.time_index, segment.aborted):
            missing = index.unsaved()
            if missing is not None:
                self._entries.append((index, *missing))
            if missing is not None or index.unsynced:
                self._paths.append(index.path)
                self._indexes.append(index)

    def add_file(self, path: str) -> None:
        """Flush a file that is written already."""
        self._paths.append(path)

    def add_folder(self, path: str) -> None:
        """Flush the names of another folder too."""
        self._folders.append(path)

    def add_snapshot(self, stem: str, content: tuple[bytes, bytes]) -> None:
        """Write the state of the producers."""
        self._snapshots.append((stem, content))

    def keep_snapshots(self, bases: set[int], needed: int) -> None:
        """Remove all snapshots but those at segment bases and those a restart may begin with."""
        self._bases = bases
        self._needed = needed

    def run(self) -> None:
        """Do it. OSError means that the log must go offline: the kernel drops what it cannot write."""
        for index, start, data in self._entries:
            with self._presence:
                save_entries(self._files, index.path, start, data)
        for stem, content in self._snapshots:
            with self._presence:
                snapshots.write(self._files, stem, content)
        self.syncing = True
        for path in self._paths:
            self._sync(path)
        for folder in self._folders:
            self._files.sync_dir(folder)
        with self._presence:
            self._remove_old_snapshots()

    def settle(self) -> None:
        """Back on the owner's thread: the indexes know what is saved."""
        for index, start, data in self._entries:
            index.mark_saved(start, len(data))
        for index in self._indexes:
            index.unsynced = False

    def _remove_old_snapshots(self) -> None:
        offsets = snapshots.offsets(self._files, self._directory)
        below = [offset for offset in offsets if offset <= self._needed]
        # The newest at or below the checkpointed recovery point is where a replay begins.
        for offset in below[1:]:
            if offset not in self._bases:
                snapshots.remove(self._files, f"{self._directory}/{offset:020d}")

    def _sync(self, path: str) -> None:
        try:
            with self._presence:
                fd = self._files.open(path)
        except LogRemoved:
            raise
        except FileNotFoundError:
            # Retention took the segment away meanwhile; what is gone needs no flush.
            return
        try:
            self._files.fdatasync(fd)
        finally:
            self._files.close(fd)
