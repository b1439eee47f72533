"""A clean end when the process is asked to end.

PySpark sets a handler for SIGINT of its own when a session starts, which cancels jobs and makes
queries fail; this one only says that it is time, so that batches can finish.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def taking_signals(stop: threading.Event, signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Set `stop` when one of the signals comes; only the main thread can hear them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, asked) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def keeping_sigint() -> Iterator[None]:
    """Put the handler of SIGINT back that was there before something else set its own."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
