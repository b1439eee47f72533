"""What the checks ask of a client: the same verbs for every one of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Self

from headwater.errors import E
from tests.compat.member import Member, Writer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class NotOffered(Exception):
    """The client has no such feature; the text is the reason shown beside `n/a` in the table."""


class Refused(Exception):
    """The broker said no; `name` is Kafka's name of the error, like TOPIC_ALREADY_EXISTS.

    Clients spell some names their own way, so those that know the code give the code.
    """

    def __init__(self, error: int | str):
        self.name = E(error).name if isinstance(error, int) and error >= 0 else str(error)
        super().__init__(self.name)


class Unavailable(Exception):
    """The client is not on this machine; its tests are skipped with this text."""


@dataclass(frozen=True)
class Message:
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int = 0


@dataclass(frozen=True)
class Received(Message):
    """A record as it came back."""

    offset: int = -1

    def sent(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        """The part the sender chose, to compare with `Message`s."""
        return self.key, self.value, self.headers


@dataclass(frozen=True)
class Start:
    """Where to begin reading: at one end, at an offset, or at a time (`at` in ms)."""

    kind: Literal["start", "end", "offset", "time", "latest-time"]
    at: int = 0


BEGINNING = Start("start")
END = Start("end")
LATEST_TIME = Start("latest-time")


@dataclass(frozen=True)
class PartitionView:
    """A partition as metadata tells it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class GroupView:
    """A group as DescribeGroups tells it."""

    state: str
    members: int


class Client(ABC):
    """One Kafka client. Verbs raise `Refused` for the broker's errors, `NotOffered` for their own."""

    name: str
    binary_safe = True  # whether arbitrary bytes survive the client's own input and output
    null_headers = True  # whether a header may have no value
    names_errors = True  # whether it tells which error the broker gave
    tries_other_brokers = True  # whether its admin calls get past a broker that is gone
    keeps_its_place = True  # whether a member stays through the death of its coordinator

    def __init__(self, bootstrap: str):
        self.bootstrap = bootstrap

    def at(self, bootstrap: str) -> Self:
        """The same client at another address."""
        return type(self)(bootstrap)

    # records
    @abstractmethod
    def produce(
        self, topic: str, messages: list[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None: ...
    @abstractmethod
    def consume(self, topic: str, start: Start, count: int) -> list[Received]:
        """The first `count` records of partition 0 from `start`, without a group."""

    # groups
    @abstractmethod
    def member(
        self, group: str, topic: str, *, session_ms: int, instance: str | None = None
    ) -> Member: ...
    @abstractmethod
    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Moves a group without members to these offsets: a commit by hand, or a reset."""

    @abstractmethod
    def committed(self, group: str, topic: str) -> dict[int, int]: ...
    @abstractmethod
    def groups(self) -> set[str]: ...
    @abstractmethod
    def describe_group(self, group: str) -> GroupView: ...
    @abstractmethod
    def delete_group(self, group: str) -> None: ...

    # topics
    @abstractmethod
    def create_topic(
        self, topic: str, partitions: int, configs: dict[str, str], replicas: int = 1
    ) -> None: ...
    @abstractmethod
    def topics(self) -> set[str]: ...
    @abstractmethod
    def describe_topic(self, topic: str) -> dict[int, PartitionView]: ...
    @abstractmethod
    def grow_topic(self, topic: str, partitions: int) -> None: ...
    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...
    @abstractmethod
    def offsets(self, topic: str, start: Start) -> dict[int, int]: ...
    @abstractmethod
    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        """Deletes up to these offsets; returns the new low watermarks."""

    # configs
    @abstractmethod
    def topic_configs(self, topic: str) -> dict[str, str | None]: ...
    @abstractmethod
    def set_topic_config(self, topic: str, key: str, value: str | None) -> None: ...
    @abstractmethod
    def broker_configs(self) -> dict[str, str | None]: ...

    # clusters
    def writer(self, topic: str) -> Writer:
        """Starts to write numbers to partition 0, each once (idempotent, acks=all)."""
        raise NotOffered(f"{self.name} has no idempotent producer to run for a while")

    def reassign(self, topic: str, replicas: dict[int, list[int] | None]) -> None:
        """Moves partitions to these brokers; None cancels a move."""
        raise NotOffered(f"{self.name} cannot move partitions")

    def reassigning(self, topic: str) -> set[int]:
        """The partitions that are being moved."""
        raise NotOffered(f"{self.name} cannot list moves")

    def elect(self, topic: str, partition: int) -> None:
        """Gives a partition back to its preferred leader."""
        raise NotOffered(f"{self.name} cannot elect leaders")
