"""Moves the wall clock of a broker's process and lets its disk fail, through a preloaded library."""

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).parent / "fault_shim.c"
_CONTROL = struct.Struct("=qq1008s")


class Disk(IntEnum):
    """What the disk of a process does."""

    WORKS = 0
    FULL = 1
    FAILS = 2
    FAILS_TO_SYNC = 3


class FaultShim:
    """The control files of all processes that were started with the library."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def set(
        self, pid: int, *, clock_s: float = 0, disk: Disk = Disk.WORKS, below: str = ""
    ) -> None:
        """From now on the process has this clock, and this disk for files `below` a folder."""
        control = self._folder / str(pid)
        if not control.exists():
            raise RuntimeError(f"process {pid} does not run with {SOURCE.name}")
        with control.open("r+b", buffering=0) as file:
            file.write(_CONTROL.pack(int(clock_s * 1e9), disk, os.fsencode(below)))


@contextmanager
def preloaded(folder: Path) -> Iterator[FaultShim]:
    """Processes that are started meanwhile have the library; needs a C compiler."""
    library, controls = folder / "fault_shim.so", folder / "controls"
    controls.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True
    )
    os.environ["LD_PRELOAD"] = str(library)
    os.environ["CHAOS_CONTROLS"] = str(controls)
    try:
        yield FaultShim(controls)
    finally:
        del os.environ["LD_PRELOAD"], os.environ["CHAOS_CONTROLS"]
