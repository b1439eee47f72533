"""Calls that an event loop makes later."""

from collections.abc import Callable
from typing import Protocol, TypeAlias


class Timer(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the call."""


CallSoon: TypeAlias = Callable[[Callable[[], None]], object]
CallLater: TypeAlias = Callable[[float, Callable[[], None]], Timer]
"""Schedules a call after a delay in seconds."""
