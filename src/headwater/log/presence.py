"""Whether a log still owns its folder.

Names of partitions are reused: after a deletion the same path may belong to a new log. A flush on a
file thread opens files by name, so it enters the presence of its log each time and gives up once
the log is removed. The file thread that renames the folder waits until no thread is inside; the
loop never waits.
"""

import errno
import threading
from types import TracebackType


class LogRemoved(FileNotFoundError):
    """The log was deleted or set aside: its folder was renamed."""


class Presence:
    """Enter it to use names in the folder; LogRemoved if they may belong to another log."""

    __slots__ = ("_lock", "removed")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.removed = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self.removed:
            self._lock.release()
            raise LogRemoved(errno.ENOENT, "the log was removed")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def end(self) -> None:
        """End the log's use of its folder: entering raises LogRemoved from now on."""
        self.removed = True

    def wait_unused(self) -> None:
        """Wait until no thread is inside; then the folder may be renamed. For file threads."""
        with self._lock:
            pass
