"""Renames the folder of a log that is no longer served, on a file thread.

The log is dropped at once. Its name stays taken until the rename is synced: a power failure must
not bring the old folder back in place of a new one. After a move between log dirs, two folders may have
the name: that of the moved log, and that of the former one, which an earlier retirement renames first.
"""

import threading
from collections.abc import Sequence

from headwater.log.log_dir import LogDir
from headwater.log.partition_log import PartitionLog
from headwater.seams.files import Files


class Retirement:
    """The pending rename of one folder. Every method is safe on any thread."""

    __slots__ = (
        "_descriptors", "_directory", "_earlier", "_files", "_lock", "_log_dir", "_presence", "_renamed",
        "path",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        log_dir: LogDir,
        retired: PartitionLog,
        new_name: str,
        descriptors: Sequence[int],
        earlier: "Retirement | None" = None,
    ) -> None:
        self._files = files
        self._log_dir = log_dir
        self._directory = retired.directory
        self._presence = retired.presence
        # The files of the log that were open.
        self._descriptors = list(descriptors)
        # Of another folder with the same name; None if there is none.
        self._earlier = earlier
        self._lock = threading.Lock()
        self._renamed = False
        # The new path.
        self.path = log_dir.join(new_name)

    def rename(self) -> None:
        """Rename the folder, once; an OSError leaves it unchanged."""
        with self._lock:
            if self._renamed:
                return
            if self._earlier is not None:
                self._earlier.free_name()
                self._earlier = None
            while self._descriptors:
                self._files.close(self._descriptors.pop())
            self._presence.wait_unused()
            self._files.rename(self._directory, self.path)
            self._log_dir.note_rename()
            self._renamed = True

    def free_name(self) -> None:
        """Rename the folder and sync the rename: the old name may be used again."""
        self.rename()
        self._log_dir.sync_renames()
