"""Chooses the leader of a partition, and claims the role of controller. Pure.

A leader comes from the in-sync replicas, or from outside only if the topic allows losing records.
Each change of leader raises the leader epoch.
"""

from collections.abc import Collection, Mapping

from headwater.controller.state import LiveBroker, PartitionRegistration
from headwater.controller.store.metadata_store import Create, Op, Set
from headwater.controller.store.znodes import CONTROLLER, CONTROLLER_EPOCH, encode_controller
from headwater.model import NO_LEADER


def claim_controller(broker_id: int, now_ms: int, epoch: int, epoch_version: int) -> list[Op]:
    """The one multi that makes `broker_id` the controller of epoch `epoch` + 1.

    Both or nothing: a broker that was faster has created /controller or changed the version.
    """
    return [
        Set(CONTROLLER_EPOCH, str(epoch + 1).encode(), epoch_version),
        Create(CONTROLLER, encode_controller(broker_id, now_ms), ephemeral=True),
    ]


def elect(
    partition: PartitionRegistration, live: Collection[int], *, unclean: bool
) -> tuple[int, tuple[int, ...], bool]:
    """Leader, in-sync set and whether the choice is unclean; NO_LEADER if no replica may lead.

    Without a leader the in-sync set stays as it is: only its members have every acknowledged record.
    """
    in_sync = [broker for broker in partition.isr if broker in live]
    candidates = [broker for broker in partition.replicas if broker in in_sync]
    if candidates:
        return candidates[0], tuple(in_sync), False
    alive = [broker for broker in partition.replicas if broker in live]
    if unclean and alive:
        return alive[0], (alive[0],), True
    return NO_LEADER, partition.isr, False


def needs_election(partition: PartitionRegistration, live: Mapping[int, LiveBroker]) -> bool:
    """Whether there is no leader, or one that is gone or has restarted since its election."""
    leader = live.get(partition.leader)
    return leader is None or leader.epoch > partition.granted_at
