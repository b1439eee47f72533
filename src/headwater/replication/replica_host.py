"""The interfaces between a replica and its broker: the host, pending batches, watchers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from headwater.errors import KafkaError
from headwater.model import TopicPartition
from headwater.replication.effects import ProposeIsr
from headwater.seams.tasks import Lane

if TYPE_CHECKING:
    from headwater.replication.replica import Replica

Done: TypeAlias = Callable[[object, Exception | None], None]


class TransactionalWrite(NamedTuple):
    """How a request writes to its transaction; its version says what its client knows."""

    transactional_id: str
    adds_partitions: bool
    """Whether the broker adds the partition to the transaction, or the client did (KIP-890)."""
    knows_abortable: bool
    """Whether the client knows TRANSACTION_ABORTABLE."""


class Pending(Protocol):
    """A pending batch; the replica calls exactly one of `complete` and `fail`, once."""

    base_offset: int
    last_offset: int
    append_time: int
    parked: bool

    @property
    def transaction(self) -> TransactionalWrite | None:
        """The transaction of the request, if it names one."""

    def park(self) -> None:
        """Set a deadline: the batch is still pending after its tick."""

    def holding(self, size: int) -> None:
        """Count `size` bytes of the batch as held in the inbox; negative when they leave it."""

    def complete(self) -> None:
        """The batch is as durable as its acks require."""

    def fail(self, failure: KafkaError) -> None:
        """The batch is not in the log, or its state is unknown."""


class Watcher(Protocol):
    """A request that waits for more records."""

    def wake(self, replica: "Replica") -> None:
        """There is more to read, or the replica stopped."""


class ReplicaHost(Protocol):
    """The broker, as its replicas see it."""

    def now_ms(self) -> int:
        """Monotonic milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""

    def write_soon(self, replica: "Replica") -> None:
        """Call `replica.write` at the end of this tick."""

    def off_loop(self, call: Callable[[], object], done: Done, lane: Lane) -> None:
        """Run a slow call on a thread; `done(result, failure)` comes as a later event."""

    def leads(self, replica: "Replica") -> None:
        """The replica leads in a new epoch: coordinators load what it holds."""

    def follows(self, replica: "Replica") -> None:
        """The replica follows a leader, perhaps another one or in another epoch, or none for now."""

    def stopped(self, replica: "Replica") -> None:
        """The replica is no longer served here."""

    def high_watermark_advanced(self, replica: "Replica") -> None:
        """The high watermark advanced: coordinators send pending replies."""

    def verify_transaction(
        self,
        at: TopicPartition,
        producer_id: int,
        epoch: int,
        write: TransactionalWrite,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Ask the coordinator of a transaction whether the partition belongs to it, or add it.

        `done` is called once, later: with None, or with the reason why not.
        """

    def propose_isr(self, replica: "Replica", proposal: ProposeIsr) -> None:
        """Send a change of the in-sync set to the controller."""

    def start_moved(self, replica: "Replica") -> None:
        """The start of the log moved: the log is flushed up to there and the checkpoint written soon."""

    def storage_failed(self, replica: "Replica", failure: OSError, *, flushing: bool) -> None:
        """A write or a flush failed."""
