"""Ends a child process that would outlive a run that was killed."""

import subprocess
from pathlib import Path


def kill_with_parent(pid: int, folder: Path) -> "subprocess.Popen[bytes]":
    """Kill process `pid` and remove `folder` if this process dies before it stops the child itself.

    The guard waits at the end of a pipe that nobody writes to; our death closes it, whatever killed
    us. Call `dismiss` once the child has been stopped in the ordinary way.
    """
    script = 'read -r _; kill -9 "$0" && rm -rf "$1"'
    return subprocess.Popen(
        ["sh", "-c", script, str(pid), str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )


def dismiss(guard: "subprocess.Popen[bytes]") -> None:
    """End a guard whose child has been stopped."""
    guard.kill()
    guard.communicate()
