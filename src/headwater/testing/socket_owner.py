"""Which process holds the other end of a connection on this machine."""

import os
from collections.abc import Mapping
from pathlib import Path

READINGS = 10


def owner_of(port: int, remote_port: int, pids: Mapping[int, int]) -> int | None:
    """Return the key of the process whose socket has these ports; None if none of `pids`."""
    # The kernel may skip a socket in one reading of its table while others come and go.
    inode = next(filter(None, (_inode(port, remote_port) for _ in range(READINGS))), None)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    return next((key for key, pid in pids.items() if _holds(pid, wanted)), None)


def _inode(port: int, remote_port: int) -> str | None:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ports = tuple(int(field.rpartition(":")[2], 16) for field in fields[1:3])
        if ports == (port, remote_port) and fields[9] != "0":
            return fields[9]
    return None


def _holds(pid: int, wanted: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") == wanted:
                return True
        except OSError:
            continue  # closed meanwhile
    return False
