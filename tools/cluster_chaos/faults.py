"""The kinds of faults, each a function that hits a cluster and says for how long it lasts."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from headwater.controller.store.znodes import CONTROLLER
from headwater.testing import Cluster
from headwater.testing.relays import STORE
from tools.cluster_chaos.shim import Disk, FaultShim
from tools.cluster_chaos.stores import Store

ROLES = ("leader", "leader", "controller", "coordinator", "any")
FARTHEST_JUMP_S = 3000.0
"""Beyond an hour a broker refuses records from clients with the right time, as it must."""


class NothingToHit(Exception):
    """What a fault would change is down already because of another."""


class Hit(NamedTuple):
    """A fault that has begun."""

    target: str
    lasts_s: float


@dataclass(slots=True)
class Target:
    """The cluster, what can be done to it, and what was done and is not undone yet."""

    cluster: Cluster
    store: Store
    shim: FaultShim
    chance: random.Random
    topics: list[str]
    session_s: float
    coordinator_topics: tuple[str, ...] = ("__consumer_offsets",)
    healthy: bool = True
    """Whether it is of use to ask the cluster who has a role."""
    ended: set[int] = field(default_factory=set)
    """Brokers that were killed or stopped."""
    paused: set[int] = field(default_factory=set)
    altered: dict[int, tuple[float, Disk]] = field(default_factory=dict)
    """Brokers whose clock or disk is not the machine's."""
    broken: set[int] = field(default_factory=set)
    """Brokers whose disk fails: they end by themselves."""
    store_down: bool = False
    store_login: str | None = None
    """How brokers log in to the store, whose nodes are theirs; None if everybody may change them."""

    def broker(self, role: str | None = None) -> int:
        """The broker that has a role now; any broker if nobody has it."""
        role = role or self.chance.choice(ROLES)
        drawn = self.chance.choice(self.cluster.broker_ids)
        topic = self.chance.choice(self.topics)
        if not self.healthy or role == "any":
            return drawn
        try:
            if role == "controller":
                return self.cluster.controller()
            if role == "coordinator":
                topic = self.chance.choice(self.coordinator_topics)
            return self.cluster.leader(topic, 0)
        except TimeoutError:
            return drawn

    def other(self, broker: int) -> int:
        return self.chance.choice([one for one in self.cluster.broker_ids if one != broker])

    def within(self, least: float, most: float) -> float:
        """Some seconds, given in sessions."""
        return self.session_s * self.chance.uniform(least, most)

    def kill(self, *brokers: int) -> None:
        self.cluster.kill(*brokers)
        self.ended |= set(brokers)
        self.paused -= set(brokers)

    def pause(self, broker: int) -> None:
        self._require(broker)
        self.cluster.pause(broker)
        self.paused.add(broker)

    def alter(self, broker: int, *, clock_s: float = 0, disk: Disk = Disk.WORKS) -> None:
        """Move its clock or break its disk, and leave the other as it is."""
        self._require(broker)
        clock_before, disk_before = self.altered.get(broker, (0.0, Disk.WORKS))
        altered = clock_s or clock_before, max(disk, disk_before)
        self.shim.set(self.cluster.pid(broker), clock_s=altered[0], disk=altered[1])
        self.altered[broker] = altered
        if disk is Disk.FAILS:
            self.broken.add(broker)

    def _require(self, broker: int) -> None:
        if not self.cluster.runs(broker):
            raise NothingToHit


Fault = Callable[[Target], Hit]
FAULTS: dict[str, Fault] = {}
SURVIVED = frozenset(
    (
        "kill leader", "kill controller", "kill coordinator", "restart", "pause beyond session",
        "isolate", "cut from store", "failed disk",
    )
)  # fmt: skip
"""Kinds that hit one broker: writes to partitions with three replicas go on meanwhile."""


def _fault(kind: str) -> Callable[[Fault], Fault]:
    def register(fault: Fault) -> Fault:
        FAULTS[kind] = fault
        return fault

    return register


# -- processes


def _kill_role(role: str) -> Fault:
    def kill(at: Target) -> Hit:
        broker = at.broker(role)
        at.kill(broker)
        return Hit(f"broker {broker}", at.within(0, 2.5))

    return kill


