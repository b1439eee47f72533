"""Sees to it that a peer in another process does not outlive a run that was killed."""

import subprocess
from pathlib import Path


def heir(pid: int, folder: Path) -> "subprocess.Popen[bytes]":
    """Ends process `pid` and removes `folder` when this process dies without a word.

    The heir waits at the end of a pipe that nobody writes to; our death closes it, whatever killed
    us. Kill the heir when the peer has been stopped in the ordinary way.
    """
    script = 'read -r _; kill -9 "$0" && rm -rf "$1"'
    return subprocess.Popen(
        ["sh", "-c", script, str(pid), str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )
