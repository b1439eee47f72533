"""The signals that stop a server: from a service manager, Ctrl-C, or a terminal that was closed."""

import asyncio
import signal
from collections.abc import Callable


def stop_signals() -> list[signal.Signals]:
    """Return the signals; under `nohup` a server outlives its terminal."""
    found = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


def on_stop_signal(loop: asyncio.AbstractEventLoop, stop: Callable[[], object]) -> None:
    """Call `stop` on every signal that stops a server."""
    for number in stop_signals():
        loop.add_signal_handler(number, stop)
