"""How much of the machine this process uses."""

import os
import resource
import time
from pathlib import Path
from typing import NamedTuple, Protocol

_STATM, _FDS = Path("/proc/self/statm"), "/proc/self/fd"


class ProcessUse(NamedTuple):
    """Memory, files and CPU of the process."""

    resident_bytes: int
    open_files: int
    max_files: int
    cpu_seconds: float


class ProcessMeter(Protocol):
    """Measures this process and its threads."""

    def thread_cpu_seconds(self) -> float:
        """Return the CPU time of the calling thread."""

    def read(self) -> ProcessUse:
        """Return what the process uses; with many open files this takes milliseconds."""


class SystemProcessMeter:
    """Linux's own numbers."""

    def thread_cpu_seconds(self) -> float:
        """Return the CPU time of the calling thread."""
        return time.thread_time()

    def read(self) -> ProcessUse:
        """Return what the process uses."""
        pages = int(_STATM.read_text("ascii").split()[1])
        return ProcessUse(
            pages * resource.getpagesize(),
            len(os.listdir(_FDS)),
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            time.process_time(),
        )
