"""Ends a child process that would outlive a run that was killed."""

import subprocess
from pathlib import Path


def kill_with_parent(pid: int, folder: Path) -> "subprocess.Popen[bytes]":
    """Kill process `pid` and remove `folder` if this process dies before it stops the child itself.

    The guard reads from a pipe without a writer other than this process; our death closes it. Call
    `dismiss` once the child has been stopped normally.
    """
    script = 'read -r _; kill -9 "$0" && rm -rf "$1"'
    return subprocess.Popen(
        ["sh", "-c", script, str(pid), str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )


def dismiss(guard: "subprocess.Popen[bytes]") -> None:
    """End a guard whose child has been stopped."""
    guard.kill()
    guard.communicate()
