"""`headwater demo failover`: kill brokers under load, lose nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import click

from headwater.client.consumer.blocking import Consumer
from headwater.client.producer.blocking import Producer
from headwater.client.producer.futures import SendFuture
from headwater.errors import KafkaError
from headwater.processes.child import NotStarted
from headwater.seams.clock import SystemClock
from headwater.testing.cluster import Cluster

TOPIC = "orders"
GROUP = "demo"
PARTITIONS = 3
_PER_TURN = 10
_TURN_S = 0.02
_SHOW_S = 0.5
_END_S = 60
_OFFSETS = "__consumer_offsets"


@click.group("demo")
def command() -> None:
    """Demonstrate Headwater on a temporary cluster."""


@command.command("failover")
@click.option(
    "--zookeeper",
    metavar="HOSTS",
    help="Use this ZooKeeper instead of a store: a node of its own below the path, removed at the end.",
)
def failover(zookeeper: str | None) -> None:
    """Kill the leader, the controller, the coordinator and then all brokers, under load.

    Three brokers, a topic with three replicas, a producer and a consumer. At the end every
    acknowledged record was consumed, once. Exits with 1 otherwise.
    """
    click.echo("starting three brokers and their metadata store")
    with _cluster(zookeeper) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, configs={"min.insync.replicas": "2"})
        click.echo(f"ready at {cluster.bootstrap}; topic {TOPIC}: 3 partitions, 3 replicas")
        load = _Load(cluster.bootstrap)
        load.start()
        try:
            for title, fault in _faults(cluster):
                _inject(cluster, load, title, fault)
        finally:
            load.stop()
    _report(load)


@contextmanager
def _cluster(zookeeper: str | None) -> Iterator[Cluster]:
    try:
        cluster = Cluster(3, zookeeper=zookeeper).start()
    except (NotStarted, ValueError) as problem:
        raise click.ClickException(str(problem)) from None
    try:
        yield cluster
    finally:
        cluster.close()


def _faults(cluster: Cluster) -> list[tuple[str, Callable[[], str]]]:
    def kill(broker_id: int) -> str:
        cluster.kill(broker_id)
        return f"broker {broker_id}"

    def kill_all() -> str:
        cluster.kill(*cluster.broker_ids)
        return "all brokers at once"

    return [
        (f"kill -9 of the leader of {TOPIC}-0", lambda: kill(cluster.leader(TOPIC, 0))),
        ("kill -9 of the controller", lambda: kill(cluster.controller())),
        (f"kill -9 of the coordinator of group {GROUP}", lambda: kill(cluster.leader(_OFFSETS))),
        ("kill -9 of everything", kill_all),
    ]


def _inject(cluster: Cluster, load: "_Load", title: str, fault: Callable[[], str]) -> None:
    load.begin_interval()
    hit = fault()
    click.echo(f"\n{title}: {hit}")
    down = [broker_id for broker_id in cluster.broker_ids if not cluster.runs(broker_id)]
    if len(down) < len(cluster.broker_ids):
        load.wait_for_progress(_show)
        click.echo(f"  writes paused for {load.longest_pause_ms() / 1000:.1f} s; restarting {hit}")
    cluster.start_broker(*down)
    load.wait_for_progress(_show)
    cluster.wait_until_in_sync()
    click.echo(
        f"  all replicas are in sync again; longest pause {load.longest_pause_ms() / 1000:.1f} s"
    )


def _show(load: "_Load") -> None:
    click.echo(f"  acknowledged {load.acknowledged:,}   consumed {load.consumed:,}")


def _report(load: "_Load") -> None:
    lost, doubled = load.lost(), load.doubled()
    click.echo(f"\nacknowledged {load.acknowledged:,}   consumed {load.consumed:,}")
    click.echo(f"lost {lost}   stored twice {doubled}")
    if load.failure is not None:
        raise click.ClickException(f"a client failed: {load.failure}")
    if lost or doubled:
        raise click.ClickException("records were lost or doubled: this is a bug, please report it")


class _Load:
    """A producer and a consumer on threads, and what they have seen."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._now_ms = SystemClock().monotonic_ms
        self._ending = threading.Event()
        self._sent_all = threading.Event()
        self._acknowledged: set[bytes] = set()
        self._consumed: dict[bytes, set[tuple[int, int]]] = {}
        self._last_ack_ms = self._longest_ms = 0
        self.failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._guard, args=[work], daemon=True)
            for work in (self._produce, self._consume)
        ]

    @property
    def acknowledged(self) -> int:
        return len(self._acknowledged)

    @property
    def consumed(self) -> int:
        return len(self._consumed)

    def start(self) -> None:
        self._last_ack_ms = self._now_ms()
        for thread in self._threads:
            thread.start()
        self.wait_for_progress(lambda _: None)

    def stop(self) -> None:
        """Send no more, and wait until everything that was acknowledged is consumed."""
        self._ending.set()
        for thread in self._threads:
            thread.join(_END_S)

    def lost(self) -> int:
        """Acknowledged records that were never consumed."""
        return len(self._acknowledged - self._consumed.keys())

    def doubled(self) -> int:
        """Records that are in the log at more than one offset; a record read again is not."""
        return sum(len(places) - 1 for places in self._consumed.values())

    # -- pauses

    def begin_interval(self) -> None:
        """Reset the pauses."""
        self._longest_ms = 0

    def longest_pause_ms(self) -> int:
        """The longest time without an acknowledgment since `begin_interval`."""
        return self._longest_ms

    def wait_for_progress(self, show: Callable[["_Load"], None]) -> None:
        """Wait until records are acknowledged and consumed that were not before."""
        acknowledged, consumed = self.acknowledged, self.consumed
        deadline = self._now_ms() + _END_S * 1000
        while self.acknowledged <= acknowledged + PARTITIONS or self.consumed <= consumed:
            if self.failure is not None:
                raise click.ClickException(f"a client failed: {self.failure}")
            if self._now_ms() > deadline:
                raise click.ClickException(f"nothing was written or read for {_END_S} s")
            self._ending.wait(_SHOW_S)
            show(self)

    # -- on the threads

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (KafkaError, OSError) as failure:
            self.failure = failure
            self._sent_all.set()

    def _produce(self) -> None:
        number = 0
        with Producer(
            bootstrap_servers=self._bootstrap, acks="all", delivery_timeout_ms=_END_S * 1000
        ) as producer:
            while not self._ending.wait(_TURN_S):
                for _ in range(_PER_TURN):
                    number += 1
                    value = str(number).encode()
                    producer.send(TOPIC, value, partition=number % PARTITIONS).add_done_callback(
                        partial(self._delivered, value)
                    )
        self._sent_all.set()

    def _delivered(self, value: bytes, sent: SendFuture) -> None:
        if (failure := sent.exception()) is not None:
            self.failure = failure
            return
        now_ms = self._now_ms()
        self._longest_ms = max(self._longest_ms, now_ms - self._last_ack_ms)
        self._last_ack_ms = now_ms
        self._acknowledged.add(value)

    def _consume(self) -> None:
        with Consumer(
            bootstrap_servers=self._bootstrap, group_id=GROUP, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([TOPIC])
            deadline: int | None = None
            while deadline is None or (self.lost() and self._now_ms() < deadline):
                for record in consumer.poll(0.5):
                    places = self._consumed.setdefault(record.value or b"", set())
                    places.add((record.partition, record.offset))
                if deadline is None and self._sent_all.is_set():
                    deadline = self._now_ms() + _END_S * 1000
