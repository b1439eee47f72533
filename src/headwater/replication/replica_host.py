"""What a replica needs from the broker that hosts it, and what it promises to those who wait."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headwater.errors import KafkaError
from headwater.replication.effects import ProposeIsr
from headwater.seams.tasks import Lane

if TYPE_CHECKING:
    from headwater.replication.replica import Replica

Done: TypeAlias = Callable[[object, Exception | None], None]


class Pending(Protocol):
    """One batch under way; the replica calls exactly one of `complete` and `fail`, once."""

    base_offset: int
    last_offset: int
    append_time: int
    parked: bool

    def park(self) -> None:
        """The batch outlives its tick: set a deadline."""

    def holding(self, size: int) -> None:
        """`size` bytes of the batch wait in the inbox; a negative size gives them back."""

    def complete(self) -> None:
        """The batch is as durable as its producer asked for."""

    def fail(self, failure: KafkaError) -> None:
        """The batch is not in the log, or not known to be."""


class Watcher(Protocol):
    """A request that waits for more to read."""

    def wake(self, replica: "Replica") -> None:
        """There may be more to read, or nothing ever again."""


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
        """More is committed: coordinators answer what waited for it."""

    def propose_isr(self, replica: "Replica", proposal: ProposeIsr) -> None:
        """Send a change of the in-sync set to the controller."""

    def storage_failed(self, replica: "Replica", failure: OSError, *, flushing: bool) -> None:
        """The disk refused a write, or a flush of what was written."""
