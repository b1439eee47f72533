"""Chooses the leader of a partition, and claims the role of controller. Pure.

A leader is an in-sync replica or, if none is live, an eligible leader replica (KIP-966). Any other
replica may lead only if the topic accepts the loss of records. Each change of leader raises the leader
epoch.

Eligible leader replicas left the in-sync set when it had, or came to have, fewer members than
min.insync.replicas. The high watermark does not move then, so they have every committed record. A broker
that may have lost records is neither in sync nor eligible. If that leaves nobody, the last known leader
leads.
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
    """The leader and the in-sync set.

    An election is `unclean` if the leader was not in sync, and `lossy` if it may have lost records like
    every other replica that had them all.
    """

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False
    lossy: bool = False


def elect(
    partition: PartitionRegistration,
    state: ClusterState,
    *,
    unclean: bool = False,
    passed_over: Collection[int] = (),
) -> Election:
    """The first live in-sync replica in the order of the assignment, else the first eligible one.

    Brokers that shut down or are `passed_over` lead only if there is no other. Without a leader the
    in-sync set stays: only its members and the eligible replicas have every acknowledged record.
    """
    isr = surviving_isr(partition, state)
    leader = _first(partition.replicas, state, isr, passed_over)
    if leader != NO_LEADER:
        lossy = leader not in partition.isr or state.may_have_lost_records(leader)
        return Election(leader, isr, lossy=lossy)
    leader = _first(partition.replicas, state, surviving_elr(partition, state), passed_over)
    if leader != NO_LEADER:
        return Election(leader, (leader,))
    alive = [broker for broker in partition.replicas if broker in state.brokers]
    if not unclean or not alive:
        return Election(NO_LEADER, isr)
    whole = [broker for broker in alive if not state.brokers[broker].node.lost_log_dirs]
    leader = _first(partition.replicas, state, whole or alive)
    return Election(leader, (leader,), unclean=True)


def surviving_isr(partition: PartitionRegistration, state: ClusterState) -> tuple[int, ...]:
    """The in-sync set without members that are gone or may have lost records.

    If no intact member is live, the intact ones stay. Without any, the set is empty as long as there are
    eligible replicas; after that the last known leader has to do.
    """
    intact = [broker for broker in partition.isr if not state.may_have_lost_records(broker)]
    if intact:
        return tuple(broker for broker in intact if broker in state.brokers) or tuple(intact)
    return () if surviving_elr(partition, state) else _last_known(partition, state)


def surviving_elr(partition: PartitionRegistration, state: ClusterState) -> tuple[int, ...]:
    """The eligible leader replicas without those that may have lost records."""
    return tuple(broker for broker in partition.elr if not state.may_have_lost_records(broker))


def eligible_beside(
    partition: PartitionRegistration, isr: tuple[int, ...], state: ClusterState, needed: int
) -> tuple[int, ...]:
    """The eligible leader replicas once the in-sync set becomes `isr`.

    There are none if `isr` has the `needed` members: from then on records are committed without them.
    """
    if len(isr) >= needed:
        return ()
    complete = {*partition.isr, *partition.elr}.difference(isr)
    return tuple(
        broker
        for broker in partition.replicas
        if broker in complete and not state.may_have_lost_records(broker)
    )


def _last_known(partition: PartitionRegistration, state: ClusterState) -> tuple[int, ...]:
    """The last known leader: every replica that had all records may have lost some.

    Without it, the first of them in the order of the assignment. One that lost log dirs counts only if
    no other replica exists: it may have to lead with an empty log, and the others would delete what they
    have.
    """
    last = partition.leader if partition.leader != NO_LEADER else partition.last_known_leader
    members = [
        broker
        for broker in partition.replicas
        if broker == last or broker in partition.isr or broker in partition.elr
    ]
    if len(partition.replicas) > 1:
        members = [broker for broker in members if not state.has_lost_log_dirs(broker)]
    return (last,) if last in members else tuple(members[:1])


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
