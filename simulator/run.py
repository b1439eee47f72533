"""Runs one seed: a broker, its clients, the troubles, and the verdict."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from headwater.model import TopicPartition
from simulator.cluster import Cluster, paused_garbage_collection
from simulator.faults import FaultPlan, Nemesis
from simulator.invariants import Promises
from simulator.loop import Stuck
from simulator.node import DIRS
from simulator.randomness import stream
from simulator.workload.admin import RECREATED, Admin
from simulator.workload.audit import GROUP_TOPIC, Auditor
from simulator.workload.consumer import Consumer
from simulator.workload.member import Member
from simulator.workload.producer import Producer
from simulator.workload.recreator import Recreator

SETTINGS = {
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "log.retention.check.interval.ms": "900",
    "log.segment.delete.delay.ms": "300",
    "log.index.interval.bytes": "500",
    "producer.id.expiration.check.interval.ms": "1100",
    # After the clock was set back by years, every record is in the future.
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
}
LIMIT_S = 3600.0


@dataclass(frozen=True)
class Verdict:
    """How a run ended."""

    seed: int
    digest: str
    """Equal for equal seeds, on any machine."""
    complaints: list[str]
    """Broken promises; empty in a good run."""
    fault_plan: FaultPlan
    events: int
    lives: int
    acknowledged: int
    trace: list[str]

    @property
    def good(self) -> bool:
        """Whether every promise was kept."""
        return not self.complaints


@paused_garbage_collection()
def simulate(
    seed: int, *, fault_plan: FaultPlan | None = None, keep_trace: bool = False
) -> Verdict:
    """Run one seed to its end, with its own faults or others."""
    fault_plan = fault_plan or FaultPlan.of(seed)
    settings = dict(SETTINGS)
    if fault_plan.all_synced:
        settings["log.flush.interval.messages"] = "1"
    settings["log.dirs"] = ",".join(DIRS[: fault_plan.log_dirs])
    with Cluster(
        seed,
        settings,
        slowest_network_ms=fault_plan.slowest_network_ms,
        slowest_thread_ms=fault_plan.slowest_thread_ms,
        keep_trace=keep_trace,
    ) as cluster:
        run = _Run(cluster, fault_plan)
        try:
            cluster.run(run.play(), LIMIT_S)
        except Stuck as stuck:
            cluster.scheduler.complain(f"stuck: {stuck}")
        return Verdict(
            seed,
            cluster.trace.digest,
            cluster.complaints,
            fault_plan,
            cluster.scheduler.events,
            cluster.node.lives,
            run.promises.acknowledged(),
            cluster.trace.lines or [],
        )


class _Run:
    """The script of a run."""

    def __init__(self, cluster: Cluster, fault_plan: FaultPlan) -> None:
        self._cluster = cluster
        self._fault_plan = fault_plan
        self._chance = stream(cluster.seed, "script")
        self.promises = Promises(cluster.scheduler.complain, all_synced=fault_plan.all_synced)
        self._nemesis = Nemesis(cluster, fault_plan, self.promises, self._audit_after_power_cut)
        self._done = False

    async def play(self) -> None:
        """Set up, run the troubles, heal, and audit three times."""
        await self._nemesis.start()
        await self._create_topics()
        finite = [self._task(client) for client in self._finite_clients()]
        endless = [self._task(client) for client in self._endless_clients()]
        await self._nemesis.run()
        await asyncio.gather(*finite)
        self._done = True
        await asyncio.gather(*endless)
        await self._audit("audit 1")
        self._check_quiet()
        await self._nemesis.stop()
        await self._nemesis.start()
        await self._audit("audit 2")
        await self._nemesis.stop()
        self._cluster.node.verify_logs()
        # A clean stop syncs everything, so that even a power failure loses nothing.
        self._cluster.node.lose_power()
        await self._nemesis.start()
        await self._audit("audit 3")
        await self._nemesis.stop()
        self._cluster.node.verify_logs()

    def _task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._cluster.clients.create_task(work)

    async def _audit(self, name: str) -> None:
        await Auditor(self._cluster, self.promises, name).run()

    async def _audit_after_power_cut(self) -> None:
        name = f"audit of cut {self._cluster.node.power_cuts}"
        await Auditor(self._cluster, self.promises, name).run(after_power_cut=True)

    async def _create_topics(self) -> None:
        admin = Admin(self._cluster, self.promises, "founder")
        for name, partitions in (("orders", 2), ("clicks", 1)):
            synced = self._chance.random() < 0.3
            configs = {"segment.bytes": str(self._chance.choice((5000, 9000, 1 << 20)))}
            if synced:
                configs["flush.messages"] = "1"
            elif self._chance.random() < 0.5:
                configs["flush.ms"] = "200"
            if self._chance.random() < 0.3:
                configs["message.timestamp.type"] = "LogAppendTime"
            if self._chance.random() < 0.3:
                configs["compression.type"] = "gzip"
            forgetful = self._chance.random() < 0.3
            if forgetful:
                configs["retention.bytes"] = "7000"
            await admin.create(name, partitions, configs)
            self.promises.add_topic(name, partitions, synced=synced, forgetful=forgetful)
        if self._fault_plan.recreated:
            await self._recreator().create_again()
        await admin.create(GROUP_TOPIC, 2, {})
        self.promises.topics[GROUP_TOPIC] = 2
        admin.disconnect()

    def _recreator(self) -> Recreator:
        return Recreator(self._cluster, self.promises, "recreator", RECREATED)

    def _finite_clients(self) -> list[Coroutine[Any, Any, None]]:
        clients = []
        for number in range(self._chance.randrange(2, 5)):
            once = self._chance.random() < 0.6
            producer = Producer(
                self._cluster,
                self.promises,
                f"producer-{number}",
                self._any_partition(),
                acks=-1 if once else self._chance.choice((-1, 1, 0)),
                once=once,
                batches=self._chance.randrange(5, 25),
            )
            clients.append(producer.run())
        if self._fault_plan.recreated:
            clients.append(self._recreator().run(self._chance.randrange(2, 6)))
        if self._chance.random() < 0.7:
            clients.append(Admin(self._cluster, self.promises, "admin").run(5))
        return clients

    def _endless_clients(self) -> list[Coroutine[Any, Any, None]]:
        clients = [
            Consumer(self._cluster, self.promises, f"consumer-{number}", at).run(self._is_done)
            for number, at in enumerate(self.promises.partitions)
            if self._chance.random() < 0.5
        ]
        for number in range(self._chance.randrange(3)):
            member = Member(self._cluster, self.promises, f"member-{number}", "group", number)
            clients.append(member.run(self._is_done))
        return clients

    def _any_partition(self) -> TopicPartition:
        """Choose a partition, mostly of the topic that is deleted in use, if there is one."""
        places = list(self.promises.partitions)
        recreated = [at for at in places if at.topic == RECREATED]
        if recreated and self._chance.random() < 0.6:
            return self._chance.choice(recreated)
        return self._chance.choice(places)

    def _is_done(self) -> bool:
        return self._done

    def _check_quiet(self) -> None:
        """Check that no request is left unanswered after all clients have stopped."""
        for connection in self._cluster.node.broker.context.connection_quotas.open:
            if getattr(connection, "slots", None):
                self.promises.complain("L5: a request was never answered")
