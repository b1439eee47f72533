"""Disk space reserved for a start on a full disk.

A broker that starts must write a little: its registration, the controller's epoch. A file of zeros beside
the metadata store reserves that space. A start that finds the disk full deletes the file, so that the
broker can serve reads and retention can free space; later the file is created again.
"""

import logging

from headwater.seams.files import Files, replace_file

log = logging.getLogger("headwater.server")

FILE_NAME = "reserve"
SIZE = 1 << 20
ROOM_TO_MAKE = 16 * SIZE
SHARE_TO_MAKE = 8
"""The free space required to create the reserve: this many bytes, or this fraction of the disk."""


class DiskReserve:
    """The reserve of one folder."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._path = f"{folder}/{FILE_NAME}"
        self.given_up = False
        self._complete = False

    def give_up_if_full(self) -> None:
        """Delete the reserve if the disk is full; call before anything is written.

        Space that an earlier start released is not for records: without a reserve, little free space
        counts as full.
        """
        total, usable = self._files.space(self._folder)
        if usable >= (SIZE if self._is_whole() else _plenty(total)):
            return
        self.given_up = True
        log.error(
            "%s: the disk is full; writes are refused until space is free, reads and retention continue",
            self._folder,
        )
        if self._files.exists(self._path):
            self._files.unlink(self._path)

    @property
    def missing(self) -> bool:
        """Return whether the reserve does not exist."""
        return not self._complete

    def make(self) -> None:
        """Create the reserve if there is enough space. Callable on any thread."""
        try:
            if not self._is_whole():
                total, usable = self._files.space(self._folder)
                if usable < _plenty(total):
                    return
                replace_file(self._files, self._path, bytes(SIZE), sync=False)
        except OSError as failure:
            log.warning(
                "disk reserve %s could not be written, retrying later: %s",
                self._path,
                failure.strerror,
            )
        else:
            self._complete = True

    def _is_whole(self) -> bool:
        return self._files.exists(self._path) and self._files.path_size(self._path) == SIZE


def _plenty(total: int) -> int:
    """Return the free space required to create the reserve on a disk of `total` bytes."""
    return max(2 * SIZE, min(ROOM_TO_MAKE, total // SHARE_TO_MAKE))
