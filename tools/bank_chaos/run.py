"""One run: a cluster, the bank, the nemesis; then everything is healed, read back and checked."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import headwater
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from headwater.processes.child import NotStarted
from headwater.testing import Cluster
from tools.bank_chaos.checker import STUCK_LIMIT_S, BankFindings, check_bank
from tools.bank_chaos.readers import ConfluentReader, OwnReader, Reader, StableWatch
from tools.bank_chaos.requests import REQUESTS, ConfluentTransformer, OwnTransformer, Requester
from tools.bank_chaos.tellers import TIMEOUT_MS, ConfluentTeller, OwnTeller, Teller
from tools.bank_chaos.transfers import PARTITIONS, PLACES, Leg
from tools.chaos_clients import contents, partition_reader
from tools.client_chaos import QUICK
from tools.cluster_chaos.disk_audit import audit
from tools.cluster_chaos.faults import Target
from tools.cluster_chaos.history import History, read_history
from tools.cluster_chaos.nemesis import Nemesis
from tools.cluster_chaos.run import HEAL_TIMEOUT_S, SESSION_TIMEOUT_MS, SETTINGS
from tools.cluster_chaos.shim import preloaded
from tools.cluster_chaos.stores import running_store

BANK_SETTINGS = {
    **SETTINGS,
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.num.partitions": "3",
}
COORDINATORS = ("__transaction_state", "__transaction_state", "__consumer_offsets")
TIMEOUT_S = TIMEOUT_MS / 1000


@dataclass(slots=True)
class BankReport:
    """What a run did and what it found."""

    seed: int
    seconds: float = 0.0
    findings: BankFindings = field(default_factory=BankFindings)
    problems: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        found = self.findings
        return {
            "seed": self.seed,
            "seconds": round(self.seconds),
            "faults": dict(sorted(found.faults.items())),
            "transactions": dict(sorted(found.transactions.items())),
            "transfers": found.committed,
            "reads": found.reads,
            "producers fenced": found.fenced,
            "calls of librdkafka that hung": found.hung,
            "aborted reads": found.aborted_reads,
            "torn": found.torn,
            "lost": found.lost,
            "doubled": found.doubled,
            "wrong sums": found.wrong_sums,
            "stuck": found.stuck,
            "longest open after a fault, s": round(found.longest_open_s, 2),
            "problems": self.problems,
        }


@dataclass(frozen=True, slots=True)
class BankPlan:
    """How a run goes."""

    seed: int
    seconds: float
    zookeeper: bool = False
    kinds: Sequence[str] | None = None
    """The kinds of faults; by default all."""
    strikes: int | None = None
    """End after this number of strikes instead."""


def run_bank(
    plan: BankPlan, folder: Path, tell: Callable[[str], None] = lambda _: None
) -> BankReport:
    """Run and check; the folder keeps the history and the files of the brokers."""
    report = BankReport(plan.seed)
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    history = History(folder / "history.jsonl")
    replicas: dict[TopicPartition, Sequence[int]] = {}
    with (
        preloaded(folder) as shim,
        running_store(folder / "store", zookeeper=plan.zookeeper) as store,
    ):
        cluster = Cluster(3, BANK_SETTINGS, zookeeper=store.address, data_dir=folder / "brokers")
        with cluster:
            chance = random.Random(plan.seed)
            _create_topics(cluster)
            target = Target(
                cluster, store, shim, random.Random(chance.random()), list(PARTITIONS),
                SESSION_TIMEOUT_MS / 1000, COORDINATORS,
            )  # fmt: skip
            bank = Bank(cluster, history, chance)
            nemesis = Nemesis(target, history, lambda _: bank.wait_for_progress(), plan.kinds)
            try:
                _torment(plan, nemesis, bank, tell)
                cluster.wait_until_in_sync(timeout_s=HEAL_TIMEOUT_S)
                bank.finish()
                replicas = _replicas(cluster.bootstrap)
            except (TimeoutError, NotStarted, KafkaError) as failure:
                report.problems.append(f"it did not heal: {failure}")
                bank.leave()
        history.close()
        folders = {broker: cluster.data_dir / f"broker-{broker}" for broker in cluster.broker_ids}
        report.findings = check_bank(
            read_history(history.file), timeout_s=TIMEOUT_S, whole=bool(replicas)
        )
        report.problems += report.findings.problems
        report.problems += audit(folders, replicas, ())
    report.seconds = time.monotonic() - began
    return report


def _create_topics(cluster: Cluster) -> None:
    for topic, partitions in {**PARTITIONS, **dict.fromkeys(REQUESTS.values(), 1)}.items():
        cluster.create_topic(topic, partitions, configs={"min.insync.replicas": "2"})


def _torment(plan: BankPlan, nemesis: Nemesis, bank: "Bank", tell: Callable[[str], None]) -> None:
    bank.wait_for_progress()
    until = time.monotonic() + plan.seconds
    for number in count():
        if time.monotonic() > until if plan.strikes is None else number >= plan.strikes:
            return
        nemesis.strike()
        bank.watch.wait(HEAL_TIMEOUT_S)
        bank.wait_for_progress()
        tell(f"{number + 1} strikes, {bank.committed:,} transfers of tellers")


class Bank:
    """All clients of a run."""

    def __init__(self, cluster: Cluster, history: History, chance: random.Random) -> None:
        bootstrap = cluster.bootstrap
        self._bootstrap, self._history = bootstrap, history

        def seeded() -> random.Random:
            return random.Random(chance.random())

        self.tellers: list[Teller] = [
            *(OwnTeller(bootstrap, f"own{number}", history, seeded()) for number in range(3)),
            *(
                ConfluentTeller(bootstrap, f"confluent{number}", history, seeded())
                for number in range(3)
            ),
        ]
        self._requester = Requester(bootstrap, history, seeded())
        self._transformers: tuple[OwnTransformer, ConfluentTransformer] = (
            OwnTransformer(bootstrap, history),
            ConfluentTransformer(bootstrap, history),
        )
        self.readers: list[Reader] = [
            OwnReader(bootstrap, history),
            ConfluentReader(bootstrap, history),
        ]
        self.watch = StableWatch(bootstrap, history)

    @property
    def committed(self) -> int:
        return sum(teller.committed for teller in self.tellers)

    def wait_for_progress(self) -> None:
        """Wait until every teller has committed a transfer that begins from now on."""
        moment = time.monotonic()

        def behind() -> list[str]:
            return [teller.name for teller in self.tellers if teller.newest_commit <= moment]

        _wait(lambda: not behind(), lambda: f"commits of {behind()}")

    def finish(self) -> None:
        """Tellers end, requests are carried out, everything is decided, read back and followed."""
        for teller in self.tellers:
            teller.finish(HEAL_TIMEOUT_S)
        self._requester.finish()
        _wait(self._all_carried_out, lambda: f"offsets {self._offsets()} of the requests")
        for transformer in self._transformers:
            transformer.finish()
        self.watch.wait(TIMEOUT_S + STUCK_LIMIT_S)
        stored = self._read_back()
        _wait(
            lambda: all(reader.count >= stored for reader in self.readers),
            lambda: f"{stored} records, read are {[reader.count for reader in self.readers]}",
        )
        self.leave()

    def leave(self) -> None:
        """Readers and the watch end."""
        for reader in self.readers:
            reader.finish()
        self.watch.close()

    def _offsets(self) -> dict[str, tuple[int, int]]:
        """The committed offset and the end of each topic of requests."""
        found = {}
        with headwater.Admin(bootstrap_servers=self._bootstrap, **QUICK) as admin:
            for group, topic in REQUESTS.items():
                at = TopicPartition(topic, 0)
                committed = admin.group_offsets(group).get(at)
                found[topic] = (
                    -1 if committed is None else committed.offset, admin.end_offsets([at])[at]
                )  # fmt: skip
        return found

    def _all_carried_out(self) -> bool:
        return all(committed >= end for committed, end in self._offsets().values())

    def _read_back(self) -> int:
        stored = 0
        with partition_reader(self._bootstrap) as reader:
            for topic, partition in PLACES:
                for offset, value in contents(reader, topic, partition).items():
                    stored += 1
                    self._history.note(
                        "stored", topic=topic, partition=partition, offset=offset,
                        leg=Leg.from_value(value),
                    )  # fmt: skip
        return stored


def _replicas(bootstrap: str) -> dict[TopicPartition, Sequence[int]]:
    with headwater.Admin(bootstrap_servers=bootstrap, **QUICK) as admin:
        topics = admin.describe_topics(admin.list_topics(internal=True))
    return {
        TopicPartition(name, row.partition): row.replicas
        for name, topic in topics.items()
        for row in topic.partitions
    }


def _wait(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {HEAL_TIMEOUT_S:.0f} s for {what()}")
        time.sleep(0.05)
