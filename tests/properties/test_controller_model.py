"""The controller through random events, with writes and answers that take their time.

The store applies writes in their order and answers later; a controller that fails takes the writes that
have not reached the store with it, and the next one loads what is there. After every write that is
applied: only in-sync and eligible replicas lead, unless the election was unclean or all of them may have
lost records; only leaders add members; and no replica is eligible beside a set that is large enough. At
rest: memory and store agree, every partition with a live in-sync or eligible replica has a live leader,
every live broker knows it, no broker that lost records is eligible or in a set with others, and nothing
that could go on waits.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.controller.commands import (
    AlterPartition,
    AlterReassignments,
    Command,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    IsrProposal,
    ListReassignments,
    MorePartitions,
    Reassignment,
    TopicCreation,
)
from headwater.controller.control_requests import FULL
from headwater.controller.decide import Controller
from headwater.controller.effects import Answer, Resign, Resume, Send, Write
from headwater.controller.events import (
    Acknowledged,
    BrokersChanged,
    Elected,
    Event,
    Resumed,
    Stored,
    Submitted,
    TimePassed,
)
from headwater.controller.leader_elections import MIN_INSYNC
from headwater.controller.metadata_loader import read_topics
from headwater.controller.state import ClusterState, LiveBroker, PartitionRegistration
from headwater.controller.store.metadata_store import (
    Check,
    Create,
    Delete,
    Set,
    StoreError,
    StoreFailure,
)
from headwater.controller.store.znodes import (
    BROKER_EPOCHS,
    CONTROLLER_EPOCH,
    BrokerEndpoint,
    BrokerNode,
    StateNode,
    TopicNode,
    config_path,
    decode_config,
)
from headwater.controller.topic_rules import ControllerSettings
from headwater.errors import E
from headwater.model import NO_LEADER, TopicPartition
from headwater.wire.messages.control import LeaderAndIsrRequest, UpdateMetadataRequest

BROKERS = range(5)
SEEDS = 150
EVENTS = 60


class ModelStore:
    """Nodes with versions; the part of the store that loading needs."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {CONTROLLER_EPOCH: (b"0", 0)}
        self.nodes[BROKER_EPOCHS] = (b"", 0)
        self._sequence = 0
        self._replies: deque[Callable[[], None]] = deque()

    def apply(self, ops: list[Any]) -> list[Any]:
        nodes, results = dict(self.nodes), []
        for op in ops:
            path = op.path
            if isinstance(op, Create):
                if op.sequential:
                    self._sequence += 1
                    path = f"{path}{self._sequence:010d}"
                assert path not in nodes, f"{path} exists"
                nodes[path] = (op.data, 0)
                results.append(path)
                continue
            assert path in nodes, f"there is no {path}"
            version = nodes[path][1]
            assert op.version in (-1, version), f"{path} has version {version}, not {op.version}"
            if isinstance(op, Set):
                nodes[path] = (op.data, version + 1)
            elif isinstance(op, Delete):
                assert not any(one.startswith(f"{path}/") for one in nodes), f"{path} has children"
                del nodes[path]
            else:
                assert isinstance(op, Check)
            results.append(None)
        self.nodes = nodes
        return results

    def get(self, path: str, reply: Any, watch: Any = None) -> None:
        def answer() -> None:
            if path in self.nodes:
                data, version = self.nodes[path]
                reply(SimpleNamespace(data=data, stat=SimpleNamespace(version=version)))
            else:
                reply(StoreError(StoreFailure.NO_NODE, path))

        self._replies.append(answer)

    def children(self, path: str, reply: Any, watch: Any = None) -> None:
        names = {
            one[len(path) + 1 :].split("/")[0] for one in self.nodes if one.startswith(f"{path}/")
        }
        self._replies.append(lambda: reply(sorted(names)))

    def load(self) -> ClusterState:
        loaded: list[Any] = []
        read_topics(self, loaded.append)  # type: ignore[arg-type]
        while self._replies:
            self._replies.popleft()()
        (state,) = loaded
        return state


