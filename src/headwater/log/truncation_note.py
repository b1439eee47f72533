"""A file that a truncation writes: the checkpointed recovery point is too high.

The checkpoint of all logs is written periodically. After a crash, a log that was truncated and then
written again must not be taken for one that was flushed up to the old point. The note is on the disk
before the first byte is cut, and is removed after the next checkpoint.
"""

from headwater.seams.files import Files, read_file, replace_file

FILE_NAME = "recovery-point-limit"


def write_note(files: Files, directory: str, offset: int) -> None:
    """Note that nothing at or above `offset` is flushed, whatever the checkpoint says."""
    replace_file(files, f"{directory}/{FILE_NAME}", b"%d\n" % offset)


def read_note(files: Files, directory: str) -> int | None:
    """Return the limit, None without a note; 0 if the note cannot be read."""
    path = f"{directory}/{FILE_NAME}"
    if not files.exists(path):
        return None
    content = read_file(files, path).strip()
    return int(content) if content.isdigit() else 0


def remove_note(files: Files, directory: str) -> None:
    """Remove the note: the checkpoint is right again."""
    files.unlink(f"{directory}/{FILE_NAME}")
