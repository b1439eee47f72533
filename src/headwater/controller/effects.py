"""What the controller wants done, in order. Names are imperative: it has not happened yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwater.controller.control_requests import ControlRequest
from headwater.controller.store.metadata_store import Op


@dataclass(frozen=True, slots=True)
class Write:
    """Write one multi to the store; answered by Stored or StoreRefused."""

    ticket: int
    ops: Sequence[Op]


@dataclass(frozen=True, slots=True)
class Send:
    """Send a control request to a broker; answered by Acknowledged."""

    ticket: int
    broker_id: int
    message: ControlRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the command `token`, once this broker has applied the config change, if any."""

    token: int
    outcome: Any
    applied_change: int | None = None


@dataclass(frozen=True, slots=True)
class Resign:
    """Delete the controller's node and run for controller again with freshly loaded state."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Let the event loop run once, then feed Resumed."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Log an event that an operator may search for; a loud one needs attention."""

    event: str
    loud: bool = False


Effect: TypeAlias = Write | Send | Answer | Resign | Resume | LogEvent
