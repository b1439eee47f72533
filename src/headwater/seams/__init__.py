"""The only access to the outside world: clock, randomness, files, network, tasks, the machine.

Everything above takes a `Seams` and never imports time, random or sockets itself, so that the
simulator can run a whole cluster in one deterministic thread.
"""

from dataclasses import dataclass

import headwater.linux  # noqa: F401 - before the modules that need it
from headwater.seams.clock import Clock
from headwater.seams.files import Files
from headwater.seams.limits import USUAL_OPEN_FILES
from headwater.seams.network import Network
from headwater.seams.process_use import ProcessMeter
from headwater.seams.randomness import Randomness
from headwater.seams.tasks import Tasks
from headwater.seams.workers import Workers


@dataclass(frozen=True, slots=True)
class Seams:
    """All seams, passed down from the composition root."""

    clock: Clock
    randomness: Randomness
    files: Files
    network: Network
    tasks: Tasks
    open_files: int = USUAL_OPEN_FILES
    """The limit of open descriptors."""
    boot_id: str = ""
    """Differs after each boot of the machine; empty if it is not known."""
    workers: Workers | None = None
    """Worker processes; without them no log is compacted."""
    process: ProcessMeter | None = None
    """Measures this process; without it metrics tell nothing of memory, files and the loop."""
