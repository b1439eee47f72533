"""Who leads: the choice of a partition's leader, and the claim to be the controller.

Pure. A leader comes from the in-sync replicas; one from outside only where the topic allows losing
records. Each take-over raises the leader epoch.
"""

from collections.abc import Collection, Mapping

from headwater.controller.state import LiveBroker, PartitionRegistration
from headwater.controller.store.metadata_store import Create, Op, Set
from headwater.controller.store.znodes import CONTROLLER, CONTROLLER_EPOCH, encode_controller
from headwater.model import NO_LEADER


def claim_controller(broker_id: int, now_ms: int, epoch: int, epoch_version: int) -> list[Op]:
    """The one multi that makes `broker_id` the controller of epoch `epoch` + 1.

    Both or nothing: whoever raced us has created /controller or moved the epoch's version.
    """
    return [
        Set(CONTROLLER_EPOCH, str(epoch + 1).encode(), epoch_version),
        Create(CONTROLLER, encode_controller(broker_id, now_ms), ephemeral=True),
    ]


def elect(
    partition: PartitionRegistration, live: Collection[int], *, unclean: bool
) -> tuple[int, tuple[int, ...], bool]:
    """Leader, in-sync set and whether the choice was unclean; NO_LEADER where nobody may lead.

    With nobody left the in-sync set is kept as it was: only its members know all that was promised.
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
    """Whether nobody leads, or a broker that is gone or has restarted since it was made leader."""
    leader = live.get(partition.leader)
    return leader is None or leader.epoch > partition.granted_at
