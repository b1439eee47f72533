"""One run: a cluster, its clients, the nemesis; then everything is healed, read back and checked."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import headwater
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from headwater.processes.child import NotStarted
from headwater.testing import Cluster
from tools.chaos_clients import contents, partition_reader
from tools.client_chaos import QUICK
from tools.cluster_chaos.access import (
    OPERATOR,
    READER,
    WRITER,
    Access,
    Secured,
    SecuredCluster,
    Users,
    grant_rights,
)
from tools.cluster_chaos.checker import Findings, check
from tools.cluster_chaos.disk_audit import audit, producers_of
from tools.cluster_chaos.faults import FAULTS, Target
from tools.cluster_chaos.guest import Guest
from tools.cluster_chaos.history import History, Written, read_history
from tools.cluster_chaos.members import CommitWatch, ConfluentMember, Member, OwnMember
from tools.cluster_chaos.nemesis import Nemesis
from tools.cluster_chaos.operations import Operator
from tools.cluster_chaos.shim import preloaded
from tools.cluster_chaos.stores import running_store
from tools.cluster_chaos.writers import ConfluentWriter, OwnWriter, Writer
from tools.recreated_topic import RecreatedTopic

SESSION_TIMEOUT_MS = 2000
HEAL_TIMEOUT_S = 120.0
ALONE = 0.25
"""How often a fault comes to a cluster that is in sync, and has to be survived."""
UNAWARE = ("isolate", "cut from store")
"""Faults after which a broker does not know that others lead."""
MOVED = "moved"
PARTITIONS = {"orders": 3, "payments": 2, MOVED: 2}
"""Written to by our producers, by confluent-kafka's, by both."""
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.segment.bytes": str(256 * 1024),
    "replica.lag.time.max.ms": "4000",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "zookeeper.connection.timeout.ms": "60000",
}


