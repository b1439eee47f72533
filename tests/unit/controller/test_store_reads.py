"""Reads of thousands of nodes: a bounded number in flight, a bounded number of answers in a tick."""

import logging
from functools import partial
from types import SimpleNamespace
from typing import Any

from kazoo.protocol.states import KazooState

from headwater.controller import metadata_loader
from headwater.controller.metadata_loader import READS_IN_FLIGHT, BatchedReads, read_topics
from headwater.controller.store.metadata_store import (
    DELIVERIES_PER_TICK,
    Create,
    StoreError,
    StoreFailure,
)
from headwater.controller.store.znodes import StateNode, TopicNode, partitions_path
from headwater.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles, embedded

PARTITIONS = 1_000


class SlowStore:
    """Answers a read when told to, the oldest first."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.most = 0

    def get(self, path, reply):
        self.waiting.append((path, reply))
        self.most = max(self.most, len(self.waiting))

    def answer(self):
        path, reply = self.waiting.pop(0)
        reply(StoreError(StoreFailure.NO_NODE, path) if path == "/7" else path)


def test_a_batch_of_reads_keeps_a_bounded_number_in_flight_and_ends_once():
    store, found, ended, taken = SlowStore(), [], [], []

    def wanted():
        for number in range(3 * READS_IN_FLIGHT):
            taken.append(number)
            yield f"/{number}", found.append

    BatchedReads(store, ended.append).get_all(wanted())
    while store.waiting:
        assert len(taken) - len(found) <= READS_IN_FLIGHT + 1  # one node is not there
        store.answer()
    assert store.most == READS_IN_FLIGHT
    assert found == [f"/{number}" for number in range(3 * READS_IN_FLIGHT) if number != 7]
    assert ended == [None]


def test_a_controller_loads_a_topic_of_many_partitions_with_bounded_reads(monkeypatch):
    monkeypatch.setattr(metadata_loader, "READS_IN_FLIGHT", 10)
    loop = FakeLoop()
    store = embedded(loop, MemoryFiles())
    node = TopicNode(bytes(16), dict.fromkeys(range(PARTITIONS), (1,)), {}, {})
    paths = ["/brokers", "/brokers/topics"]
    ops = [Create(path) for path in paths]
    ops += [Create(TopicNode.path("t"), node.encode()), Create(partitions_path("t"))]
    state = StateNode(1, 3, (1,), 5)
    for index in range(PARTITIONS):
        ops.append(Create(f"{partitions_path('t')}/{index}"))
        ops.append(Create(StateNode.path("t", index), state.encode()))
    store.multi(ops, lambda _: None)
    loop.run()
    asked = []
    get = store.get
    monkeypatch.setattr(store, "get", lambda path, *rest: (asked.append(path), get(path, *rest)))
    loaded: list[Any] = []
    read_topics(store, loaded.append)
    assert len(asked) <= 10
    loop.run()
    (cluster,) = loaded
    partitions = cluster.topics["t"].partitions
    assert list(partitions) == list(range(PARTITIONS))
    assert {(one.leader, one.leader_epoch, one.version) for one in partitions.values()} == {
        (1, 3, 0)
    }


class FakeKazoo:
    """Takes reads and answers all of them at once."""

    client_id = (1, b"")

    def __init__(self) -> None:
        self.handler = SimpleNamespace(spawn=lambda *_: None)
        self.listener: Any = None
        self.links: list[Any] = []
        self.last_zxid = 0

    def add_listener(self, listener):
        self.listener = listener

    def start_async(self):
        self.listener(KazooState.CONNECTED)

    def exists_async(self, path, watch=None):
        return SimpleNamespace(rawlink=self.links.append)

    def answer_all(self):
        answered, self.links = self.links, []
        for link in answered:
            link(SimpleNamespace(exception=None, value=None))


def test_answers_that_came_together_are_delivered_over_several_ticks():
    kazoo, soon, calls = FakeKazoo(), [], []
    store = ZooKeeperStore(
        ZooKeeperSettings("127.0.0.1:1", "", 6000),
        SimpleNamespace(monotonic_ms=lambda: 0),
        lambda call, *args: soon.append((call, args)),
        lambda delay_s, call: None,
        lambda *_: kazoo,
    )

    def tick():
        now, soon[:] = list(soon), []
        for call, args in now:
            call(*args)

    tick()
    for number in range(3 * DELIVERIES_PER_TICK):
        store.exists(f"/{number}", lambda _, number=number: calls.append(number))
    kazoo.answer_all()
    delivered = []
    while soon:
        before = len(calls)
        tick()
        delivered.append(len(calls) - before)
    assert calls == list(range(3 * DELIVERIES_PER_TICK))
    assert max(delivered) == DELIVERIES_PER_TICK


def test_a_new_session_is_not_begun_with_a_server_whose_data_is_older():
    clients, soon = [], []

    def open_client(*_):
        clients.append(FakeKazoo())
        return clients[-1]

    store = ZooKeeperStore(
        ZooKeeperSettings("127.0.0.1:1", "", 6000),
        SimpleNamespace(monotonic_ms=lambda: 0),
        lambda call, *args: soon.append((call, args)),
        lambda delay_s, call: None,
        open_client,
    )

    def run():
        while soon:
            call, args = soon.pop(0)
            call(*args)

    run()
    clients[0].last_zxid = 9
    store.exists("/", lambda _: None)
    clients[0].answer_all()
    run()
    clients[0].last_zxid = 0  # as kazoo does before the loop knows that the session has expired
    for client in (0, 1):
        clients[client].listener(KazooState.LOST)
        run()
    assert [client.last_zxid for client in clients] == [0, 9, 9]


class LateKazoo(FakeKazoo):
    """Connects when told to, and then answers at once."""

    def start_async(self):
        pass

    def exists_async(self, path, watch=None):
        return SimpleNamespace(
            rawlink=lambda link: link(SimpleNamespace(exception=None, value=None))
        )


def test_a_store_that_is_away_is_logged_once_a_minute_until_it_answers(caplog):
    loop, first, second = FakeLoop(), FakeKazoo(), LateKazoo()
    clients = iter([first, second])
    ZooKeeperStore(
        ZooKeeperSettings("127.0.0.1:1", "", 6000),
        loop,
        lambda call, *args: loop.call_soon(partial(call, *args)),
        loop.call_later,
        lambda *_: next(clients),
    )

    def logged(seconds):
        caplog.clear()
        for _ in range(2 * seconds):
            loop.sleep(500)
        return [record.getMessage() for record in caplog.records]

    with caplog.at_level(logging.WARNING):
        loop.run()
        first.listener(KazooState.SUSPENDED)
        (lost,) = logged(10)
        assert lost.endswith("no server answered within its timeout of 6000 ms")
        assert [line.partition(":")[0] for line in logged(600)] == [
            f"the metadata store has not answered for {60 * minute} s" for minute in range(1, 11)
        ]
        second.listener(KazooState.CONNECTED)
        assert logged(120) == []
