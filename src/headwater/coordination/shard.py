"""The interface of a coordinator shard: commands return an Outcome, only replay changes stored state.

A shard holds the state of one partition of a coordinator's topic. It never waits and never writes.
It returns records to append, replies for tokens, and effects; the runtime appends the records first,
replays them, and sends the replies once the high watermark covers them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headwater.coordination.deadlines import Now
from headwater.errors import E
from headwater.model import Uuid

R = TypeVar("R")

Token: TypeAlias = object
"""A waiting requester. Opaque to shards; answered exactly once."""


class TransactionalProducer(NamedTuple):
    """The producer whose transaction records belong to."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Outcome(Generic[R]):
    """The result of a command, applied in this order: records, effects, replies."""

    records: list[R] = field(default_factory=list)
    producer: TransactionalProducer | None = None
    """Set if the records take effect when the producer's transaction commits."""
    replies: list[tuple[Token, object]] = field(default_factory=list)
    effects: list[object] = field(default_factory=list)

    def reply(self, token: Token, answer: object) -> None:
        """Answer `token` once the records of this outcome are committed."""
        self.replies.append((token, answer))


class TooLarge(NamedTuple):
    """How to report records that are too large for the log."""

    error: E
    """The answer to the request for them."""
    whose: str
    """For the broker's log, such as "group 'g'"."""


class Shard(Protocol[R]):
    """One partition's state. Commands are further methods that take (now, argument, token)."""

    def replay(self, record: R) -> None:
        """Apply one record of the log, during a load or right after it was staged."""

    def loaded(self, now: Now) -> Outcome[R]:
        """Start working: every record of the log has been replayed."""

    def expire(self, now: Now) -> Outcome[R]:
        """Handle the deadlines that have passed."""

    def next_deadline(self) -> int | None:
        """When to call `expire`, by the monotonic clock."""

    def topics_deleted(self, topics: dict[str, None]) -> Iterator[Outcome[R]] | None:
        """Drop the state that the deleted topics have now, in steps of bounded size; None without any.

        Thousands of topics may be deleted at a time, and most shards have no state of them.
        """

    def survives_loss_of(self, records: Sequence[R]) -> bool:
        """Return whether the shard still equals its log if `records` are not appended.

        False makes the runtime drop the shard and load it again.
        """

    def too_large(self, records: Sequence[R]) -> TooLarge:
        """Describe the records of one command, of which nothing was appended."""

    def withdraw(self, now: Now, records: Sequence[R]) -> Outcome[R]:
        """Undo what a command did besides its `records`, which are too large for the log."""

    def parked(self) -> list[Token]:
        """The tokens that still wait for a reply."""

    def summary(self) -> str:
        """What the shard holds, for the log, such as "3 groups"; empty if it holds nothing."""


class TransactionalShard(Shard[R], Protocol[R]):
    """A shard whose records may belong to transactions of producers."""

    def replay_transactional(self, producer_id: int, record: R) -> None:
        """Apply one record of an open transaction."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply the end of a producer's transaction; do nothing if it has no records here."""


class RecordCodec(Protocol[R]):
    """Encodes a coordinator's records as keys and values."""

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """The key and the value; a value of None deletes."""

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """What `encode` wrote; None for a record that this version does not know."""


class TopicImage(Protocol):
    """The topics of the cluster, as this broker knows them; read-only.

    Commands may read it. `replay` must not: a load has to give the same state at any time.
    """

    def partition_count(self, topic: str) -> int:
        """The number of partitions; 0 if the topic does not exist."""

    def topic_id(self, topic: str) -> Uuid | None:
        """The id of a topic, if it exists."""


class InternalTopic(NamedTuple):
    """The topic of a coordinator's records, with the settings to create it."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    clamped: bool = False
    """Whether to reduce the replication factor to the number of live brokers."""
