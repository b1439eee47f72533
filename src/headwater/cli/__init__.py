"""The command `headwater`: one file per noun, imported when that noun is typed.

A broker starts through here, so nothing but click is imported before the command is known.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Run the console script; a signal during its imports ends it without a word."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if (
            signal.getsignal(number) is not signal.SIG_IGN
        ):  # as in a script's background job, or under nohup
            signal.signal(number, exit_at_once)
    _occupy_closed_streams()
    try:
        import headwater.linux  # noqa: F401 - its refusal becomes one line here
    except ImportError as refused:
        sys.exit(f"Error: {refused}")
    from headwater.cli.app import main as run

    run()


def _occupy_closed_streams() -> None:
    """Keep files and sockets off the numbers 0 to 2, to which C code prints."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # noqa: TID251 - it takes the lowest free number


def exit_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Exit as shells expect it; an exception would show up as the traceback of some import."""
    os._exit(128 + number)
