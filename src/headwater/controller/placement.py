"""Places replicas: leaders and replicas spread evenly, over as many racks as possible.

Pure and deterministic. The choice depends on counts, not on a random start: a number of small topics
spreads as evenly as one large topic.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

Load: TypeAlias = Mapping[int, tuple[int, int]]
"""Per broker, how many partitions it already leads and how many replicas it already holds."""


class Site(NamedTuple):
    """A broker that can hold replicas, and its rack."""

    broker_id: int
    rack: str | None = None


class Placement:
    """Finds replicas for the partitions of one topic, one partition at a time.

    `taken` are the topic's present assignments, which count towards its spread.
    """

    def __init__(
        self, sites: Sequence[Site], load: Load, taken: Iterable[Sequence[int]] = ()
    ) -> None:
        self._racks = {site.broker_id: site.rack for site in sites}
        self._load = {broker: load.get(broker, (0, 0)) for broker in self._racks}
        self._leads = dict.fromkeys(self._racks, 0)
        self._holds = dict.fromkeys(self._racks, 0)
        self._pairs: dict[tuple[int, int], int] = {}
        for replicas in taken:
            self._count(replicas)

    def next(self, replication_factor: int) -> tuple[int, ...]:
        """The replicas of one more partition, the preferred leader first."""
        if not 1 <= replication_factor <= len(self._racks):
            raise ValueError(f"{replication_factor} replicas, {len(self._racks)} brokers")
        leader = min(self._racks, key=self._leader_rank)
        replicas = [leader]
        in_rack = {self._racks[leader]: 1}
        while len(replicas) < replication_factor:
            free = (broker for broker in self._racks if broker not in replicas)
            chosen = min(free, key=lambda broker: self._follower_rank(broker, leader, in_rack))
            replicas.append(chosen)
            in_rack[self._racks[chosen]] = in_rack.get(self._racks[chosen], 0) + 1
        self._count(replicas)
        return tuple(replicas)

    def _count(self, replicas: Sequence[int]) -> None:
        leader = replicas[0]
        self._leads[leader] = self._leads.get(leader, 0) + 1
        for broker in replicas:
            self._holds[broker] = self._holds.get(broker, 0) + 1
            self._pairs[leader, broker] = self._pairs.get((leader, broker), 0) + 1

    def _leader_rank(self, broker: int) -> tuple[int, ...]:
        leads, holds = self._load[broker]
        return self._leads[broker], self._holds[broker], leads, holds, broker

    def _follower_rank(
        self, broker: int, leader: int, in_rack: Mapping[str | None, int]
    ) -> tuple[int, ...]:
        # Another rack first; then few replicas; then a rare pair, so that the partitions of a
        # failed leader spread over many brokers.
        together = self._pairs.get((leader, broker), 0)
        rack = in_rack.get(self._racks[broker], 0)
        return rack, self._holds[broker], together, self._load[broker][1], broker


def rack_problem(sites: Sequence[Site]) -> str | None:
    """Why replicas cannot spread evenly over the racks, for a log line; None if they can."""
    named = [site.rack for site in sites if site.rack is not None]
    if not named:
        return None
    if len(named) < len(sites):
        bare = ", ".join(str(site.broker_id) for site in sites if site.rack is None)
        return f"brokers without broker.rack beside brokers with one: {bare}"
    counts = {rack: named.count(rack) for rack in named}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{rack}={count}" for rack, count in sorted(counts.items()))
        return f"racks of unequal size, the smaller ones will hold more per broker: {shown}"
    return None
