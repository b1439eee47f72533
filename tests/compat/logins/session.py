"""What a way in asks of a client: a session that is opened with credentials and goes on for a while."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass


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

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"

    def as_request(self) -> dict[str, str]:
        """For the programs, which read JSON."""
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
    lacks: tuple[str, ...] = ()
    """Mechanisms that it does not have, or not in a form that brokers take."""
    why: str = ""
    """What its cells say then."""
