"""Causes the troubles of a plan in a cluster, and undoes each when its time is over."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import permutations

from headwater.broker.registration import RECHECK_S
from headwater.controller.store.znodes import CONTROLLER
from headwater.model import NO_LEADER, TopicPartition
from simulator.cluster import Cluster
from simulator.cluster_plan import SESSION_MS, ClusterPlan, Trouble
from simulator.cut_links import links_to_cut
from simulator.fleet import Fleet
from simulator.node import Node, host_of
from simulator.operations import leader_moves, partition_moves
from simulator.randomness import Stream, stream
from simulator.store_checks import StoreView
from simulator.zookeeper import ZOOKEEPER_HOST

JUMPS_MS = (600_000, 2 * 3_600_000, 10 * 365 * 86_400_000)
"""How far a wall clock may jump: ten minutes, two hours, ten years."""
OF_ZOOKEEPER = (
    "unheard new controller",
    "late control requests",
    "zookeeper restart",
    "zookeeper wiped",
    "zookeeper breaks at a write",
    "zookeeper breaks",
    "session expires",
    "new controller",
)
STALLED_SHARE = 0.3
SLOW_LINK_MS = 400
OPERATOR_LIMIT_S = 8.0
RESTART_LIMIT_S = 6.0
OPERATIONS = 30
"""The most file operations before a planned crash at an operation."""
SLOW_MS = 600
STOP_LIMIT_S = 20.0


class ClusterNemesis:
    """Runs outside of all simulated processes."""

    def __init__(self, cluster: Cluster, plan: ClusterPlan, fleet: Fleet) -> None:
        assert cluster.zookeeper is not None
        self._cluster = cluster
        self._zookeeper = cluster.zookeeper
        self._network = cluster.network
        self._troubles = (*plan.troubles, *plan.moves)
        self._fleet = fleet
        self.lossy: Node | None = None
        """The machine that lost power last, until it is in sync again."""
        self._view = StoreView(cluster.zookeeper.tree)
        self._slowest_network_ms = plan.slowest_network_ms
        self._keeps_elr = plan.min_insync >= 2
        self._under_way = 0
        self.injected: Counter[str] = Counter()
        """How often each kind of trouble occurred."""

    def begin(self) -> None:
        """Schedule all troubles from now on."""
        loop = self._cluster.clients
        for trouble in self._troubles:
            self._under_way += 1
            loop.call_later(trouble.at_ms / 1000, self._start, trouble)

    @property
    def done(self) -> bool:
        """Whether every trouble is over."""
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
            case "chained crash":
                return await self._crash_in_turn(node, lasts_s, chance)
            case "rolling restart":
                return await self._restart_in_turn()
            case "pause" | "short pause":
                short = trouble.kind == "short pause"
                return await self._pause(node, min(lasts_s, 0.5) if short else lasts_s)
            case "clock jump":
                farthest_ms = chance.choice(JUMPS_MS)
                node.skew_ms = chance.randrange(-farthest_ms, farthest_ms)
                return True
            case "full disk":
                return await self._fill_disk(node, lasts_s)
            case "slow disk":
                return await self._slow_down(node, lasts_s)
            case "leaders moved" | "leaders swapped" | "partitions moved":
                return await self._operate(trouble, chance)
            case "unseen power cut":
                return await self._cut_power_unseen(node, chance)
            case (
                "client pause" | "member crash" | "member crash while joining"
                | "transactor crash" | "second transactor"
            ):  # fmt: skip
                return await self._hit_client(trouble.kind, lasts_s, chance)
            case kind if kind in OF_ZOOKEEPER:
                return await self._hit_zookeeper(kind, node, lasts_s)
            case kind:
                return await self._hit_links(kind, node, lasts_s, chance)

    async def _hit_zookeeper(self, kind: str, node: Node, lasts_s: float) -> bool:
        match kind:
            case "zookeeper restart":
                return await self._restart_zookeeper(lasts_s)
            case "zookeeper wiped":
                return await self._wipe_zookeeper(lasts_s)
            case "zookeeper breaks at a write":
                self._zookeeper.break_at_next_write(0.7)
            case "zookeeper breaks":
                self._zookeeper.break_some(0.7)
            case "session expires":
                return self._expire(node)
            case "unheard new controller":
                return await self._delete_controller_unheard(lasts_s)
            case "late control requests":
                return await self._hold_control_requests(node)
            case _:
                return self._delete_controller()
        return True

    async def _hit_links(self, kind: str, node: Node, lasts_s: float, chance: Stream) -> bool:
        match kind:
            case "reset":
                self._network.reset_some(0.5)
            case "slow links":
                await self._slow_links(lasts_s)
            case "stalled streams" | "stalled streams of brokers":
                await self._stall(kind, lasts_s)
            case "slow links of brokers":
                await self._slow_links_of_brokers(lasts_s)
            case _:
                await self._cut(links_to_cut(kind, self._cluster, node, chance), lasts_s)
        return True

    async def _hit_client(self, kind: str, lasts_s: float, chance: Stream) -> bool:
        if kind == "client pause":
            return await self._pause_client(lasts_s, chance)
        if kind == "member crash while joining":
            return self._fleet.doom_member()
        if kind in ("transactor crash", "second transactor"):
            kill = kind == "transactor crash"
            return self._fleet.transactions.replace(chance.randrange(10), kill=kill)
        return self._fleet.replace_member(chance.randrange(10), before=chance.random() < 0.5)

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
        if not nodes or not self._may_end(power_cut=trouble.kind == "power cut"):
            return False
        for one in nodes:
            await self._end_process(trouble.kind, one, chance)
            if trouble.kind == "power cut" and one.life is None:
                one.lose_power()
                self.lossy = one
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
            node.crash(silently=kind == "power cut")

    async def _cut_power_unseen(self, node: Node, chance: Stream) -> bool:
        """A broker is back from a power cut before the controller has heard that it was away."""
        if node.life is None or not self._may_end(power_cut=True):
            return False
        broker_id = node.settings.node_id
        await self._end_process("power cut", node, chance)
        node.lose_power()
        self.lossy = node
        node.start()
        # What ZooKeeper says to the controller waits while the old session ends.
        await asyncio.sleep(0.4 * SESSION_MS / 1000)
        deaf = (ZOOKEEPER_HOST, host_of(self._view.controller()))
        session = self._view.session_of(broker_id)
        self._network.cut(*deaf)
        await self._until(
            lambda: self._view.session_of(broker_id) not in (0, session), SESSION_MS / 1000
        )
        self._network.heal(*deaf)
        return True

    async def _crash_in_turn(self, node: Node, lasts_s: float, chance: Stream) -> bool:
        """Kill a broker, and another one when the session of the first is about to end."""
        if not self._may_end():
            return False
        others = [one for one in self._cluster.nodes if one is not node]
        for one in (node, chance.choice(others)):
            if one.life is not None:
                await self._end_process("crash", one, chance)
            await asyncio.sleep(SESSION_MS / 1000 * (0.6 + 0.5 * chance.random()))
        await asyncio.sleep(lasts_s)
        self._start_ended()
        return True

    async def _restart_in_turn(self) -> bool:
        """Restart one broker after the other, each once all replicas are in sync again."""
        if not self._may_end():
            return False
        for node in self._cluster.nodes:
            if node.life is not None:
                await self._end_process("restart", node, stream(0, ""))
            if node.life is None:
                node.start()
            await self._until(self._is_well, RESTART_LIMIT_S)
        return True

    def _start_ended(self) -> None:
        for node in self._cluster.nodes:
            if node.life is None:
                node.start()

    def _may_end(self, *, power_cut: bool = False) -> bool:
        """Return whether a process may end without a legitimate loss of acknowledged records.

        Until a machine that lost power is in sync again, the others keep theirs; their processes may
        crash, which loses nothing. With min.insync.replicas=1 a leader may commit alone. Then a machine
        loses power only while every replica is in sync, so that each record is on a machine with power,
        and while no leader asks for a smaller set.
        """
        if self.lossy is not None and self._is_well():
            self.lossy = None
        if not power_cut or self.lossy is not None:
            return not power_cut
        return self._keeps_elr or (self._is_well() and not self._proposes_other_isr())

    def _proposes_other_isr(self) -> bool:
        return any(
            replica.partition.proposed_isr is not None
            for node in self._cluster.nodes
            for partitions in node.broker.context.replicas._topics.values()
            for replica in partitions.values()
        )

    def _is_well(self) -> bool:
        return not self._view.unwell() and all(node.serving for node in self._cluster.nodes)

    async def _pause(self, node: Node, lasts_s: float) -> bool:
        life = node.life
        if life is None or life.loop.paused:
            return False
        life.loop.pause()
        await asyncio.sleep(lasts_s)
        life.loop.resume()
        return True

    async def _pause_client(self, lasts_s: float, chance: Stream) -> bool:
        loops = [loop for loop in self._fleet.loops() if not loop.paused]
        if not loops:
            return False
        loop = chance.choice(loops)
        loop.pause()
        await asyncio.sleep(lasts_s)
        loop.resume()
        return True

    async def _slow_down(self, node: Node, lasts_s: float) -> bool:
        life = node.life
        if life is None:
            return False
        life.tasks.slow_down(SLOW_MS)
        await asyncio.sleep(lasts_s)
        life.tasks.slow_down(node.slowest_thread_ms)
        return True

    async def _fill_disk(self, node: Node, lasts_s: float) -> bool:
        """Fill a disk; return whether the broker left all in-sync sets while it was full."""
        node.faults.full, node.faults.freed = True, 0
        await asyncio.sleep(lasts_s)
        node.faults.full = False
        places = [
            TopicPartition(name, partition)
            for name, topic in self._view.topics().items()
            for partition in topic.replicas
        ]
        states = [self._view.state(at) for at in places]
        return all(state and node.settings.node_id not in state.isr for state in states)

    # -- ZooKeeper

    async def _restart_zookeeper(self, lasts_s: float) -> bool:
        if not self._zookeeper.up:
            return False
        self._zookeeper.stop()
        await asyncio.sleep(lasts_s)
        self._zookeeper.start()
        return True

    async def _wipe_zookeeper(self, lasts_s: float) -> bool:
        """ZooKeeper has none of its data for a while: no broker joins it, or removes a log."""
        if not self._zookeeper.up:
            return False
        before = [node.partitions() for node in self._cluster.nodes]
        self._zookeeper.wipe()
        await asyncio.sleep(lasts_s)
        if self._view.live() or self._view.controller() != NO_LEADER:
            self._cluster.scheduler.complain("I13: brokers use a store that has lost its data")
        for node, had in zip(self._cluster.nodes, before, strict=True):
            if not had <= node.partitions():
                removed = sorted(had - node.partitions())
                self._cluster.scheduler.complain(f"I10: {node.host} has removed {removed}")
        self._zookeeper.restore()
        everybody = {node.settings.node_id for node in self._cluster.nodes if node.life is not None}
        await self._until(lambda: set(self._view.live()) >= everybody, 2 * RECHECK_S)
        return True

    def _expire(self, node: Node) -> bool:
        session = self._view.session_of(node.settings.node_id)
        self._zookeeper.expire(session)
        return session != 0

    def _delete_controller(self) -> bool:
        """Delete /controller, as an operator could with zkCli."""
        return self._zookeeper.remove(CONTROLLER)

    async def _delete_controller_unheard(self, lasts_s: float) -> bool:
        """The former controller goes on for a while, and what it writes still arrives."""
        host = host_of(self._view.controller())
        self._network.cut(ZOOKEEPER_HOST, host)
        deleted = self._delete_controller()
        await asyncio.sleep(lasts_s)
        self._network.heal(ZOOKEEPER_HOST, host)
        return deleted

    async def _hold_control_requests(self, node: Node) -> bool:
        """What a controller decides reaches the brokers after its successor's decisions."""
        controller = host_of(self._view.controller())
        links = [(controller, one.host) for one in self._cluster.nodes if one.host != controller]
        for link in links:
            self._network.cut(*link)
        self._expire(node)
        await asyncio.sleep(SESSION_MS / 3000)
        deleted = self._delete_controller()
        await asyncio.sleep(SESSION_MS / 3000)
        for link in links:
            self._network.heal(*link)
        return deleted

    # -- partitions

    async def _operate(self, trouble: Trouble, chance: Stream) -> bool:
        if trouble.kind == "partitions moved":
            brokers = [node.settings.node_id for node in self._cluster.nodes]
            work = partition_moves(self._view, brokers, trouble, chance)
        else:
            work = leader_moves(self._view, trouble, chance)
        operator = self._fleet.operator(f"operator-{trouble.number}", work)
        await self._until(lambda: operator.done, OPERATOR_LIMIT_S)
        operator.loop.kill()
        self._network.process_died(operator.loop)
        return True

    # -- links

    async def _slow_links(self, lasts_s: float) -> None:
        self._network.slow_down(SLOW_LINK_MS)
        await asyncio.sleep(lasts_s)
        self._network.slow_down(self._slowest_network_ms)

    async def _slow_links_of_brokers(self, lasts_s: float) -> None:
        """Brokers hear late of each other; clients and ZooKeeper do not notice."""
        hosts = [node.host for node in self._cluster.nodes]
        links = list(permutations(hosts, 2))
        self._network.slow_down_links(links, SLOW_LINK_MS)
        await asyncio.sleep(lasts_s)
        self._network.slow_down_links(links, 0)

    async def _stall(self, kind: str, lasts_s: float) -> None:
        """What transactors or brokers have sent to brokers arrives after they have connected again.

        Late requests of other clients mean what they say: an offset may be committed again, and
        before transaction.version 2 a transaction may end early (KIP-890).
        """
        of_brokers = kind == "stalled streams of brokers"
        hosts = [node.host for node in self._cluster.nodes]
        senders = hosts if of_brokers else self._fleet.transactions.fenced_by_epochs()
        ends = self._network.stall_some(STALLED_SHARE, senders)
        await asyncio.sleep(lasts_s)
        self._network.release(ends)

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
