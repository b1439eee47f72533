"""What the controller's decisions react to. All in the past tense: it has happened."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwater.controller.commands import Command
from headwater.controller.state import ClusterState, LiveBroker
from headwater.controller.store.metadata_store import OpResult, StoreFailure
from headwater.errors import E


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker became the controller; `state` is all that the store held at that moment."""

    controller_epoch: int
    epoch_version: int
    state: ClusterState


@dataclass(frozen=True, slots=True)
class Deposed:
    """This broker is no longer the controller."""

    reason: str


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Brokers came, went or registered anew; `brokers` are all that are live now."""

    brokers: Mapping[int, LiveBroker]


@dataclass(frozen=True, slots=True)
class Submitted:
    """Somebody wants something; `token` finds the one who waits."""

    command: Command[Any]
    token: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A write is durable."""

    ticket: int
    results: list[OpResult]


@dataclass(frozen=True, slots=True)
class StoreRefused:
    """A write was not made, or its outcome is unknown."""

    ticket: int
    failure: StoreFailure
    path: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A broker has applied a message, or never will because it is gone."""

    ticket: int
    error: E = E.NONE


@dataclass(frozen=True, slots=True)
class Resumed:
    """The loop has had its turn; long work may go on."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may have passed."""


Event: TypeAlias = (
    Elected
    | Deposed
    | BrokersChanged
    | Submitted
    | Stored
    | StoreRefused
    | Acknowledged
    | Resumed
    | TimePassed
)
