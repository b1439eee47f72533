"""What the controller reacts to. Names are in the past tense: it has happened."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwater.controller.commands import Command
from headwater.controller.state import ClusterState, LiveBroker
from headwater.controller.store.metadata_store import OpResult, StoreFailure
from headwater.errors import E


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker became the controller; `state` is what the store held at that moment."""

    controller_epoch: int
    epoch_version: int
    state: ClusterState


@dataclass(frozen=True, slots=True)
class Deposed:
    """This broker is no longer the controller."""

    reason: str


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Brokers came, went or registered again; `brokers` are all live ones."""

    brokers: Mapping[int, LiveBroker]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A command was submitted; `token` identifies the waiting client."""

    command: Command[Any]
    token: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A write is durable."""

    ticket: int
    results: list[OpResult]


@dataclass(frozen=True, slots=True)
class StoreRefused:
    """A write failed, or its outcome is unknown."""

    ticket: int
    failure: StoreFailure
    path: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A broker has answered a control request, or never will because it is gone."""

    ticket: int
    error: E = E.NONE


@dataclass(frozen=True, slots=True)
class Resumed:
    """The event loop has run; long work may continue."""


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
