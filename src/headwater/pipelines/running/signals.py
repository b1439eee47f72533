"""Ends a run cleanly on a signal.

PySpark sets its own handler for SIGINT when a session starts, which cancels jobs and makes queries
fail; the handler here only sets an event, so that batches can finish.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType, SimpleNamespace
from typing import Any, Final

from headwater.seams.clock import Clock, SystemClock

ONE_REQUEST_MS: Final = 1000
"""Signals within this time count as one request: `timeout` sends its signal twice."""
_STDERR: Final = 2


class StopEvent(threading.Event):
    """Set when a run should stop; knows the signal that asked for it."""

    cause = signal.SIGINT


@contextmanager
def stop_on_signals(
    stop: StopEvent, signals: Sequence[signal.Signals], clock: Clock | None = None
) -> Iterator[None]:
    """Set `stop` when one of the signals arrives; does nothing outside the main thread.

    A second signal has its previous effect: it ends the process without waiting.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    time, first_ms = clock or SystemClock(), list[int]()

    def asked(number: int, frame: FrameType | None) -> None:
        if first_ms and time.monotonic_ms() - first_ms[0] >= ONE_REQUEST_MS:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
        elif not first_ms:
            first_ms.append(time.monotonic_ms())
            stop.cause = signal.Signals(number)
            stop.set()
            end = b"press Ctrl-C again to end" if os.isatty(_STDERR) else b"a second signal ends it"
            with suppress(
                OSError
            ):  # not through a file object: this may have interrupted its write
                os.write(_STDERR, b"stopping; %s at once\n" % end)

    before = {number: signal.signal(number, asked) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def keep_sigint_handler() -> Iterator[None]:
    """Keep PySpark from setting its SIGINT handler while a session starts."""
    context: Any = import_module("pyspark.core.context")
    context.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda number, handler: None)
    try:
        yield
    finally:
        context.signal = signal