class Cluster:
    """A controller, its store and its brokers; what they do is drawn at random."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.store = ModelStore()
        self.live: dict[int, LiveBroker] = {}
        self.zxid = 100
        self.kept_since: dict[int, int] = {}
        self.tokens = 0
        self.unanswered: set[int] = set()
        self.now_ms = 0
        self.ids = iter(range(1, 10_000))
        self.writes: deque[Write] = deque()
        self.applied: deque[tuple[int, list[Any]]] = deque()
        self.sends: list[Send] = []
        self.controller: Controller | None = None
        # By broker and life: leaders of its own replicas, and what it tells clients.
        self.told: dict[tuple[int, int], tuple[dict[Any, Any], dict[Any, Any]]] = {}
        # The sets that a broker was in when it stopped uncleanly, and has not left since.
        self.lost: set[tuple[str, int]] = set()
        # Partitions announced to a broker, so that they may have records; by broker, those
        # that it was in sync with when it registered.
        self.served: set[str] = set()
        self.returned_to: dict[int, set[str]] = {}
        for broker_id in BROKERS:
            self.register(broker_id)
        self.epoch = 0
        self.fail_over()

    # -- the controller

    def fail_over(self) -> None:
        """The controller dies with what has not reached the store; another one takes over."""
        for _ in range(self.random.randint(0, len(self.writes))):
            self.apply_write()
        self.writes.clear()
        self.applied.clear()
        self.sends.clear()
        self.unanswered.clear()
        self.epoch += 1
        _, version = self.store.nodes[CONTROLLER_EPOCH]
        self.store.nodes[CONTROLLER_EPOCH] = (str(self.epoch).encode(), version + 1)
        settings = ControllerSettings(unclean_leader_election=False)
        self.controller = Controller(0, settings, lambda: next(self.ids).to_bytes(16, "big"))
        state = self.store.load()
        state.brokers.update(self.live)
        self.feed(Elected(self.epoch, version + 1, state))

    def feed(self, event: Event) -> None:
        pending: deque[Event] = deque([event])
        while pending:
            assert self.controller is not None
            for effect in self.controller.on(self.now_ms, pending.popleft()):
                match effect:
                    case Write():
                        self.writes.append(effect)
                    case Send():
                        self.sends.append(effect)
                    case Resume():
                        pending.append(Resumed())
                    case Answer(token):
                        self.unanswered.remove(token)
                    case Resign(reason):
                        raise AssertionError(f"the controller resigns: {reason}")

    @property
    def state(self) -> ClusterState:
        assert self.controller is not None
        assert self.controller._term is not None
        return self.controller._term.outstanding.state

    def submit(self, command: Command[Any]) -> None:
        self.tokens += 1
        self.unanswered.add(self.tokens)
        self.feed(Submitted(command, self.tokens))

    # -- the store and the brokers answer

    def apply_write(self) -> None:
        write = self.writes.popleft()
        before = self.states()
        results = self.store.apply(list(write.ops))
        self.check_transitions(before)
        self.applied.append((write.ticket, results))

    def answer_write(self) -> None:
        if not self.applied and self.writes:
            self.apply_write()
        if self.applied:
            self.feed(Stored(*self.applied.popleft()))

    def answer_send(self) -> None:
        if self.sends:
            # Each broker answers in the order of its requests.
            broker = self.random.choice(self.sends).broker_id
            send = next(one for one in self.sends if one.broker_id == broker)
            self.sends.remove(send)
            self.apply_send(send)
            self.feed(Acknowledged(send.ticket, E.NONE))

    def apply_send(self, send: Send) -> None:
        """What a broker knows of its replicas and of all partitions; a new life knows nothing."""
        message: Any = send.message
        broker = self.live[send.broker_id]
        if message.broker_epoch != broker.epoch:
            return
        led, known = self.told.setdefault((broker.broker_id, broker.epoch), ({}, {}))
        if isinstance(message, LeaderAndIsrRequest) and message.type == FULL:
            self.check_strays(broker.broker_id, {StateNode.path(*at) for at in led})
        for topic in message.topic_states:
            for one in topic.partition_states:
                at = TopicPartition(topic.topic_name, one.partition_index)
                if isinstance(message, LeaderAndIsrRequest):
                    led[at] = (one.leader, one.leader_epoch)
                    self.served.add(StateNode.path(*at))
                elif isinstance(message, UpdateMetadataRequest):
                    known[at] = (one.leader, one.leader_epoch, tuple(one.isr))
                else:
                    led.pop(at, None)

    def come_to_rest(self) -> None:
        for _ in range(100_000):
            if not (self.writes or self.applied or self.sends):
                return
            self.answer_write()
            self.answer_send()
        raise AssertionError("the controller does not come to rest")

    # -- events

    def register(self, broker_id: int) -> None:
        self.zxid += 1
        endpoint = BrokerEndpoint("PLAINTEXT", f"b{broker_id}", 9092, "PLAINTEXT")
        kept_since = self.kept_since.pop(broker_id, -1)
        node = BrokerNode(broker_id, (endpoint,), kept_since=kept_since)
        self.live[broker_id] = LiveBroker(node, self.zxid)
        self.returned_to[broker_id] = self.in_sync_on(broker_id) & self.served
        if kept_since == -1:
            self.lost |= {(path, broker_id) for path in self.in_sync_on(broker_id)}

    def in_sync_on(self, broker_id: int) -> set[str]:
        """The state nodes that have the broker as in sync or eligible, in the store or as decided."""
        stored = {
            path
            for path, state in self.states().items()
            if broker_id in state.isr or broker_id in state.elr
        }
        known = self.state.topics if self.controller else {}
        decided = {
            StateNode.path(*at)
            for at in (self.state.partitions() if self.controller else ())
            if broker_id in known[at.topic].partitions[at.partition].isr
            or broker_id in known[at.topic].partitions[at.partition].elr
        }
        return stored | decided

    def brokers_change(self) -> None:
        broker_id = self.random.choice(BROKERS)
        alive = self.live.pop(broker_id, None)
        if alive is not None and self.random.random() < 0.4:
            kept_since = alive.node.kept_since
            self.kept_since[broker_id] = kept_since if kept_since >= 0 else alive.epoch
        if alive is None or self.random.random() < 0.3:
            self.register(broker_id)
        self.sends = [send for send in self.sends if send.broker_id in self.live]
        self.feed(BrokersChanged(dict(sorted(self.live.items()))))

    def stop_in_order(self) -> None:
        if self.live:
            broker = self.random.choice(list(self.live.values()))
            self.submit(ControlledShutdown(broker.broker_id, broker.epoch))

    def change_isr(self) -> None:
        at, partition = self.any_partition()
        leader = self.live.get(partition.leader) if partition else None
        if partition is None or leader is None:
            return
        if self.random.random() < 0.2:
            self.refuse_writes(at, partition)
            return
        isr = [one for one in partition.replicas if self.random.random() < 0.8]
        members = {*isr, partition.leader} & set(self.live)
        proposal = IsrProposal(
            at.topic,
            bytes(16),
            at.partition,
            partition.leader_epoch,
            partition.version,
            [(one, self.live[one].epoch) for one in sorted(members)],
        )
        self.submit(AlterPartition(leader.broker_id, leader.epoch, [proposal]))

    def refuse_writes(self, at: TopicPartition, partition: PartitionRegistration) -> None:
        """The disk of a replica is full or has failed: it asks for the in-sync set without itself."""
        broker = self.live.get(self.random.choice(partition.replicas))
        if broker is None:
            return
        others = [one for one in partition.isr if one in self.live and one != broker.broker_id]
        proposal = IsrProposal(
            at.topic,
            bytes(16),
            at.partition,
            partition.leader_epoch,
            partition.version,
            [(one, self.live[one].epoch) for one in others if broker.broker_id == partition.leader],
            keeps_records=self.random.random() < 0.7,
        )
        self.submit(AlterPartition(broker.broker_id, broker.epoch, [proposal]))

    def move(self) -> None:
        at, partition = self.any_partition()
        if partition is not None:
            count = self.random.randint(1, 3)
            target = self.random.sample(list(BROKERS), count)
            cancel = self.random.random() < 0.3
            self.submit(AlterReassignments([Reassignment(at, None if cancel else target)]))
            self.submit(ListReassignments(None))

    def any_partition(self) -> tuple[TopicPartition, PartitionRegistration | None]:
        known = list(self.state.partitions())
        if not known:
            return TopicPartition("none", 0), None
        at = self.random.choice(known)
        return at, self.state.partition(at)

    def change_topics(self) -> None:
        name = self.random.choice("abc")
        match self.random.randint(0, 3):
            case 0 | 1:
                replicas = self.random.randint(1, 3)
                config = {MIN_INSYNC: str(self.random.randint(1, 3))}
                self.submit(CreateTopics([TopicCreation(name, 2, replicas, configs=config)]))
            case 2:
                self.submit(DeleteTopics([name]))
            case 3:
                self.submit(CreatePartitions([MorePartitions(name, self.random.randint(2, 4))]))

    def elect(self) -> None:
        self.submit(ElectLeaders(None, unclean=self.random.random() < 0.2))

    def wait(self) -> None:
        self.now_ms += 300_000
        self.feed(TimePassed())

    def step(self) -> None:
        what = self.random.choices(
            [
                self.answer_write,
                self.answer_send,
                self.change_isr,
                self.brokers_change,
                self.change_topics,
                self.move,
                self.elect,
                self.stop_in_order,
                self.wait,
                self.fail_over,
            ],
            [30, 40, 14, 6, 6, 6, 2, 1, 1, 2],
        )
        what[0]()

    # -- what must hold

    def states(self) -> dict[str, StateNode]:
        return {
            path: StateNode.decode("t", 0, data)
            for path, (data, _) in self.store.nodes.items()
            if path.endswith("/state")
        }

    def check_transitions(self, before: dict[str, StateNode]) -> None:
        now, lost = self.states(), self.lost
        deleted = before.keys() - now.keys()
        self.served -= deleted
        for paths in self.returned_to.values():
            paths.difference_update(deleted)
        self.lost = {(path, broker) for path, broker in self.lost if path not in deleted}
        for path, state in now.items():
            former = before.get(path)
            complete = {*state.isr, *state.elr}
            self.lost = self.lost - {(path, one) for one in BROKERS if one not in complete}
            if state.isr == (state.leader,):
                self.lost.discard((path, state.leader))  # what the last one has counts from now on
            assert state.leader == NO_LEADER or state.leader in state.isr, (path, state)
            assert state.isr or (state.elr and state.leader == NO_LEADER), (path, state)
            assert not set(state.isr) & set(state.elr), (path, state)
            assert not state.elr or len(state.isr) < self.needed(path), (path, state)
            if former is None or former == state:
                continue
            assert state.leader_epoch >= former.leader_epoch, path
            unclean = state.recovering and state.isr == (state.leader,)
            if state.leader != former.leader:
                assert state.leader_epoch > former.leader_epoch, path
            added = set(state.isr) - set(former.isr)
            by_leader = (state.leader, state.leader_epoch) == (former.leader, former.leader_epoch)
            if added and not (by_leader or unclean):
                assert len(state.isr) == 1, (path, former, state)
                if not added <= set(former.elr):
                    assert added <= {former.leader, former.last_known_leader}, (path, former, state)
                    known = {(path, one) for one in (*former.isr, *former.elr)}
                    assert known <= lost, (path, former, state)

    def needed(self, path: str) -> int:
        topic, partition = path.split("/")[3], int(path.split("/")[5])
        config = decode_config(path, self.store.nodes[config_path("topics", topic)][0])
        replicas = TopicNode.decode(topic, self.store.nodes[TopicNode.path(topic)][0]).replicas
        return min(int(config[MIN_INSYNC]), len(replicas[partition]))

    def check_strays(self, broker_id: int, told: set[str]) -> None:
        """A broker that has received everything sets its other logs aside: none is in sync."""
        states = self.states()
        deleting = {topic.name for topic in self.state.topics.values() if topic.deleting}
        kept = {
            path
            for path in self.returned_to[broker_id]
            if broker_id in states[path].isr and path.split("/")[3] not in deleting
        }
        assert kept <= told, f"broker {broker_id} did not receive {kept - told}"

    def check_at_rest(self) -> None:
        self.come_to_rest()
        assert self.controller is not None
        assert self.controller._term is not None
        assert not self.controller._term._jobs
        assert not self.unanswered
        stored, known = self.store.load(), self.state
        assert stored.topics == known.topics
        assert stored.known_epochs == known.known_epochs
        assert stored.by_id == known.by_id
        assert {broker: counts for broker, counts in known.load.items() if counts[1]} == stored.load
        for at in known.partitions():
            partition = known.partition(at)
            assert partition is not None
            assert set(partition.isr) <= set(partition.replicas), at
            if {*partition.isr, *partition.elr} & set(self.live):
                assert partition.leader in self.live, (at, partition)
            for broker in self.live.values():
                led, told = self.told[broker.broker_id, broker.epoch]
                seen = (partition.leader, partition.leader_epoch, partition.isr)
                assert told.get(at) == seen, (at, broker.broker_id, told.get(at), seen)
                if broker.broker_id in partition.target:  # others may have been deleted
                    assert led.get(at) == seen[:2], (at, broker.broker_id, led.get(at), seen)
            done = partition.caught_up and partition.leader in self.live
            assert not (partition.moving and done), (at, partition)
            for broker in set(partition.isr) & set(self.live):
                lost = (StateNode.path(*at), broker) in self.lost
                assert not lost or partition.isr == (broker,), (at, partition)
            for broker in set(partition.elr) & set(self.live):
                assert (StateNode.path(*at), broker) not in self.lost, (at, partition)
        for topic in known.topics.values():
            holders = {one for each in topic.partitions.values() for one in each.replicas}
            assert not topic.deleting or holders - set(self.live), topic


@pytest.mark.parametrize("first", range(0, SEEDS, 25))
def test_memory_and_store_agree_whatever_happens(first):
    for seed in range(first, first + 25):
        cluster = Cluster(seed)
        try:
            for _ in range(EVENTS):
                cluster.step()
            cluster.check_at_rest()
            for broker_id in BROKERS:
                if broker_id not in cluster.live:
                    cluster.register(broker_id)
            cluster.feed(BrokersChanged(dict(sorted(cluster.live.items()))))
            cluster.check_at_rest()
            cluster.fail_over()
            cluster.check_at_rest()
        except AssertionError as violated:
            raise AssertionError(f"seed {seed}: {violated}") from violated
