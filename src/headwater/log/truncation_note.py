"""Notes in a log's folder that correct the checkpoint of all logs, until a newer one is written.

A truncation notes that the checkpointed recovery point is too high.

The checkpoint of all logs is written periodically. After a crash, a log that was truncated and then
written again must not be taken for one that was flushed up to the old point. The note is on the disk
before the first byte is cut, and is removed after the next checkpoint. Notes are numbered, and the
checkpoint has the number of the last one that it takes into account: a note that outlives its removal
counts for nothing. A new log whose name the checkpoint still lists writes the same note, which its
first flush syncs: until then, what a power cut leaves of it counts as the strictest one. A move to
another log dir notes the log's start, which the checkpoint of that dir does not have.
"""

from typing import NamedTuple

from headwater.records.checksum import crc32c
from headwater.seams.files import Files, read_file, replace_file

FILE_NAME = "recovery-point-limit"
START = "moved-log-start"
_CHECKSUM = b" crc32c "


class Note(NamedTuple):
    """A note of a truncation."""

    limit: int = 0
    """Nothing at or above this offset is flushed, whatever the checkpoint says."""
    number: int = 0
    """Notes of a log count up; 0 in a note that cannot be read, or of an earlier version."""

    def outdated(self, known: int) -> bool:
        """Return whether a checkpoint takes it into account that knows the notes up to `known`."""
        return 0 < self.number <= known


def write_note(files: Files, directory: str, note: Note, *, sync: bool = True) -> None:
    """Correct the checkpoint until one is written that knows the note."""
    _write(files, f"{directory}/{FILE_NAME}", *note, sync=sync)


def read_note(files: Files, directory: str) -> Note | None:
    """Return the note; None without one, and the strictest if it cannot be read."""
    numbers = _read(files, f"{directory}/{FILE_NAME}")
    return None if numbers is None else Note(*numbers)


def write_start_note(files: Files, directory: str, offset: int) -> None:
    """Note that the log starts at `offset`, whatever the checkpoint says."""
    _write(files, f"{directory}/{START}", offset)


def lower_start_note(files: Files, directory: str, offset: int) -> None:
    """Note an earlier start: otherwise it would hide what is written after a truncation."""
    if offset:
        write_start_note(files, directory, offset)
    else:
        remove_start_note(files, directory)
        files.sync_dir(directory)


def read_start_note(files: Files, directory: str) -> int:
    """Return the start; 0 without a note that can be read."""
    start, *_ = _read(files, f"{directory}/{START}") or (0,)
    return start


def _write(files: Files, path: str, *numbers: int, sync: bool = True) -> None:
    text = b" ".join(b"%d" % number for number in numbers)
    replace_file(files, path, text + _checksum(text), sync=sync)


def _read(files: Files, path: str) -> list[int] | None:
    """Return the numbers of a note, none if it cannot be read; None without a note."""
    if not files.exists(path):
        return None
    return _parsed(read_file(files, path)) or []


def is_damaged(files: Files, directory: str, name: str = FILE_NAME) -> bool:
    """Return whether there is a note of that name that cannot be read."""
    path = f"{directory}/{name}"
    return files.exists(path) and _parsed(read_file(files, path)) is None


def _parsed(content: bytes) -> list[int] | None:
    text = content.partition(_CHECKSUM)[0].strip()
    # Earlier versions wrote no checksum.
    sound = content in (text + _checksum(text), text + b"\n")
    numbers = text.split(b" ")
    if not sound or not all(number.isdigit() for number in numbers):
        return None
    return [int(number) for number in numbers]


def remove_note(files: Files, directory: str) -> None:
    """Remove the note: the checkpoint is right again."""
    files.unlink(f"{directory}/{FILE_NAME}")


def remove_start_note(files: Files, directory: str) -> None:
    """Remove the note: the checkpoint has the start."""
    files.unlink(f"{directory}/{START}")


def _checksum(text: bytes) -> bytes:
    return _CHECKSUM + b"%08x\n" % crc32c(text)
