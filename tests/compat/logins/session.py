"""What a way in asks of a client: a session that is opened with credentials and goes on for a while."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

DELEGATION_TOKEN, SHORT_SESSIONS = "delegation token", "short sessions"


@dataclass(frozen=True)
class Credentials:
    """Where a client connects, and what it shows there; what is empty is not used."""

    bootstrap: str
    authority: str
    """The file with the certificate that the client trusts."""
    certificate: str = ""
    """A PEM file with a private key and its certificate."""
    mechanism: str = ""
    user: str = ""
    password: str = ""
    token_endpoint: str = ""
    """Where an identity provider gives tokens to the user, who is its client."""
    delegated: bool = False
    """Whether user and password are those of a delegation token."""

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"

    def as_request(self) -> dict[str, Any]:
        """For the programs in Go, which read JSON."""
        return {**asdict(self), "protocol": self.protocol}


class Session(ABC):
    """A client at work. Its producer and its consumers are kept until `close`."""

    @abstractmethod
    def produce(self, topic: str, value: str) -> None:
        """Sends a record; an error of the client is raised here or later."""

    @abstractmethod
    def poll(self, topic: str, group: str) -> list[str]:
        """The next values, maybe none yet; the first call joins the group."""

    @abstractmethod
    def brokers(self) -> set[int]:
        """Return the brokers that the client's admin finds."""

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True)
class LoginClient:
    """A column of the table."""

    name: str
    open: Callable[[Credentials], Session]
    idempotent: bool = True
    """Whether a record that it sends again, because a session ended, is there once."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """What it does not have, or not in a form that brokers take: mechanisms, DELEGATION_TOKEN, SHORT_SESSIONS; and why."""
