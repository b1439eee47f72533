"""The clients of a run, their faults, and a check of what group members own (I11)."""

from collections.abc import Awaitable, Callable

from headwater.model import NO_GENERATION, TopicPartition
from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.loop import SimLoop
from simulator.workload.real_clients import (
    RealAdmin,
    RealClient,
    RealMember,
    RealProducer,
    RealReader,
)


class Fleet:
    """Producers, a reader, and the changing members of a group."""

    def __init__(self, cluster: Cluster, promises: Promises, strategy: str) -> None:
        self._cluster = cluster
        self._promises = promises
        self._strategy = strategy
        self._topic = ""
        self._started = 0
        self.calm = False
        """Whether all troubles are over and the cluster is healthy."""
        self.over = False
        """Whether readers and members must stop."""
        self.producers: list[RealClient] = []
        self.members: list[RealMember] = []
        self.reader: RealReader | None = None

    # -- those who work

    def add_producer(self, topic: str, records: int) -> None:
        """Add a producer that sends this many records."""
        name = f"producer-{len(self.producers)}"
        producer = RealProducer(self._cluster, self._promises, name, topic, records)
        self.producers.append(producer)
        producer.begin()

    def add_readers(self, topic: str, members: int) -> RealReader:
        """Add one reader by assignment, and the members of a group."""
        self._topic = topic
        self.reader = RealReader(
            self._cluster, self._promises, "reader", topic, lambda: self.over
        )  # fmt: skip
        self.reader.begin()
        for _ in range(members):
            self._add_member()
        return self.reader

    def _add_member(self) -> None:
        name = f"member-{self._started}"
        self._started += 1
        member = RealMember(
            self._cluster, self._promises, name, self._topic, lambda: self.over,
            lambda: self.calm, self._strategy,
        )  # fmt: skip
        self.members.append(member)
        member.begin()

    @property
    def readers(self) -> list[RealClient]:
        """The clients that read until they must stop."""
        return [*([self.reader] if self.reader is not None else []), *self.members]

    # -- what the nemesis does

    def loops(self) -> list[SimLoop]:
        """The loops of all client processes."""
        return [client.loop for client in (*self.producers, *self.readers) if not client.done]

    def replace_member(self, number: int, *, before: bool) -> bool:
        """Kill a member; another one joins shortly before or after."""
        if not self.members:
            return False
        member = self.members[number % len(self.members)]
        if before:
            self._add_member()
        self.members.remove(member)
        member.loop.kill()
        self._cluster.network.process_died(member.loop)
        if not before:
            self._add_member()
        return True

    def operator(self, name: str, work: Callable[[RealAdmin], Awaitable[None]]) -> RealAdmin:
        """Run `work` with an admin client."""
        admin = RealAdmin(self._cluster, self._promises, name, work)
        admin.begin()
        return admin

    # -- what must hold

    def look(self, host: str) -> None:
        """Check after an event that no two members own a partition in one generation."""
        owners: dict[tuple[int, TopicPartition], str] = {}
        for member in self.members:
            membership = member.membership
            if membership is None or membership.generation == NO_GENERATION:
                continue
            for at in membership.owned:
                other = owners.setdefault((membership.generation, at), member.name)
                if other != member.name:
                    self._promises.complain(
                        f"I11: {at} is owned by {other} and by {member.name} in generation "
                        f"{membership.generation}"
                    )
