"""The simulated ZooKeeper is as hard to live with as a real one."""

import pytest

from headwater.controller.store.metadata_store import (
    Create,
    SessionState,
    StoreError,
    StoreFailure,
    WatchEvent,
)
from simulator.clock import SimClock
from simulator.kazoo_client import connect_store
from simulator.loop import Scheduler, SimLoop
from simulator.network import SimNetwork
from simulator.randomness import stream
from simulator.trace import Trace
from simulator.zookeeper import ZOOKEEPER_HOST, SimZooKeeper

TIMEOUT_MS = 1500


class World:
    def __init__(self, seed=1):
        self.scheduler = Scheduler(Trace())
        chance = stream(seed, "network")
        self.network = SimNetwork(self.scheduler, chance, slowest_ms=5)
        self.server = SimZooKeeper(self.scheduler, self.network, chance)
        self.chance = chance

    def client(self, host):
        return Client(self, host)

    def let_pass(self, seconds):
        until_us = self.scheduler.now_us + int(seconds * 1e6)
        self.scheduler.run_until(lambda: self.scheduler.now_us >= until_us, seconds + 1)
        assert self.scheduler.complaints == []


class Client:
    def __init__(self, world, host):
        self.world = world
        self.loop = SimLoop(world.scheduler, host, host)
        self.sessions = []

        async def connect():
            clock = SimClock(world.scheduler)
            return connect_store(world.network, world.server, world.chance, clock, TIMEOUT_MS)

        self.store = self.loop.run(connect())
        self.store.on_session(self.sessions.append)
        world.let_pass(0.5)
        assert self.sessions == [SessionState.OPEN]

    def call(self, method, *args, **how):
        answers = []
        getattr(self.store, method)(*args, answers.append, **how)
        self.world.scheduler.run_until(lambda: bool(answers), 30)
        return answers[0]


@pytest.fixture
def world():
    return World()


def test_a_client_that_is_cut_off_loses_its_session_and_begins_another(world):
    near, far = world.client("a"), world.client("b")
    near.call("create", "/mine", b"", ephemeral=True)
    seen = []
    far.call("exists", "/mine", watch=lambda change, path: seen.append(change))
    world.network.isolate("a", [ZOOKEEPER_HOST])
    world.let_pass(2 * TIMEOUT_MS / 1000)
    assert near.sessions == [SessionState.OPEN, SessionState.EXPIRED]
    assert far.call("exists", "/mine") is None
    assert seen == [WatchEvent.DELETED]
    world.network.heal_all()
    world.let_pass(5)
    assert near.sessions[-1] is SessionState.OPEN
    near.call("create", "/mine", b"", ephemeral=True)
    owner = far.call("get", "/mine").stat.ephemeral_owner
    assert owner == near.store.session_id


@pytest.mark.parametrize("direction", ["to the server", "from the server"])
def test_a_link_cut_in_one_direction_ends_the_session_too(world, direction):
    client = world.client("a")
    link = ("a", ZOOKEEPER_HOST)
    world.network.cut(*(link if direction == "to the server" else reversed(link)))
    world.let_pass(3 * TIMEOUT_MS / 1000)
    assert client.sessions == [SessionState.OPEN, SessionState.EXPIRED]
    assert world.server.tree.sessions == {}


def test_the_outcome_of_a_write_whose_connection_broke_is_unknown():
    made = []
    for seed in range(20):
        world = World(seed)
        client = world.client("a")
        world.server.break_at_next_write(share=1.0)
        answer = client.call("multi", [Create("/a", b"")])
        assert isinstance(answer, StoreError)
        assert answer.kind is StoreFailure.CONNECTION_LOSS
        made.append(client.call("exists", "/a") is not None)
        assert client.sessions == [SessionState.OPEN]
    assert 0 < sum(made) < len(made)


def test_sessions_and_watches_survive_a_restart_of_the_server(world):
    near, far = world.client("a"), world.client("b")
    near.call("create", "/mine", b"", ephemeral=True)
    seen = []
    near.call("get", "/mine", watch=lambda change, path: seen.append(change))
    world.server.stop()
    world.let_pass(0.9)
    world.server.start()
    far.call("set", "/mine", b"1", 0)
    world.let_pass(3)
    assert near.sessions == [SessionState.OPEN]
    assert seen == [WatchEvent.DATA]
    assert far.call("get", "/mine").data == b"1"


def test_a_paused_process_finds_its_session_gone_when_it_goes_on(world):
    near, far = world.client("a"), world.client("b")
    near.call("create", "/mine", b"", ephemeral=True)
    near.loop.pause()
    world.let_pass(2 * TIMEOUT_MS / 1000)
    assert near.sessions == [SessionState.OPEN]
    assert far.call("exists", "/mine") is None
    near.loop.resume()
    world.let_pass(3)
    assert near.sessions == [SessionState.OPEN, SessionState.EXPIRED, SessionState.OPEN]


def test_an_expired_session_is_reported_once_the_client_reconnects(world):
    client = world.client("a")
    world.server.expire(client.store.session_id)
    world.let_pass(3)
    assert client.sessions == [SessionState.OPEN, SessionState.EXPIRED, SessionState.OPEN]
