"""Room set aside for a start on a full disk.

A broker that starts must write a little: its registration, its controller's epoch. A file of zeros
beside the metadata store keeps that room; it is given up when a start finds the disk full, so that
the broker can serve reads and retention can free space, and made again once there is room.
"""

import logging

from headwater.seams.files import Files, replace_file

log = logging.getLogger("headwater.server")

FILE_NAME = "reserve"
SIZE = 1 << 20
ROOM_TO_MAKE = 16 * SIZE
SHARE_TO_MAKE = 8
"""What must be free before a part of it is set aside: this many bytes, or this part of the disk."""


class DiskReserve:
    """The reserve of one folder."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._path = f"{folder}/{FILE_NAME}"
        self.given_up = False
        self._complete = False

    def give_up_if_full(self) -> None:
        """Before anything is written: free the room if there is nothing else.

        What an earlier start gave up is not for records: without a reserve, little room is none.
        """
        total, usable = self._files.space(self._folder)
        if usable >= (SIZE if self._is_whole() else _plenty(total)):
            return
        self.given_up = True
        log.error(
            "%s: the disk is full; writes are refused until there is room, reads and retention go on",
            self._folder,
        )
        if self._files.exists(self._path):
            self._files.unlink(self._path)

    @property
    def missing(self) -> bool:
        """Whether the room is still to be set aside."""
        return not self._complete

    def make(self) -> None:
        """Set the room aside if there is plenty. Any thread."""
        try:
            if not self._is_whole():
                total, usable = self._files.space(self._folder)
                if usable < _plenty(total):
                    return
                replace_file(self._files, self._path, bytes(SIZE), sync=False)
        except OSError as failure:
            log.warning("%s cannot be written now: %s", self._path, failure.strerror)
        else:
            self._complete = True

    def _is_whole(self) -> bool:
        return self._files.exists(self._path) and self._files.path_size(self._path) == SIZE


def _plenty(total: int) -> int:
    """What must be free on a disk of `total` bytes before a reserve is set aside."""
    return max(2 * SIZE, min(ROOM_TO_MAKE, total // SHARE_TO_MAKE))
