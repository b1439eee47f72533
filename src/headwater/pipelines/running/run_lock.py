"""A lock beside the checkpoints: one run of a pipeline at a time.

The lock ends with its process, so a crashed run leaves none behind; the file remains and names the
last holder. Spark's own check would end whichever of two runs commits a batch later.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.seams.files import OsFiles


class InUseError(Exception):
    """Another run holds the checkpoints; the message names it."""


@contextmanager
def run_lock(path: Path, what: str) -> Iterator[None]:
    """Hold the lock; raise InUseError with the host and the pid of another holder.

    Args:
        path: The lock's file.
        what: What runs, for the message, such as `the pipeline shop`.
    """
    files = OsFiles()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        held = files.lock(str(path))
    except BlockingIOError:
        raise InUseError(
            f"{what} is already running: {_holder(path)} holds {path}; stop that run first"
        ) from None
    try:
        path.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}) + "\n")
        yield
    finally:
        files.close(held)


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, TypeError, KeyError):  # the holder has not written its name yet
        return "another process"