@dataclass(slots=True)
class Report:
    """What a run did and what it found."""

    seed: int
    seconds: float = 0.0
    findings: Findings = field(default_factory=Findings)
    operations: Counter[str] = field(default_factory=Counter)
    recreated_records: int = 0
    problems: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        found = self.findings
        return {
            "seed": self.seed,
            "seconds": round(self.seconds),
            "faults": dict(sorted(found.faults.items())),
            "operations": dict(sorted(self.operations.items())),
            "acknowledged": len(found.acknowledged) + self.recreated_records,
            "reads": found.reads,
            "commits": found.commits,
            "lost": found.lost,
            "doubled": found.doubled,
            "sent again by librdkafka": found.renumbered,
            "reordered": found.reordered,
            "went back": found.went_back,
            "problems": self.problems,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """How a run goes."""

    seed: int
    seconds: float
    zookeeper: bool = False
    kinds: Sequence[str] | None = None
    """The kinds of faults; by default all."""
    once: bool = False
    """Each kind once and alone, however long that takes."""
    secured: bool = False
    """Whether the cluster is one of `headwater security init`, with SASL_SSL and ACLs."""


def run(plan: Plan, folder: Path, tell: Callable[[str], None] = lambda _: None) -> Report:
    """Run and check; the folder keeps the history and the files of the brokers."""
    report = Report(plan.seed)
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    history = History(folder / "history.jsonl")
    with (
        preloaded(folder) as shim,
        running_store(folder / "store", zookeeper=plan.zookeeper) as store,
    ):
        brokers = folder / "brokers"
        secured = Secured(folder / "secure") if plan.secured else None
        cluster = _cluster(secured, zookeeper=store.address, data_dir=brokers)
        with cluster:
            chance = random.Random(plan.seed)
            replicas: dict[TopicPartition, Sequence[int]] = {}
            users = Users(cluster.bootstrap, secured)
            operator = users.access(OPERATOR)
            _create_topics(cluster)
            if plan.secured:
                grant_rights(operator)
            target = Target(
                cluster, store, shim, random.Random(chance.random()), list(PARTITIONS),
                SESSION_TIMEOUT_MS / 1000, store_login=None if secured is None else secured.store_login,
            )  # fmt: skip
            load = Load(cluster, users, history, chance)
            nemesis = Nemesis(target, history, load.wait_for_survivors, plan.kinds)
            try:
                _torment(plan, nemesis, load, tell)
                load.stop_operator()
                cluster.wait_until_in_sync(timeout_s=HEAL_TIMEOUT_S)
                load.finish(report)
                _read_back(operator, history)
                replicas = _replicas(operator)
            except (TimeoutError, NotStarted, KafkaError) as failure:
                report.problems.append(f"it did not heal: {failure}")
        history.close()
        folders = {broker: cluster.data_dir / f"broker-{broker}" for broker in cluster.broker_ids}
        report.findings = check(
            read_history(history.file),
            whole=bool(replicas),
            producers=producers_of(folders, replicas),
        )
        report.problems += report.findings.problems
        report.problems += audit(folders, replicas, report.findings.acknowledged)
    report.seconds = time.monotonic() - began
    return report


def _cluster(secured: Secured | None, **where: Any) -> Cluster:
    return (
        Cluster(3, SETTINGS, **where)
        if secured is None
        else SecuredCluster(secured, SETTINGS, **where)
    )


def _create_topics(cluster: Cluster) -> None:
    for topic, partitions in PARTITIONS.items():
        cluster.create_topic(topic, partitions, configs={"min.insync.replicas": "2"})


def _torment(plan: Plan, nemesis: Nemesis, load: "Load", tell: Callable[[str], None]) -> None:
    chance = random.Random(plan.seed)
    load.wait_for_progress()
    until = time.monotonic() + plan.seconds
    for number in count():
        if number >= len(plan.kinds or FAULTS) if plan.once else time.monotonic() > until:
            return
        if plan.once or chance.random() < ALONE:
            nemesis.strike_once()
        else:
            nemesis.strike()
        load.wait_for_progress()
        tell(f"{number + 1} strikes, {load.acknowledged:,} records acknowledged")


class Load:
    """All clients of a run."""

    def __init__(
        self, cluster: Cluster, users: Users, history: History, chance: random.Random
    ) -> None:
        self._history = history
        self._names = count()
        writer, operator = users.access(WRITER), users.access(OPERATOR)
        self._reader, self._operator_access = users.access(READER), operator

        def seeded() -> random.Random:
            return random.Random(chance.random())

        self.writers: list[Writer] = [
            OwnWriter(writer, "own-1", "orders", history, seeded()),
            OwnWriter(writer, "own-2", "orders", history, seeded()),
            OwnWriter(writer, "own-3", MOVED, history, seeded()),
            ConfluentWriter(writer, "confluent-1", "payments", history, seeded()),
            ConfluentWriter(writer, "confluent-2", MOVED, history, seeded()),
            ConfluentWriter(writer, "confluent-3", "payments", history, seeded(), idempotent=False),
        ]
        self.groups: dict[str, tuple[type[OwnMember] | type[ConfluentMember], list[Member]]] = {
            "own": (OwnMember, []),
            "confluent": (ConfluentMember, []),
        }
        for group in self.groups:
            self._join(group)
            self._join(group)
        self._watch = CommitWatch(self._reader, list(self.groups), _places(), history)
        self._recreated = RecreatedTopic(
            operator.bootstrap, seeded(), replicas=3, patience_s=HEAL_TIMEOUT_S,
            security=operator.security,
        )  # fmt: skip
        works: dict[str, Callable[[], object]] = {"member changed": self._change_member}
        self._guest = Guest(users, cluster, seeded()) if users.secured else None
        if self._guest is not None:
            works |= self._guest.works
        self._operator = Operator(
            operator,
            [TopicPartition(MOVED, number) for number in range(PARTITIONS[MOVED])],
            cluster.broker_ids, self._recreated, works, history, seeded(),
        )  # fmt: skip

    @property
    def acknowledged(self) -> int:
        return sum(writer.acknowledged for writer in self.writers)

    def _join(self, group: str) -> None:
        kind, members = self.groups[group]
        name = f"{group}-member-{next(self._names)}"
        members.append(kind(self._reader, group, name, list(PARTITIONS), self._history))

    def _change_member(self) -> None:
        """One comes, another leaves."""
        for group, (_, members) in self.groups.items():
            self._join(group)
            members.pop(0).finish()

    def wait_for_progress(self) -> None:
        """Wait until every writer has new acknowledgments for all its keys."""
        self._wait_for_writers(self.writers)

    def wait_for_survivors(self, kind: str) -> None:
        """Wait for those whose partitions have three replicas.

        A broker that hears nothing from its store tells its clients that it leads. librdkafka may ask
        no other broker for long, if this one led all that it writes to.
        """
        self._wait_for_writers(
            [
                writer
                for writer in self.writers
                if writer.topic != MOVED and (kind not in UNAWARE or isinstance(writer, OwnWriter))
            ]
        )

    def _wait_for_writers(self, writers: Sequence[Writer]) -> None:
        """Wait for records of each key, so of each partition, that are sent from now on."""
        moment = time.monotonic()

        def behind() -> dict[str, list[str]]:
            found = {writer.name: writer.keys_behind(moment) for writer in writers}
            return {name: keys for name, keys in found.items() if keys}

        self._wait(lambda: not behind(), lambda: f"acknowledgments, missing for {behind()}")

    def stop_operator(self) -> None:
        """No more changes by an operator."""
        self._operator.finish()

    def finish(self, report: Report) -> None:
        """Writers end, groups read everything, members leave."""
        report.operations = self._operator.done
        for writer in self.writers:
            writer.finish(HEAL_TIMEOUT_S)
        self._recreated.finish()
        if self._guest is not None:
            report.problems += self._guest.finish()
        try:
            self._finish_recreated(report)
            self._finish_groups()
        finally:
            self._watch.finish()
            for _, members in self.groups.values():
                for member in members:
                    member.finish()

    def _finish_recreated(self, report: Report) -> None:
        report.recreated_records = len(self._recreated.acknowledged)
        there = self._recreated.read(self._operator_access.bootstrap)
        report.problems += self._recreated.check(there)

    def _finish_groups(self) -> None:
        ends = _ends(self._operator_access)
        for group in self.groups:
            self._wait_for_commits(group, ends)

    def _wait_for_commits(self, group: str, ends: Mapping[TopicPartition, int]) -> None:
        self._wait(
            lambda: self._watch.look(group) == ends,
            lambda: f"group {group} to commit {ends}, not {self._watch.look(group)}",
        )

    def _wait(self, holds: Callable[[], bool], what: Callable[[], str]) -> None:
        deadline = time.monotonic() + HEAL_TIMEOUT_S
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {HEAL_TIMEOUT_S:.0f} s for {what()}")
            time.sleep(0.05)


# -- the end


def _places() -> list[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic, partitions in PARTITIONS.items()
        for number in range(partitions)
    ]


def _ends(access: Access) -> Mapping[TopicPartition, int]:
    with headwater.Admin(**access.own, **QUICK) as admin:
        return admin.end_offsets(_places())


def _read_back(access: Access, history: History) -> None:
    with partition_reader(access.bootstrap, access.security) as reader:
        for topic, partition in _places():
            for offset, value in contents(reader, topic, partition).items():
                history.note(
                    "stored", topic=topic, partition=partition, offset=offset,
                    **Written.from_value(value)._asdict(),
                )  # fmt: skip


def _replicas(access: Access) -> dict[TopicPartition, Sequence[int]]:
    """The replicas of every partition, once no move is under way."""
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    with headwater.Admin(**access.own, **QUICK) as admin:
        while admin.list_reassignments():
            if time.monotonic() > deadline:
                raise TimeoutError("a reassignment does not end")
            time.sleep(0.1)
        topics = admin.describe_topics(admin.list_topics(internal=True))
    return {
        TopicPartition(name, row.partition): row.replicas
        for name, topic in topics.items()
        for row in topic.partitions
    }
