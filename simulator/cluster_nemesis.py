"""Brings the troubles of a plan to a cluster, and undoes each when its time is over."""

import asyncio
from collections import Counter
from collections.abc import Callable

from headwater.controller.store.znodes import CONTROLLER
from headwater.model import TopicPartition
from simulator.cluster import Cluster
from simulator.cluster_plan import Trouble
from simulator.node import Node, host_of
from simulator.randomness import Stream, stream
from simulator.store_checks import StoreView
from simulator.zookeeper import ZOOKEEPER_HOST

FARTHEST_JUMP_MS = 600_000
OPERATIONS = 30
"""Within how many file operations a process dies that is to die at one."""
SLOW_MS = 600
STOP_LIMIT_S = 20.0


class ClusterNemesis:
    """Runs on the loop of nobody: what it does is done to everyone."""

    def __init__(
        self, cluster: Cluster, troubles: tuple[Trouble, ...], on_end: Callable[[str], None]
    ) -> None:
        assert cluster.zookeeper is not None
        self._cluster = cluster
        self._zookeeper = cluster.zookeeper
        self._network = cluster.network
        self._troubles = troubles
        self._on_end = on_end
        self._view = StoreView(cluster.zookeeper.tree)
        self._under_way = 0
        self.injected: Counter[str] = Counter()
        """How often each kind of trouble really came."""

    def begin(self) -> None:
        """Plan everything from now on."""
        loop = self._cluster.clients
        for trouble in self._troubles:
            self._under_way += 1
            loop.call_later(trouble.at_ms / 1000, self._start, trouble)

    @property
    def done(self) -> bool:
        """Whether every trouble has come and is over."""
        return self._under_way == 0

    def _start(self, trouble: Trouble) -> None:
        task = self._cluster.clients.create_task(self._bring(trouble))
        task.add_done_callback(lambda _: self._over())

    def _over(self) -> None:
        self._under_way -= 1

    async def _bring(self, trouble: Trouble) -> None:
        chance = stream(self._cluster.seed, f"trouble {trouble.number}")
        node = self._find(trouble.who, chance)
        self._cluster.trace.note(f"{self._cluster.scheduler.now_us} trouble: {trouble}")
        if await self._hit(trouble, node, chance):
            self.injected[trouble.kind] += 1

    async def _hit(self, trouble: Trouble, node: Node, chance: Stream) -> bool:
        lasts_s = trouble.lasts_ms / 1000
        match trouble.kind:
            case "crash" | "crash at an operation" | "crash of all" | "restart" | "power cut":
                return await self._end_processes(trouble, node, chance)
            case "pause" | "short pause":
                short = trouble.kind == "short pause"
                return await self._pause(node, min(lasts_s, 0.5) if short else lasts_s)
            case "reset":
                self._network.reset_some(0.5)
            case "zookeeper restart":
                return await self._restart_zookeeper(lasts_s)
            case "zookeeper breaks at a write":
                self._zookeeper.break_at_next_write(0.7)
            case "zookeeper breaks":
                self._zookeeper.break_some(0.7)
            case "session expires":
                return self._expire(node)
            case "new controller":
                return self._delete_controller()
            case "clock jump":
                node.skew_ms = chance.randrange(-FARTHEST_JUMP_MS, FARTHEST_JUMP_MS)
            case "slow disk":
                return await self._slow_down(node, lasts_s)
            case _:
                await self._cut(self._links(trouble.kind, node, chance), lasts_s)
        return True

    # -- whom it hits

    def _find(self, who: str, chance: Stream) -> Node:
        nodes = self._cluster.nodes
        drawn = chance.choice(nodes)
        wanted = self._wanted(who, chance)
        return next((node for node in nodes if node.host == host_of(wanted)), drawn)

    def _wanted(self, who: str, chance: Stream) -> int:
        if who == "controller":
            return self._view.controller()
        topics = self._view.topics()
        if who == "coordinator":
            topics = {name: topic for name, topic in topics.items() if name.startswith("__")}
        places = [
            TopicPartition(name, partition)
            for name, topic in topics.items()
            for partition in topic.replicas
        ]
        if who == "any" or not places:
            return -1
        at = chance.choice(places)
        state = self._view.state(at)
        leader = state.leader if state is not None else -1
        if who == "follower":
            others = [one for one in topics[at.topic].replicas[at.partition] if one != leader]
            return chance.choice(others) if others else -1
        return leader

    # -- processes

    async def _end_processes(self, trouble: Trouble, node: Node, chance: Stream) -> bool:
        nodes = self._cluster.nodes if trouble.kind == "crash of all" else [node]
        nodes = [one for one in nodes if one.life is not None]
        if not nodes or (trouble.kind == "power cut" and not self._may_lose_power()):
            return False
        for one in nodes:
            await self._end_process(trouble.kind, one, chance)
            if trouble.kind == "power cut" and one.life is None:
                one.lose_power()
        await asyncio.sleep(trouble.lasts_ms / 1000)
        for one in nodes:
            if one.life is None:
                one.start()
        return True

    async def _end_process(self, kind: str, node: Node, chance: Stream) -> None:
        life = node.life
        assert life is not None
        life.loop.resume()
        if kind == "restart" and life.serving:
            node.stop()
            await self._until(lambda: life.ended, STOP_LIMIT_S)
        elif kind == "crash at an operation":
            node.faults.crash_before = life.files.operations + chance.randrange(OPERATIONS)
            await self._until(lambda: life.ended, 1.0)
            node.faults.crash_before = None
        if node.life is life:
            node.crash()
        self._on_end(node.host)

    def _may_lose_power(self) -> bool:
        """Only while every replica is in sync: then each record is on a machine that has power."""
        return not self._view.unwell() and all(node.serving for node in self._cluster.nodes)

    async def _pause(self, node: Node, lasts_s: float) -> bool:
        life = node.life
        if life is None or life.loop.paused:
            return False
        life.loop.pause()
        await asyncio.sleep(lasts_s)
        life.loop.resume()
        return True

    async def _slow_down(self, node: Node, lasts_s: float) -> bool:
        life = node.life
        if life is None:
            return False
        life.tasks.slow_down(SLOW_MS)
        await asyncio.sleep(lasts_s)
        life.tasks.slow_down(node.slowest_thread_ms)
        return True

    # -- ZooKeeper

    async def _restart_zookeeper(self, lasts_s: float) -> bool:
        if not self._zookeeper.up:
            return False
        self._zookeeper.stop()
        await asyncio.sleep(lasts_s)
        self._zookeeper.start()
        return True

    def _expire(self, node: Node) -> bool:
        session = self._view.session_of(node.settings.node_id)
        self._zookeeper.expire(session)
        return session != 0

    def _delete_controller(self) -> bool:
        """As somebody with zkCli would."""
        return self._zookeeper.remove(CONTROLLER)

    # -- links

    def _links(self, kind: str, node: Node, chance: Stream) -> list[tuple[str, str]]:
        host = node.host
        brokers = [one.host for one in self._cluster.nodes if one is not node]
        clients = [loop.host for loop in self._cluster.client_loops]
        match kind:
            case "isolate":
                return _both_ways(host, [*brokers, ZOOKEEPER_HOST, *clients])
            case "cut off from brokers":
                return _both_ways(host, brokers)
            case "cut off from zookeeper":
                return _both_ways(host, [ZOOKEEPER_HOST])
            case "deaf to zookeeper":
                return [(ZOOKEEPER_HOST, host)]
            case "mute to zookeeper":
                return [(host, ZOOKEEPER_HOST)]
            case "one-way cut":
                return [(host, chance.choice(brokers))]
            case "bridge":
                return _both_ways(*_pair(brokers)) if len(brokers) > 1 else []
            case _:
                return _both_ways(host, clients)

    async def _cut(self, links: list[tuple[str, str]], lasts_s: float) -> None:
        for link in links:
            self._network.cut(*link)
        await asyncio.sleep(lasts_s)
        for link in links:
            self._network.heal(*link)

    async def _until(self, done: Callable[[], bool], patience_s: float) -> None:
        for _ in range(int(patience_s / 0.05)):
            if done():
                return
            await asyncio.sleep(0.05)


def _both_ways(host: str, others: list[str]) -> list[tuple[str, str]]:
    return [link for other in others for link in ((host, other), (other, host))]


def _pair(hosts: list[str]) -> tuple[str, list[str]]:
    return hosts[0], hosts[1:2]
