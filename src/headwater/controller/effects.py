"""What the controller wants done, in this order. All imperative; none of it has happened yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwater.controller.control_requests import ControlRequest
from headwater.controller.store.metadata_store import Op


@dataclass(frozen=True, slots=True)
class Write:
    """Make one multi in the store; comes back as Stored or StoreRefused."""

    ticket: int
    ops: Sequence[Op]


@dataclass(frozen=True, slots=True)
class Send:
    """Tell a broker; comes back as Acknowledged."""

    ticket: int
    broker_id: int
    message: ControlRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the one who waits behind `token`, once. After config changes, when they are applied."""

    token: int
    outcome: Any
    applied_change: int | None = None


@dataclass(frozen=True, slots=True)
class Resign:
    """Give the controller's node up and stand for election again with a fresh reading."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Let the loop turn once, then send Resumed."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Log an event that an operator may search for."""

    event: str


Effect: TypeAlias = Write | Send | Answer | Resign | Resume | LogEvent
