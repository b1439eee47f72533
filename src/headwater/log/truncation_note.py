"""A note that a truncation leaves behind: the checkpointed recovery point is too high.

The checkpoint of the whole folder is written now and then; a log that was truncated and written
again must not be taken, after a crash, for one that was flushed up to the old point. The note is on
the disk before the first byte is cut, and goes when the checkpoint has caught up.
"""

from headwater.seams.files import Files, read_file, replace_file

FILE_NAME = "recovery-point-limit"


def write_note(files: Files, directory: str, offset: int) -> None:
    """Nothing at or above `offset` is known to be flushed, whatever the checkpoint says."""
    replace_file(files, f"{directory}/{FILE_NAME}", b"%d\n" % offset)


def read_note(files: Files, directory: str) -> int | None:
    """The limit, if there is one; 0 if it cannot be read."""
    path = f"{directory}/{FILE_NAME}"
    if not files.exists(path):
        return None
    content = read_file(files, path).strip()
    return int(content) if content.isdigit() else 0


def remove_note(files: Files, directory: str) -> None:
    """The checkpoint is right again."""
    files.unlink(f"{directory}/{FILE_NAME}")
