"""Batches that the broker builds itself: the records of coordinators, and markers.

They have no sequences: the epoch of a producer, if they have one, and the epoch of the coordinator
fence them. Each is completed like acks=all.
"""

from typing import TYPE_CHECKING

from headwater.errors import E, KafkaError
from headwater.replication.partition import Role
from headwater.replication.replica_host import Pending

if TYPE_CHECKING:
    from headwater.replication.replica import Replica


class BuiltBatches:
    """Appends the broker's own batches to one replica."""

    __slots__ = ("_replica",)

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica

    def append(self, batch: bytearray, pending: Pending) -> None:
        """Stage a coordinator's batch; one of a transaction begins it here, if it is the first."""
        replica = self._replica
        self._require_writable()
        epoch, now_ms = replica.leader_epoch, replica.host.wall_ms()
        replica.commit_later(pending, replica.log.staging.stage_built(batch, epoch, now_ms))

    def append_marker(
        self, marker: bytearray, pending: Pending, transaction_version: int = 0
    ) -> None:
        """Stage the end of a transaction; batches that wait for its verification are refused."""
        replica = self._replica
        self._require_writable()
        epoch, now_ms = replica.leader_epoch, replica.host.wall_ms()
        staging = replica.log.staging
        replica.commit_later(
            pending, staging.stage_marker(marker, epoch, now_ms, transaction_version)
        )
        replica.verifications.transaction_ended(marker, transaction_version)
        replica.log.producers.forget_replicated(replica.high_watermark)

    def _require_writable(self) -> None:
        replica = self._replica
        if replica.partition.role is not Role.LEADER:
            raise replica.offline or KafkaError(E.NOT_LEADER_OR_FOLLOWER)
        if replica.refusal is not None:
            raise replica.refusal
        if not replica.partition.enough_in_sync:
            raise KafkaError(E.NOT_ENOUGH_REPLICAS)