for _role in ("leader", "controller", "coordinator"):
    FAULTS[f"kill {_role}"] = _kill_role(_role)


@_fault("kill two")
def _kill_two(at: Target) -> Hit:
    first = at.broker()
    second = at.other(first)
    at.kill(first, second)
    return Hit(f"brokers {first} and {second}", at.within(0, 2))


@_fault("kill all")
def _kill_all(at: Target) -> Hit:
    at.kill(*at.cluster.broker_ids)
    return Hit("all brokers", at.within(0, 2))


@_fault("restart")
def _stop(at: Target) -> Hit:
    broker = at.broker()
    at.cluster.stop(broker)
    at.ended.add(broker)
    at.paused.discard(broker)
    return Hit(f"broker {broker}", 0.0)


@_fault("pause beyond session")
def _pause(at: Target) -> Hit:
    broker = at.broker()
    at.pause(broker)
    return Hit(f"broker {broker}", at.within(1.3, 3))


@_fault("short pause")
def _short_pause(at: Target) -> Hit:
    broker = at.broker()
    at.pause(broker)
    return Hit(f"broker {broker}", at.within(0.1, 0.3))


# -- links


@_fault("cut between brokers")
def _cut(at: Target) -> Hit:
    one = at.broker()
    other = at.other(one)
    at.cluster.partition(one, other)
    return Hit(f"brokers {one} and {other}", at.within(0.5, 3))


@_fault("one-way cut between brokers")
def _cut_one_way(at: Target) -> Hit:
    ends = [one := at.broker(), at.other(one)]
    at.chance.shuffle(ends)
    at.cluster.partition(*ends, one_way=True)
    return Hit(f"from broker {ends[0]} to {ends[1]}", at.within(0.5, 3))


@_fault("isolate")
def _isolate(at: Target) -> Hit:
    broker = at.broker()
    at.cluster.isolate(broker)
    return Hit(f"broker {broker}", at.within(0.5, 3))


@_fault("cut from store")
def _cut_from_store(at: Target) -> Hit:
    broker = at.broker()
    at.cluster.partition(broker, STORE)
    return Hit(f"broker {broker}", at.within(0.5, 3))


@_fault("mute to store")
def _mute(at: Target) -> Hit:
    broker = at.broker()
    at.cluster.partition(broker, STORE, one_way=True)
    return Hit(f"broker {broker}", at.within(0.5, 3))


@_fault("deaf to store")
def _deaf(at: Target) -> Hit:
    broker = at.broker()
    at.cluster.partition(STORE, broker, one_way=True)
    return Hit(f"broker {broker}", at.within(0.5, 3))


# -- the store


@_fault("store down")
def _store_down(at: Target) -> Hit:
    at.store.kill()
    at.store_down = True
    return Hit("the store", at.session_s * at.chance.choice((0.1, 0.5, 2.5)))


@_fault("new controller")
def _new_controller(at: Target) -> Hit:
    """Delete /controller, as an operator may with zkCli."""
    if at.store_down:
        raise NothingToHit
    login = [("digest", at.store_login)] if at.store_login else None
    client = KazooClient(at.store.address, timeout=10, auth_data=login)
    client.start(timeout=60)
    try:
        client.delete(CONTROLLER)
    except NoNodeError:
        raise NothingToHit from None
    finally:
        client.stop()
        client.close()
    return Hit(CONTROLLER, 0.0)


# -- disks and clocks


@_fault("full disk")
def _full_disk(at: Target) -> Hit:
    broker = at.broker()
    at.alter(broker, disk=Disk.FULL)
    return Hit(f"broker {broker}", at.within(0.5, 2))


@_fault("failed disk")
def _failed_disk(at: Target) -> Hit:
    broker = at.broker()
    at.alter(broker, disk=Disk.FAILS)
    return Hit(f"broker {broker}", at.within(0.5, 2))


@_fault("clock jump")
def _clock_jump(at: Target) -> Hit:
    broker = at.broker()
    jump_s = at.chance.uniform(-FARTHEST_JUMP_S, FARTHEST_JUMP_S)
    at.alter(broker, clock_s=jump_s)
    return Hit(f"broker {broker} by {jump_s:.0f} s", at.within(0.5, 2))
