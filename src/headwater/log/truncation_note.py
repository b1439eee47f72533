"""Notes in a log's folder that correct the checkpoint of all logs, until a newer one is written.

A truncation notes that the checkpointed recovery point is too high.

The checkpoint of all logs is written periodically. After a crash, a log that was truncated and then
written again must not be taken for one that was flushed up to the old point. The note is on the disk
before the first byte is cut, and is removed after the next checkpoint. So does a log that begins where
the checkpoint has an earlier log of the same topic. A move to another log dir notes the log's start,
which the checkpoint of that dir does not have.
"""

from headwater.records.checksum import crc32c
from headwater.seams.files import Files, read_file, replace_file

FILE_NAME = "recovery-point-limit"
START = "moved-log-start"


def write_note(files: Files, directory: str, offset: int) -> None:
    """Note that nothing at or above `offset` is flushed, whatever the checkpoint says."""
    _write(files, f"{directory}/{FILE_NAME}", offset)


def read_note(files: Files, directory: str) -> int | None:
    """Return the limit, None without a note; 0 if the note cannot be read."""
    return _read(files, f"{directory}/{FILE_NAME}")


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
    return _read(files, f"{directory}/{START}") or 0


def _write(files: Files, path: str, offset: int) -> None:
    text = b"%d" % offset
    replace_file(files, path, text + _checksum(text))


def _read(files: Files, path: str) -> int | None:
    if not files.exists(path):
        return None
    limit = _parsed(read_file(files, path))
    return 0 if limit is None else limit


def is_damaged(files: Files, directory: str) -> bool:
    """Return whether there is a note that cannot be read."""
    path = f"{directory}/{FILE_NAME}"
    return files.exists(path) and _parsed(read_file(files, path)) is None


def _parsed(content: bytes) -> int | None:
    text = content.partition(b" ")[0].strip()
    # Earlier versions wrote no checksum.
    sound = content in (text + _checksum(text), text + b"\n")
    return int(text) if sound and text.isdigit() else None


def remove_note(files: Files, directory: str) -> None:
    """Remove the note: the checkpoint is right again."""
    files.unlink(f"{directory}/{FILE_NAME}")


def remove_start_note(files: Files, directory: str) -> None:
    """Remove the note: the checkpoint has the start."""
    files.unlink(f"{directory}/{START}")


def _checksum(text: bytes) -> bytes:
    return b" crc32c %08x\n" % crc32c(text)
