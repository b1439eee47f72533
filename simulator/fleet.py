"""The clients of a run, their faults, and a check of what group members own (I11)."""

from collections.abc import Awaitable, Callable

from headwater.model import NO_GENERATION, TopicPartition
from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.loop import SimLoop
from simulator.transaction_run import TransactionRun
from simulator.workload.real_clients import (
    RealAdmin,
    RealClient,
    RealMember,
    RealProducer,
    RealReader,
)

JUST_SENT_S = 0.0004
"""How long after a member has asked to join it dies: before the answer."""


class Fleet:
    """Producers, a reader, and the changing members of a group."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Promises,
        strategy: str,
        transactions: TransactionRun,
    ) -> None:
        self._cluster = cluster
        self._promises = promises
        self._strategy = strategy
        self._topic = ""
        self.transactions = transactions
        transactions.over = lambda: self.over
        self._started = 0
        self.calm = False
        """Whether all troubles are over and the cluster is healthy."""
        self.over = False
        """Whether readers and members must stop."""
        self.producers: list[RealClient] = []
        self.members: list[RealMember] = []
        self.reader: RealReader | None = None
        self._doomed: RealMember | None = None
        """The member that dies as soon as it waits for the others to join."""

    # -- those who work

    def add_producer(self, topic: str, records: int, pause_ms: int) -> None:
        """Add a producer that sends this many records and pauses between some of them."""
        name = f"producer-{len(self.producers)}"
        producer = RealProducer(self._cluster, self._promises, name, topic, records, pause_ms)
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
        reader = [self.reader] if self.reader is not None else []
        return [*reader, *self.members, *self.transactions.readers]

    # -- what the nemesis does

    def loops(self) -> list[SimLoop]:
        """The loops of all client processes."""
        clients = (*self.producers, *self.transactions.transactors, *self.readers)
        return [client.loop for client in clients if not client.done]

    def replace_member(self, number: int, *, before: bool) -> bool:
        """Kill a member; another one joins shortly before or after."""
        if not self.members:
            return False
        member = self.members[number % len(self.members)]
        if before:
            self._add_member()
        self._kill(member)
        if not before:
            self._add_member()
        return True

    def doom_member(self) -> bool:
        """Let another member come; the leader of the group dies once it has asked to join with it."""
        leaders = [one for one in self.members if one.membership and one.membership.leading]
        if not leaders:
            return False
        self._doomed = leaders[0]
        self._add_member()
        return True

    def _kill_joining(self, member: RealMember) -> None:
        if member in self.members and member.is_joining and not self.calm:
            self._kill(member)

    def _kill(self, member: RealMember) -> None:
        self.members.remove(member)
        member.loop.kill()
        self._cluster.network.process_died(member.loop)

    def operator(self, name: str, work: Callable[[RealAdmin], Awaitable[None]]) -> RealAdmin:
        """Run `work` with an admin client."""
        admin = RealAdmin(self._cluster, self._promises, name, work)
        admin.begin()
        return admin

    # -- what must hold

    def look(self, host: str) -> None:
        """Check after an event that no two members own a partition in one generation."""
        doomed = self._doomed
        if doomed is not None and doomed.name == host and doomed.is_joining:
            self._doomed = None
            self._cluster.clients.call_later(JUST_SENT_S, self._kill_joining, doomed)
        owners: dict[tuple[int, TopicPartition], str] = {}
        for member in self.members:
            membership = member.membership
            if membership is None or membership.generation == NO_GENERATION:
                continue
            # Until a member has its next assignment, what it owns is of the generation before.
            generation = membership.had_generation
            for at in membership.owned:
                other = owners.setdefault((generation, at), member.name)
                if other != member.name:
                    self._promises.complain(
                        f"I11: {at} is owned by {other} and by {member.name} in generation "
                        f"{generation}"
                    )
