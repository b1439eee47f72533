"""The leader's side of a replica: how far its followers are, and which are in sync."""

from collections.abc import Collection, Container, Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.errors import E, KafkaError
from headwater.replication.effects import ProposeIsr
from headwater.replication.isr import IsrState

if TYPE_CHECKING:
    from headwater.replication.replica import Replica


class Leading:
    """The leader's side of one replica."""

    __slots__ = ("_replica",)

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica

    # -- followers

    def follower_fetched(
        self, follower: int, offset: int, log_start: int, broker_epoch: int = -1
    ) -> None:
        """Record a follower's fetch from `offset`: it has everything from `log_start` up to it."""
        replica = self._replica
        replica.check_in_range(offset)
        partition = replica.partition
        partition.check_follower(follower, broker_epoch)
        before = partition.follower_log_start(follower)
        effects = partition.follower_fetched(
            replica.host.now_ms(), follower, offset, log_start, broker_epoch
        )
        replica.carry_out(effects)
        if log_start > before and not effects:
            replica.wake_watchers()  # DeleteRecords waits for the start of every replica's log

    def follower_had_all(self, follower: int, offset: int, at_ms: int) -> None:
        """A follower that has everything below `offset` asked again at that time."""
        progress = self._replica.partition.followers.get(follower)
        if progress is not None and progress.log_end == offset:
            progress.fetched_again(at_ms)

    def is_in_sync(self, follower: int) -> bool:
        """Return whether the follower is in the stored in-sync set."""
        return follower in self._replica.partition.isr

    def nearest(self, rack: str, offset: int, racks: Mapping[int, str | None]) -> int:
        """Return the broker from which a consumer in `rack` reads at `offset`: this one by default.

        A follower of that rack must be alive and in sync and have the offset; of several the one
        with the longest log is chosen.
        """
        partition = self._replica.partition
        if racks.get(partition.node_id) == rack:
            return partition.node_id
        near = [
            (progress.log_end, -follower)
            for follower, progress in partition.followers.items()
            if racks.get(follower) == rack
            and follower in partition.isr
            and progress.log_start <= offset <= progress.log_end
        ]
        return -max(near)[1] if near else partition.node_id

    def low_watermark(self, live: Container[int]) -> int:
        """Return the lowest log start of the live replicas that a power cut cannot undo."""
        replica = self._replica
        return replica.partition.low_watermark(replica.log.durable_start, live)

    def broker_epoch(self, follower: int) -> int:
        """Return the registration of a follower's broker, -1 if it is not known."""
        progress = self._replica.partition.followers.get(follower)
        return -1 if progress is None else progress.broker_epoch

    @property
    def knows_what_is_committed(self) -> bool:
        """Whether the high watermark has passed what earlier leaders may have committed."""
        partition = self._replica.partition
        return partition.high_watermark >= partition.leader_epoch_start

    def delete_records(self, offset: int) -> None:
        """Move the log's start to `offset`, which must be committed."""
        replica = self._replica
        settings = replica.log.settings
        if settings.compacted and not settings.expires:
            raise KafkaError(E.POLICY_VIOLATION)
        if not 0 <= offset <= replica.high_watermark:
            raise KafkaError(E.OFFSET_OUT_OF_RANGE)
        replica.log.advance_start(offset)
        replica.host.start_moved(replica)
        replica.wake_watchers()  # followers delete them too

    # -- the in-sync set

    def check_lag(self) -> None:
        """Propose to drop followers from the in-sync set that have been behind for too long.

        A replica whose disk is full or has failed proposes the set without itself instead: another one
        must lead, and records are committed without this one.
        """
        replica = self._replica
        if replica.refusal is not None:
            full = replica.offline is None
            replica.carry_out(replica.partition.write_refused(keeps_records=full))
        else:
            replica.carry_out(replica.partition.lag_checked(replica.host.now_ms()))

    @property
    def in_sync(self) -> Collection[int]:
        """Return the brokers of the stored in-sync set."""
        return self._replica.partition.isr

    @property
    def isr_state(self) -> IsrState:
        """Return how complete the in-sync set is."""
        return self._replica.partition.isr_state

    def proposes(self, proposal: ProposeIsr) -> bool:
        """Return whether the in-sync set is still what this leader proposes."""
        return self._replica.partition.proposes(proposal)

    def isr_stored(
        self, isr: Sequence[int], leader_epoch: int, partition_epoch: int, elr: Sequence[int] = ()
    ) -> None:
        """The controller stored an in-sync set, proposed here or not."""
        replica = self._replica
        if replica.is_leader and leader_epoch == replica.leader_epoch:
            before = replica.partition.partition_epoch
            now_ms = replica.host.now_ms()
            replica.carry_out(replica.partition.isr_stored(now_ms, isr, partition_epoch, elr))
            if partition_epoch > before:
                replica.wake_watchers()

    def isr_refused(self, proposal: ProposeIsr) -> None:
        """The controller did not store the proposal, and never will."""
        replica = self._replica
        if replica.partition.proposes(proposal):
            replica.carry_out(replica.partition.isr_refused(replica.host.now_ms()))
