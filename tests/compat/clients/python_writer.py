"""Runs a producer of a Python client in its own process and prints its events as JSON lines.

    python -m tests.compat.clients.python_writer MODULE BOOTSTRAP TOPIC

MODULE has `run_writer(options, emit)`, which sends `options.numbers()` and returns after closing.
"""

import importlib
import itertools
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.compat.clients.python_member import emit, parse_event
from tests.compat.member import Writer

PACE_S = 0.02


@dataclass(frozen=True)
class WriterOptions:
    """Where to write; `leaving` is set by SIGTERM."""

    bootstrap: str
    topic: str
    leaving: threading.Event = field(default_factory=threading.Event)

    def numbers(self) -> Iterator[int]:
        """What to write, and when: it ends when the writer is told to stop."""
        for number in itertools.count():
            if self.leaving.wait(PACE_S):
                return
            yield number


def start_writer(module: str, bootstrap: str, topic: str) -> Writer:
    """Starts the process that `main` below is."""
    command = [sys.executable, "-m", __name__, module, bootstrap, topic]
    return Writer(command, parse_event, name=module)


def main(module: str, bootstrap: str, topic: str) -> None:
    """The writer's process."""
    options = WriterOptions(bootstrap, topic)
    signal.signal(signal.SIGTERM, lambda *_: options.leaving.set())
    importlib.import_module(module).run_writer(options, emit)


if __name__ == "__main__":
    main(*sys.argv[1:])
