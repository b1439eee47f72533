"""Implements `ReplicaHost` for the replicas of this broker."""

import logging
from collections.abc import Callable

from headwater.broker.context import Context
from headwater.broker.storage_health import StorageHealth
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from headwater.replication.effects import ProposeIsr
from headwater.replication.replica import Replica
from headwater.replication.replica_host import TransactionalWrite

log = logging.getLogger("headwater.server")


class BrokerReplicaHost:
    """Connects replicas to the clock, the tick, the coordinators and the health of the disks."""

    def __init__(self, context: Context, health: StorageHealth) -> None:
        self._context = context
        self._health = health
        self.now_ms = context.clock.monotonic_ms
        self.wall_ms = context.clock.wall_ms
        self.write_soon = context.tick.write_soon
        self.off_loop = context.off_loop

    def leads(self, replica: Replica) -> None:
        """Stop following, and load the coordinator's shard if the partition has one.

        A replica may be told late: its log could not be opened, or was being truncated. What
        UpdateMetadata said meanwhile about the in-sync set is not repeated.
        """
        context = self._context
        at = replica.topic_partition
        known = context.metadata.partition(*at)
        if known is not None and context.metadata.topic_id(at.topic) == replica.topic_id:
            replica.leading.isr_stored(
                known.isr, known.leader_epoch, known.partition_epoch, known.elr
            )
        context.replica_fetchers.unfollow(replica.topic_partition)
        context.coordinators.elected(replica.topic_partition, replica.leader_epoch)
        context.log_dir_moves.resume(replica)
        context.changed()

    def follows(self, replica: Replica) -> None:
        """Close the coordinator's shard, and fetch from the leader."""
        context = self._context
        context.coordinators.resigned(replica.topic_partition)
        context.replica_fetchers.follow(replica)
        context.log_dir_moves.resume(replica)
        context.changed()

    def stopped(self, replica: Replica) -> None:
        """Stop leading or following."""
        context = self._context
        context.replica_fetchers.unfollow(replica.topic_partition)
        context.coordinators.resigned(replica.topic_partition)
        context.log_dir_moves.pause(replica.topic_partition)
        context.changed()

    def high_watermark_advanced(self, replica: Replica) -> None:
        """Let coordinators send the replies that waited for the high watermark."""
        self._context.coordinators.high_watermark_advanced(
            replica.topic_partition, replica.high_watermark
        )

    def verify_transaction(
        self,
        at: TopicPartition,
        producer_id: int,
        epoch: int,
        write: TransactionalWrite,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Ask the transaction's coordinator."""
        self._context.verifier.verify(at, producer_id, epoch, write, done)

    def propose_isr(self, replica: Replica, proposal: ProposeIsr) -> None:
        """Ask the controller to store another in-sync set.

        A follower that leaves it fetches nothing more until its disk takes writes: it would join again.
        """
        if not proposal.isr:
            self._context.replica_fetchers.hold(replica)
        self._context.isr_proposals.propose(replica, proposal)

    def start_moved(self, replica: Replica) -> None:
        """Have the start stored."""
        self._context.moved_starts[replica] = None

    def storage_failed(self, replica: Replica, failure: OSError, *, flushing: bool) -> None:
        """Report a failed write or flush to the storage health."""
        self._health.failed(self._context.replicas, replica, failure, flushing=flushing)
