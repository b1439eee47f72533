"""Runs one seed of a whole cluster: brokers, ZooKeeper, real clients, troubles, the verdict."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from headwater.client.admin.topics import NewTopic
from headwater.config.broker_keys.replication import RACK_AWARE_SELECTOR
from headwater.controller.store.tree import Edit
from headwater.model import TopicPartition, Uuid
from simulator.cluster import Cluster, paused_garbage_collection
from simulator.cluster_audit import ORDERS, Auditor, partitions_of
from simulator.cluster_nemesis import ClusterNemesis
from simulator.cluster_plan import SESSION_MS, ClusterPlan
from simulator.cluster_settings import IDLE_SETTINGS, REPLICATED, SETTINGS
from simulator.committed import Committed, CommittedLogs, Key, LogView
from simulator.fleet import Fleet
from simulator.invariants import Promises
from simulator.loop import Stuck
from simulator.metadata_checks import MetadataChecks
from simulator.operations import EVENTS
from simulator.randomness import stream
from simulator.security.acl_history import LAG_US
from simulator.security.run import SecurityRun
from simulator.security.users import OF, PROTOCOL, Users
from simulator.store_checks import StoreChecks, StoreView
from simulator.transaction_run import DRAFTS, STUCK_S, TransactionRun
from simulator.workload.real_clients import RealAdmin, RealClient

CLICKS = "clicks"
START_LIMIT_S = 60.0
HEAL_LIMIT_S = 60.0
TROUBLES_LIMIT_S = 60.0
CALM_S = 1.0


@dataclass(frozen=True)
class ClusterVerdict:
    """How a run of a cluster ended."""

    seed: int
    digest: str
    """Equal for equal seeds, on any machine."""
    complaints: list[str]
    """Broken promises; empty in a good run."""
    plan: ClusterPlan
    events: int
    virtual_s: float
    acknowledged: int
    committed: int
    """How many transactions were acknowledged as committed."""
    injected: Counter[str]
    trace: list[str]

    @property
    def good(self) -> bool:
        """Whether every promise was kept."""
        return not self.complaints


@paused_garbage_collection()
def simulate_cluster(
    seed: int,
    *,
    plan: ClusterPlan | None = None,
    keep_trace: bool = False,
    looks: Mapping[int, "Look"] = MappingProxyType({}),
) -> ClusterVerdict:
    """Run one seed to its end, under its own plan or another.

    `looks` are called in the middle of the run, that many milliseconds after the troubles have begun.
    """
    plan = plan or ClusterPlan.of(seed)
    settings = {**SETTINGS, "min.insync.replicas": str(plan.min_insync), **plan.settings}
    if plan.idle_s:
        settings |= IDLE_SETTINGS
    for key in REPLICATED:
        settings[key] = str(plan.brokers)
    if plan.follower_reads:
        settings["replica.selector.class"] = RACK_AWARE_SELECTOR
    users = Users(stream(seed, "users")) if plan.secured else None
    if users is not None:
        settings |= users.broker_settings()
    with Cluster(
        seed,
        settings,
        slowest_network_ms=plan.slowest_network_ms,
        slowest_thread_ms=plan.slowest_thread_ms,
        keep_trace=keep_trace,
        brokers=plan.brokers,
        session_ms=SESSION_MS,
        protocol=PROTOCOL if plan.secured else "PLAINTEXT",
    ) as cluster:
        run = ClusterRun(cluster, plan, users)
        run.looks = looks
        try:
            run.play()
        except Stuck as stuck:
            cluster.scheduler.complain(f"stuck: {stuck}")
        return ClusterVerdict(
            seed,
            cluster.trace.digest,
            list(cluster.complaints),
            plan,
            cluster.scheduler.events,
            cluster.scheduler.now_us / 1e6,
            run.promises.acknowledged(),
            run.committed_transactions,
            run.nemesis.injected,
            cluster.trace.lines or [],
        )


Look: TypeAlias = Callable[["ClusterRun"], None]


class _Broken(Exception):
    """A promise is broken, or no longer holds: later events are meaningless."""


class ClusterRun:
    """The script of a run."""

    def __init__(self, cluster: Cluster, plan: ClusterPlan, users: Users | None) -> None:
        assert cluster.zookeeper is not None
        self._cluster = cluster
        self._plan = plan
        complain = cluster.scheduler.complain
        self.promises = Promises(complain, all_synced=False)
        self._logs = CommittedLogs(cluster.nodes, complain, frozenset({EVENTS, DRAFTS}))
        self.promises.committed_end = self._logs.end_of
        self._metadata = MetadataChecks(complain)
        self._nodes = {node.host: node for node in cluster.nodes}
        self.view = StoreView(cluster.zookeeper.tree)
        self.looks: Mapping[int, Look] = {}
        checks = StoreChecks(cluster.zookeeper.tree, complain)
        checks.on_registration, checks.on_in_sync = self._logs.registered, self._in_sync_stored
        self._security = SecurityRun(cluster, self.promises, users) if users is not None else None
        cluster.zookeeper.on_edit = checks.edited
        if self._security is not None:
            cluster.zookeeper.on_edit = _both(checks.edited, self._security.edited)
        self._void = False
        """Whether only a machine that lost power has the records of a partition."""
        self._ends: dict[Key, int] = {}
        """Where the committed part of each partition ended before the brokers stopped."""
        self._transactions = TransactionRun(cluster, plan, self.promises, self._logs)
        self._fleet = Fleet(cluster, self.promises, plan.strategy, self._transactions)
        cluster.scheduler.after_event = self._look
        self.nemesis = ClusterNemesis(cluster, plan, self._fleet)
        for node in cluster.nodes:
            node.faults.cold, node.faults.short = plan.cold, plan.short

    @property
    def committed_transactions(self) -> int:
        """The number of transactions that were acknowledged as committed."""
        return sum(bool(one.committed) for one in self._transactions.books.transactions.values())

    def play(self) -> None:
        """Set up, run the troubles, heal; then check that everything recovers."""
        try:
            self._play()
        except _Broken:
            return

    def _play(self) -> None:
        self._start_all()
        self._found_security()
        self._create_topics()
        self._begin_clients()
        recreators = [self._begin(self._recreator())] if self._plan.recreated else []
        if self._plan.recreated and self._plan.transactors:
            recreators.append(self._begin(self._recreator_of_drafts()))
        self.nemesis.begin()
        looks = dict(self.looks)
        for at_ms in looks:
            self._cluster.clients.call_later(at_ms / 1000, lambda at=at_ms: looks.pop(at)(self))
        self._until(
            lambda: self.nemesis.done and not looks, TROUBLES_LIMIT_S + self._plan.ends_ms / 1000,
            "the troubles do not end",
        )  # fmt: skip
        self._heal()
        self._until_well()
        self._fleet.calm = True
        if self._security is not None:
            self._security.calm()
        clients = [*self._fleet.producers, *self._transactions.transactors, *recreators]
        self._until(
            lambda: all(client.done for client in clients), HEAL_LIMIT_S,
            lambda: f"L4: {[client.name for client in clients if not client.done]} do not finish",
        )  # fmt: skip
        self._until(self._all_read, HEAL_LIMIT_S, lambda: f"L3: {self._unread()}")
        transactions = self._transactions
        self._until_no_transaction_hangs()
        self._until(
            lambda: not transactions.unfollowed(), HEAL_LIMIT_S,
            lambda: f"L4: {transactions.unfollowed()}",
        )  # fmt: skip
        self._end_security()
        self._stay_idle()
        if self._plan.idle_s:
            self._audit()
        self._fleet.over = True
        readers = self._fleet.readers
        self._until(
            lambda: all(reader.done for reader in readers), HEAL_LIMIT_S,
            lambda: f"L4: {[one.name for one in readers if not one.done]} do not stop",
        )  # fmt: skip
        self._audit()
        self._until_well()
        self._ends = self._logs.ends()
        self._stop_all()
        self._audit_disks()

    def _look(self, host: str) -> None:
        """Check the invariants after an event of this host."""
        node = self._nodes.get(host)
        if node is not None:
            life = node.life
            context = None if life is None else getattr(life.broker, "context", None)
            if life is not None and context is not None:
                self._logs.look(node, life, context)
                self._metadata.look(host, life, context)
        elif host.startswith("member"):
            self._fleet.look(host)

    def _in_sync_stored(
        self, topic_id: Uuid, at: TopicPartition, complete: tuple[int, ...]
    ) -> None:
        """Check the in-sync and eligible replicas of a partition.

        With min.insync.replicas=1 nobody is eligible. Then a machine that lost power and is not known to
        have, can be the last one in sync, and records may be lost: nothing more is promised.
        """
        lossy = self.nemesis.lossy
        if self._plan.min_insync == 1 and lossy and complete == (lossy.settings.node_id,):
            self._void = True
        self._logs.in_sync(topic_id, at, complete)

    def _until_no_transaction_hangs(self) -> None:
        transactions = self._transactions
        self._until(
            lambda: not transactions.hanging(), STUCK_S, lambda: f"L2: {transactions.hanging()}"
        )

    # -- users and rights

    def _found_security(self) -> None:
        """Give the clients their rights, and wait until every broker knows them."""
        if self._security is None:
            return
        founder = self._security.founder()
        founder.begin()
        self._until(lambda: founder.done, START_LIMIT_S, "S2: nobody gets rights")
        self._rest(LAG_US / 1e6)

    def _end_security(self) -> None:
        """Give the tenants all rights: they must be served, and no change may be lost."""
        security = self._security
        if security is None:
            return
        security.stop_wardens()
        self._until(
            lambda: not security.still_ruling(), HEAL_LIMIT_S,
            lambda: f"L4: {security.still_ruling()} do not stop",
        )  # fmt: skip
        restorer = security.restorer()
        restorer.begin()
        self._until(lambda: restorer.done, HEAL_LIMIT_S, "S2: nobody gets their rights back")
        self._until(
            lambda: not security.unserved(), HEAL_LIMIT_S,
            lambda: f"L4: not served, though it is allowed: {security.unserved()}",
        )  # fmt: skip
        self._until(
            lambda: not security.differences(), HEAL_LIMIT_S,
            lambda: f"S3: {security.differences()} have other ACLs than the store",
        )  # fmt: skip
        security.stop()
        self._until(
            lambda: not security.unfinished(), HEAL_LIMIT_S,
            lambda: f"L4: {security.unfinished()} do not stop",
        )  # fmt: skip
        self._until_no_transaction_hangs()

    # -- waiting

    def _stay_idle(self) -> None:
        self._rest(self._plan.idle_s)

    def _rest(self, time_s: float) -> None:
        scheduler = self._cluster.scheduler
        until_us = scheduler.now_us + int(time_s * 1_000_000)
        self._until(lambda: scheduler.now_us >= until_us, time_s + 1, "no time passes")

    def _until(
        self, done: Callable[[], bool], limit_s: float, why: "str | Callable[[], str]"
    ) -> None:
        scheduler = self._cluster.scheduler
        try:
            scheduler.run_until(lambda: self._void or bool(scheduler.complaints) or done(), limit_s)
        except Stuck as stuck:
            text = why if isinstance(why, str) else why()
            scheduler.complain(f"{text} ({stuck})")
        if self._void or scheduler.complaints:
            raise _Broken

    def _begin(self, client: RealClient) -> RealClient:
        client.begin()
        return client

    # -- the brokers

    def _start_all(self) -> None:
        for node in self._cluster.nodes:
            node.start()
        self._until(
            lambda: all(node.serving for node in self._cluster.nodes), START_LIMIT_S,
            "I10: the brokers do not start",
        )  # fmt: skip

    def _heal(self) -> None:
        """End every remaining trouble."""
        self._cluster.network.heal_all()
        for node in self._cluster.nodes:
            node.faults.crash_before = None
            if node.life is None:
                node.start()
            elif node.life.loop.paused:
                node.life.loop.resume()
        for loop in self._fleet.loops():
            loop.resume()

    def _until_well(self) -> None:
        """L1: every partition has a leader, all its replicas are in sync and know what is committed."""
        self._until(self._well, HEAL_LIMIT_S, lambda: f"L1: {self._illness()}")

    def _well(self) -> bool:
        return not self._illness()

    def _illness(self) -> list[str]:
        down = [node.host for node in self._cluster.nodes if not node.serving]
        if down:
            return [f"{host} does not serve" for host in down]
        return self.view.unwell() or self._logs.unmarked()

    def _stop_all(self) -> None:
        for node in self._cluster.nodes:
            node.stop()
        self._until(
            lambda: all(node.life is None for node in self._cluster.nodes), HEAL_LIMIT_S,
            "L5: the brokers do not stop",
        )  # fmt: skip

    # -- the clients

    def _create_topics(self) -> None:
        topics = [ORDERS, CLICKS, *([EVENTS] if self._plan.recreated else [])]
        more = [*self._transactions.topics, *(OF.values() if self._plan.secured else ())]

        async def create(admin: RealAdmin) -> None:
            for name in (*topics, *more):
                await admin.create(self._new_topic(name))

        founder = RealAdmin(self._cluster, self.promises, "founder", create)
        founder.begin()
        self._until(lambda: founder.done, START_LIMIT_S, "L4: the topics are not created")
        for name in topics:
            self.promises.add_topic(name, partitions_of(name), synced=False)
        self._until_well()

    def _new_topic(self, name: str) -> NewTopic:
        configs = {"min.insync.replicas": self._plan.min_insync}
        return NewTopic(name, partitions_of(name), self._plan.brokers, configs)

    def _begin_clients(self) -> None:
        topics = [ORDERS, *([EVENTS] if self._plan.recreated else [CLICKS]), CLICKS]
        for topic in topics[: self._plan.producers]:
            self._fleet.add_producer(topic, self._plan.records, self._plan.pause_ms)
        self._reader = self._fleet.add_readers(ORDERS, self._plan.members)
        self._transactions.begin(ORDERS, partitions_of(ORDERS))
        if self._security is not None:
            self._security.begin()

    def _recreator(self) -> RealAdmin:
        async def recreate(admin: RealAdmin) -> None:
            for _ in range(2):
                await admin.pause(6000)
                topic = self.promises.names[EVENTS].newest
                topic.doomed = True
                self.promises.topics.pop(EVENTS, None)
                doomed = self.view.topics()[EVENTS].topic_id
                await admin.delete(doomed)
                # A creation that was asked for earlier may still arrive: compare ids.
                while any(row.topic_id == doomed for row in self.view.topics().values()):
                    await admin.pause(300)
                topic.gone_us = self._cluster.scheduler.now_us
                self.promises.begin(
                    EVENTS, partitions_of(EVENTS), synced=False, forgetful=False,
                    now_us=self._cluster.scheduler.now_us,
                )  # fmt: skip
                while EVENTS not in self.view.topics():  # the controller may lag
                    await admin.create(self._new_topic(EVENTS))
                    await admin.pause(100)
                self.promises.topics[EVENTS] = partitions_of(EVENTS)

        return RealAdmin(self._cluster, self.promises, "recreator", recreate)

    def _recreator_of_drafts(self) -> RealAdmin:
        """What becomes of the records in this topic is not looked at."""

        async def recreate(admin: RealAdmin) -> None:
            await admin.pause(9000)
            doomed = self.view.topics()[DRAFTS].topic_id
            await admin.delete(doomed)
            while (row := self.view.topics().get(DRAFTS)) is None or row.topic_id == doomed:
                await admin.create(self._new_topic(DRAFTS))
                await admin.pause(300)

        return RealAdmin(self._cluster, self.promises, "recreator of drafts", recreate)

    def _unread(self) -> list[str]:
        """Return partitions that the reader or the group has not read to their end."""
        found, ends = [], {}
        for partition, position in self._reader.positions.items():
            books = self.promises.partitions[TopicPartition(ORDERS, partition)]
            end = ends[partition] = max(books.acknowledged, default=-1) + 1
            if position < end:
                found.append(f"{ORDERS}-{partition} is read up to {position} of {end}")
            committed = self.promises.commits_of("group", partition).acknowledged
            if self._plan.members and max(committed, 0) < end:
                found.append(f"{ORDERS}-{partition} is committed up to {committed} of {end}")
        return found or self._transactions.untransformed(ends)

    def _all_read(self) -> bool:
        return not self._unread()

    # -- the audit

    def _audit(self) -> None:
        auditor = Auditor(self._cluster, self.promises, "auditor", self._plan.members > 0)
        auditor.begin()
        self._until(lambda: auditor.done, HEAL_LIMIT_S, "L4: the audit does not end")
        transactions = self._transactions.audit() if self._fleet.over else None
        self._until(
            lambda: transactions is None or transactions.done, HEAL_LIMIT_S,
            "L4: the audit of the transactions does not end",
        )  # fmt: skip

    def _audit_disks(self) -> None:
        """Check that every log is intact, and that every replica has what was committed before the stop."""
        for node in self._cluster.nodes:
            node.verify_logs()
        self._transactions.audit_disks()
        for name, topic in self.view.topics().items():
            for partition, replicas in topic.replicas.items():
                at = TopicPartition(name, partition)
                committed = self._logs.of(topic.topic_id, at)
                for broker in replicas:
                    self._audit_disk(at, broker, committed)

    def _audit_disk(self, at: TopicPartition, broker: int, committed: Committed) -> None:
        """Compare a log with what was committed.

        A leader that stops may keep a last batch that it has not committed, and a replica that has
        stopped does not get what the others commit later.
        """
        node = next(node for node in self._cluster.nodes if node.settings.node_id == broker)
        folder = f"{node.settings.log_dirs[0]}/{at.topic}-{at.partition}"
        content = LogView(node, folder).up_to(1 << 62)
        for batch in content:
            if batch.base_offset < committed.end and batch != committed.by_base.get(
                batch.base_offset
            ):
                self._cluster.scheduler.complain(
                    f"I8: {at} has {batch} on the disk of {broker}, "
                    f"committed is {committed.by_base.get(batch.base_offset)}"
                )
                return
        end = content[-1].last_offset + 1 if content else 0
        if end < self._ends.get(committed.key, 0):
            self._cluster.scheduler.complain(
                f"I8: {at} ends at {end} on the disk of {broker}, {self._ends[committed.key]} was "
                "committed before the stop"
            )


def _both(first: Callable[[Edit], None], second: Callable[[Edit], None]) -> Callable[[Edit], None]:
    def edited(edit: Edit) -> None:
        first(edit)
        second(edit)

    return edited
