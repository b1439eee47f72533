"""Three brokers behind the face that `benchmarks.load` has for one: ours and Apache Kafka's.

Brokers of ours speak to each other and to `headwater store` without anything in between, as
`headwater up --brokers 3` starts them.
"""

import base64
import itertools
import shutil
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tools.apache_kafka import ApacheCluster

from benchmarks.load.encode import Topic
from benchmarks.load.generator import LoadFailed
from benchmarks.load.servers import TOPIC_SETTINGS, Broker
from headwater.cli.up import WITHOUT_FILE
from headwater.cli.up_cluster import QUICK_FAILOVER
from headwater.log.verify import verify_log
from headwater.processes.child import Child, broker_process, store_process
from headwater.processes.local_nodes import node_settings, replicated, unused_port

BROKERS = 3
REPLICATED = {"min.insync.replicas": "2", **TOPIC_SETTINGS}
_TIMEOUT = 120.0


def wait_for(found: Callable[[], bool], what: str, poll: float = 0.05) -> None:
    """Returns when `found` says so."""
    deadline = time.perf_counter() + _TIMEOUT
    while not found():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"waited {_TIMEOUT:g} s for {what}")
        time.sleep(poll)


class ThreeBrokers(Broker):
    """A cluster under load: its topics have three replicas, of which two must be in sync."""

    pids: Sequence[int]

    def __init__(self) -> None:
        self._numbers = itertools.count()

    @property
    @abstractmethod
    def addresses(self) -> Mapping[int, str]:
        """Where clients reach each broker, by id."""

    @cached_property
    def admin(self) -> AdminClient:
        """An admin client; silent, because brokers end and come back."""
        bootstrap = ",".join(self.addresses.values())
        return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def fresh_topic(self, partitions: int) -> Topic:
        """Creates a topic with three replicas and waits until all are in sync."""
        return self.placed_topic([None] * partitions)

    def placed_topic(self, placement: Sequence[list[int] | None]) -> Topic:
        """Creates a topic whose partitions have these replicas, or three that the cluster picks."""
        name = f"bench-{next(self._numbers)}"
        chosen: dict[str, Any] = (
            {"replication_factor": BROKERS}
            if None in placement
            else {"replica_assignment": list(placement)}
        )
        new = NewTopic(name, num_partitions=len(placement), config=REPLICATED, **chosen)
        admin = self.admin
        for done in admin.create_topics([new], request_timeout=_TIMEOUT).values():
            done.result()
        described: list[Any] = []

        def in_sync() -> bool:
            try:
                described[:] = [_described(admin, name)]
            except KafkaException:  # this broker has not heard of it yet
                return False
            rows = described[0].partitions
            return len(rows) == len(placement) and all(
                row.leader is not None and len(row.isr) == len(row.replicas) for row in rows
            )

        wait_for(in_sync, f"the replicas of {name}")
        topic_id = base64.urlsafe_b64decode(f"{described[0].topic_id}==")
        return Topic(name, topic_id, len(placement))

    def leader_ports(self, topic: Topic) -> list[int]:
        """The port of each partition's leader."""
        rows = sorted(_described(self.admin, topic.name).partitions, key=lambda row: row.id)
        return [int(row.leader.port) for row in rows]

    def drop(self, topic: Topic) -> None:
        """Deletes the topic."""
        for done in self.admin.delete_topics([topic.name], request_timeout=_TIMEOUT).values():
            done.result()


def _described(admin: AdminClient, name: str) -> Any:
    futures = admin.describe_topics(TopicCollection([name]), request_timeout=_TIMEOUT)
    return futures[name].result()


class KafkaCluster(ThreeBrokers):
    """Three nodes of Apache Kafka, each broker and controller, its defaults."""

    name = "kafka"
    warms_up = True

    def __init__(self) -> None:
        super().__init__()
        self._cluster = ApacheCluster(BROKERS, heap="1G")

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        self.pids = self._cluster.pids
        self.port = int(self._cluster.address(1).rpartition(":")[2])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cluster.__exit__(kind, error, trace)

    @property
    def addresses(self) -> Mapping[int, str]:
        """Where clients reach each node."""
        return {node: self._cluster.address(node) for node in self._cluster.broker_ids}


class HeadwaterCluster(ThreeBrokers):
    """Three brokers of ours and their store, in a folder that outlives restarts."""

    name = "headwater"

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._settings = {
            **WITHOUT_FILE,
            **QUICK_FAILOVER,
            **replicated(BROKERS),
            **(settings or {}),
        }
        self._ports = {broker: unused_port() for broker in range(1, BROKERS + 1)}
        self.brokers: dict[int, Child] = {}

    def __enter__(self) -> Self:
        self.home = Path(tempfile.mkdtemp(prefix="bench-cluster-"))
        self.store = store_process(self.home / "store", unused_port())
        self.store.launch()
        self.zookeeper = self.store.wait_ready()
        for broker, port in self._ports.items():
            node = node_settings(
                broker,
                zookeeper=self.zookeeper,
                folder=str(self.home / str(broker)),
                client_port=port,
                broker_port=unused_port(),
                metrics_port=unused_port(),
            )
            self.brokers[broker] = broker_process({**self._settings, **node})
        self.port = self._ports[1]
        self.start(*self.brokers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.last_words())
        for child in [*self.brokers.values(), self.store]:
            child.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def addresses(self) -> Mapping[int, str]:
        """Where clients reach each broker."""
        return {broker: f"127.0.0.1:{port}" for broker, port in self._ports.items()}

    def start(self, *brokers: int) -> None:
        """Starts brokers and returns when they serve clients."""
        for broker in brokers:
            self.brokers[broker].launch()
        for broker in brokers:
            self.brokers[broker].wait_ready()
        self.pids = [child.pid for child in (*self.brokers.values(), self.store) if child.runs]
        self.pid = self.pids[0]

    def stop(self, *brokers: int) -> None:
        """Stops brokers in order, all at once."""
        with ThreadPoolExecutor(len(brokers)) as threads:
            list(threads.map(Child.stop, [self.brokers[broker] for broker in brokers]))

    def folder(self, broker: int, topic: Topic, partition: int) -> Path:
        """Where a replica's files are."""
        return self.home / str(broker) / f"{topic.name}-{partition}"

    def check(self, topic: Topic) -> None:
        """Reads every batch of every replica again: checksums, offsets, sequences, indexes."""
        self.check_replicas(topic, list(self.brokers))

    def check_replicas(self, topic: Topic, brokers: Sequence[int]) -> None:
        """Does the same on some brokers."""
        for partition in range(topic.partitions):
            for broker in brokers:
                verdict = verify_log(str(self.folder(broker, topic, partition)))
                if verdict.problems:
                    raise LoadFailed(f"broker {broker}: {verdict.problems[0]}")

    def last_words(self) -> str:
        """The end of each process's log."""
        children = [*self.brokers.values(), self.store]
        return "\n".join(child.log_file.read_text()[-1500:] for child in children)


CLUSTERS: dict[str, type[KafkaCluster | HeadwaterCluster]] = {
    cluster.name: cluster for cluster in (KafkaCluster, HeadwaterCluster)
}
