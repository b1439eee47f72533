"""One run of a pipeline at a time: a lock beside the checkpoints.

The lock dies with its process, so a crashed run leaves none behind; the file stays and names who
had it last. Spark's own check would end whichever of two runs is later with a batch.
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
    """Hold the lock; InUseError with the host and the pid of whoever has it.

    Args:
        path: The lock's file.
        what: Who runs, for the message, such as `the pipeline shop`.
    """
    files = OsFiles()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        held = files.lock(str(path))
    except BlockingIOError:
        raise InUseError(
            f"{what} is running already: {_holder(path)} holds {path}; stop that run first"
        ) from None
    try:
        path.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}) + "\n")
        yield
    finally:
        files.close(held)


def _holder(path: Path) -> str:
    try:
        told = json.loads(path.read_text())
        return f"process {told['pid']} on {told['host']}"
    except (OSError, ValueError, TypeError, KeyError):  # it is about to write its name
        return "another process"
