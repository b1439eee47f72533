"""Chooses the leader of a partition, and claims the role of controller. Pure.

A leader is an in-sync replica; any other replica may lead only if the topic accepts the loss of
records. Each change of leader raises the leader epoch.
"""

from collections.abc import Collection
from typing import NamedTuple

from headwater.controller.state import ClusterState, PartitionRegistration
from headwater.controller.store.metadata_store import Create, Op, Set
from headwater.controller.store.znodes import CONTROLLER, CONTROLLER_EPOCH, encode_controller
from headwater.model import NO_LEADER


def claim_controller(broker_id: int, now_ms: int, epoch: int, epoch_version: int) -> list[Op]:
    """The one multi that makes `broker_id` the controller of epoch `epoch` + 1.

    It fails as a whole if another broker was faster and created /controller or changed the version.
    """
    return [
        Set(CONTROLLER_EPOCH, str(epoch + 1).encode(), epoch_version),
        Create(CONTROLLER, encode_controller(broker_id, now_ms), ephemeral=True),
    ]


class Election(NamedTuple):
    """The leader, the in-sync set, and whether the election may lose acknowledged records."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def elect(
    partition: PartitionRegistration,
    state: ClusterState,
    *,
    unclean: bool = False,
    passed_over: Collection[int] = (),
) -> Election:
    """The first live in-sync replica in the order of the assignment; NO_LEADER if there is none.

    Brokers that shut down or are `passed_over` lead only if there is no other. Without a leader the
    in-sync set stays: only its members have every acknowledged record.
    """
    isr = surviving_isr(partition, state)
    leader = _first(partition.replicas, state, isr, passed_over)
    if leader != NO_LEADER:
        return Election(leader, isr)
    alive = [broker for broker in partition.replicas if broker in state.brokers]
    if not unclean or not alive:
        return Election(NO_LEADER, isr)
    whole = [broker for broker in alive if not state.brokers[broker].node.lost_log_dirs]
    leader = _first(partition.replicas, state, whole or alive)
    return Election(leader, (leader,), unclean=True)


def surviving_isr(partition: PartitionRegistration, state: ClusterState) -> tuple[int, ...]:
    """The in-sync set without members that are gone or may have lost records.

    If no intact member is live, the intact ones stay. If every member may have lost records, the first
    in the order of the assignment stays. One that lost log dirs stays only if no other replica exists:
    it may have to lead with an empty log, and the others would delete what they have.
    """
    intact = [broker for broker in partition.isr if not state.may_have_lost_records(broker)]
    if not intact:
        members = [broker for broker in partition.replicas if broker in partition.isr]
        if len(partition.replicas) > 1:
            members = [broker for broker in members if not state.has_lost_log_dirs(broker)]
        return tuple(members[:1])
    return tuple(broker for broker in intact if broker in state.brokers) or tuple(intact)


def _first(
    replicas: tuple[int, ...],
    state: ClusterState,
    among: Collection[int],
    passed_over: Collection[int] = (),
) -> int:
    live = [broker for broker in replicas if broker in among and broker in state.brokers]
    staying = [
        broker for broker in live if broker not in state.shutting_down and broker not in passed_over
    ]
    return next(iter(staying or live), NO_LEADER)


def needs_election(partition: PartitionRegistration, state: ClusterState) -> bool:
    """Whether the partition has no live leader, or its leader restarted since the election."""
    return partition.leader not in state.brokers or state.has_restarted(partition.leader)
