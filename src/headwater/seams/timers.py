"""Calls that an event loop makes later."""

from collections.abc import Callable
from typing import Protocol, TypeAlias


class Timer(Protocol):
    """A call that was planned and can be called off."""

    def cancel(self) -> None:
        """Call it off."""


CallSoon: TypeAlias = Callable[[Callable[[], None]], object]
CallLater: TypeAlias = Callable[[float, Callable[[], None]], Timer]
"""Plans a call after a delay in seconds."""
