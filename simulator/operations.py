"""What an operator does to partitions while a cluster is in trouble: other leaders, other replicas."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from headwater.model import TopicPartition
from simulator.cluster_plan import Trouble
from simulator.randomness import Stream
from simulator.store_checks import StoreView
from simulator.transaction_run import DRAFTS
from simulator.workload.real_clients import RealAdmin

EVENTS = "events"
SWAPS = 8
"""How often leadership goes to and fro between two brokers."""
FEWEST_REPLICAS = 2
MOVES = 5
"""The most partitions that one operator moves in turn."""
CANCELED = 0.25
"""The share of moves that the operator takes back."""

Work: TypeAlias = Callable[[RealAdmin], Awaitable[None]]


def leader_moves(view: StoreView, trouble: Trouble, chance: Stream) -> Work:
    """Repeatedly change the order of replicas and elect the first one."""
    topics = view.topics()
    names = [name for name in topics if name not in (EVENTS, DRAFTS)]
    if trouble.who == "coordinator":
        names = [name for name in names if name.startswith("__")] or names
    places = [TopicPartition(name, 0) for name in names]

    async def move(admin: RealAdmin, at: TopicPartition, replicas: list[int]) -> None:
        await _reassign(admin, at, replicas)
        await admin.try_to(lambda core: core.replicas.elect_leaders([at]))

    async def work(admin: RealAdmin) -> None:
        at = chance.choice(places)
        known = list(topics[at.topic].replicas[0])
        replicas = chance.sample(known, len(known))
        if trouble.kind == "leaders swapped":
            for _ in range(SWAPS):
                replicas[:2] = replicas[1::-1]
                await move(admin, at, list(replicas))
                await admin.pause(100)
            return
        for _ in range(chance.randrange(2, 5)):
            await move(admin, at, chance.sample(replicas, len(replicas)))
            await admin.pause(chance.choice((50, 600)))

    return work


def partition_moves(
    view: StoreView, brokers: Sequence[int], trouble: Trouble, chance: Stream
) -> Work:
    """Give partitions other replicas, more of them or fewer, and take some of these moves back.

    A partition keeps two replicas, and may be moved again while it is being moved.
    """

    async def work(admin: RealAdmin) -> None:
        for _ in range(chance.randrange(1, MOVES + 1)):
            at = chance.choice(_places(view, trouble))
            count = chance.randrange(FEWEST_REPLICAS, len(brokers) + 1)
            await _reassign(admin, at, chance.sample(brokers, count))
            await admin.pause(chance.choice((1, 50, 600, 2000)))
            if chance.random() < CANCELED:
                await _reassign(admin, at, None)

    return work


def _places(view: StoreView, trouble: Trouble) -> list[TopicPartition]:
    places = [
        TopicPartition(name, partition)
        for name, topic in view.topics().items()
        for partition in topic.replicas
    ]
    internal = [at for at in places if at.topic.startswith("__")]
    return internal if internal and trouble.who == "coordinator" else places


async def _reassign(admin: RealAdmin, at: TopicPartition, replicas: list[int] | None) -> None:
    await admin.try_to(lambda core: core.replicas.reassign_partitions({at: replicas}))
