"""Checks the invariants of everything that brokers write to ZooKeeper, at every write (I13)."""

from collections.abc import Callable

from headwater.controller.store.tree import Edit, Made, Tree, Wrote
from headwater.controller.store.znodes import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    TOPICS,
    BrokerNode,
    StateNode,
    TopicNode,
    decode_controller,
)
from headwater.model import NO_LEADER, TopicPartition, Uuid
from simulator.partition_promises import Complain


class StoreChecks:
    """Checks the tree: epochs only grow, leaders are in sync, in-sync replicas are replicas."""

    def __init__(self, tree: Tree, complain: Complain) -> None:
        self._tree = tree
        self._complain = complain
        self._controller_epoch = 0
        self._states: dict[tuple[Uuid, int], StateNode] = {}
        self.on_registration: Callable[[int, dict[tuple[Uuid, int], int]], None] = lambda *_: None
        """Called with a broker that registers and the leader epochs that are stored then."""
        self.on_in_sync: Callable[[Uuid, TopicPartition, tuple[int, ...]], None] = lambda *_: None
        """Called with the in-sync and eligible replicas that are stored."""

    def edited(self, edit: Edit) -> None:
        """Check one change of the tree."""
        if not isinstance(edit, Made | Wrote):
            return
        if edit.path == CONTROLLER_EPOCH:
            self._epoch_written(int(edit.data))
            return
        parts = edit.path.split("/")
        if edit.path.startswith(f"{BROKER_IDS}/") and isinstance(edit, Made):
            epochs = {key: state.leader_epoch for key, state in self._states.items()}
            self.on_registration(int(parts[-1]), epochs)
        if parts[-1] == "state" and edit.path.startswith(TOPICS) and len(parts) == 7:
            at = TopicPartition(parts[3], int(parts[5]))
            self._state_written(at, StateNode.decode(*at, edit.data))

    def _epoch_written(self, epoch: int) -> None:
        if epoch <= self._controller_epoch and self._controller_epoch:
            self._complain(f"I13: controller epoch {epoch} after {self._controller_epoch}")
        self._controller_epoch = epoch

    def _state_written(self, at: TopicPartition, state: StateNode) -> None:
        topic = TopicNode.decode(at.topic, self._tree.get(TopicNode.path(at.topic)).data)
        replicas = {*topic.replicas[at.partition], *topic.removing.get(at.partition, ())}
        if state.leader != NO_LEADER and state.leader not in state.isr:
            self._complain(f"I13: {at} is led by {state.leader}, which is not in {state.isr}")
        waits = state.elr and state.leader == NO_LEADER
        if not (state.isr or waits) or not {*state.isr, *state.elr} <= replicas:
            self._complain(f"I13: {at} has in sync {state.isr} of {sorted(replicas)}")
        if set(state.isr) & set(state.elr):
            self._complain(f"I13: {at} has in sync {state.isr}, eligible beside them {state.elr}")
        before = self._states.get((topic.topic_id, at.partition))
        self._states[topic.topic_id, at.partition] = state
        if state.controller_epoch != self._controller_epoch:
            self._complain(
                f"I13: controller of epoch {state.controller_epoch} writes {at} in epoch "
                f"{self._controller_epoch}"
            )
        self.on_in_sync(topic.topic_id, at, (*state.isr, *state.elr))
        if before is None:
            return
        same_leader = state.leader == before.leader
        if state.leader_epoch < before.leader_epoch or (
            state.leader_epoch == before.leader_epoch and not same_leader
        ):
            self._complain(f"I13: {at} {state} after {before}")
        complete = {*before.isr, *before.elr}
        if not complete & {*state.isr, *state.elr}:
            self._complain(f"I1: {at} has in sync {state.isr} after {before}: none is left")


class StoreView:
    """The cluster as stored in ZooKeeper."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._zxid = -1
        self._unwell: list[str] = []

    def live(self) -> set[int]:
        """Return the registered brokers."""
        return {int(name) for name in self._children(BROKER_IDS)}

    def controller(self) -> int:
        """Return the controller, NO_LEADER if there is none."""
        stat = self._tree.stat(CONTROLLER)
        return decode_controller(self._tree.get(CONTROLLER).data) if stat else NO_LEADER

    def session_of(self, broker_id: int) -> int:
        """Return the session of a broker's registration, 0 if it is not registered."""
        stat = self._tree.stat(BrokerNode.path(broker_id))
        return stat.ephemeral_owner if stat is not None else 0

    def topics(self) -> dict[str, TopicNode]:
        """The topics, in order."""
        return {
            name: TopicNode.decode(name, self._tree.get(TopicNode.path(name)).data)
            for name in self._children(TOPICS)
        }

    def state(self, at: TopicPartition) -> StateNode | None:
        """Return the state of a partition."""
        path = StateNode.path(*at)
        if self._tree.stat(path) is None:
            return None
        return StateNode.decode(*at, self._tree.get(path).data)

    def versions(self) -> dict[TopicPartition, int]:
        """Return how often the state of each partition was written."""
        found = {}
        for name, topic in self.topics().items():
            for partition in topic.replicas:
                stat = self._tree.stat(StateNode.path(name, partition))
                if stat is not None:
                    found[TopicPartition(name, partition)] = stat.version
        return found

    def unwell(self) -> list[str]:
        """Return partitions without a leader, with a replica that is not in sync, or being moved."""
        if self._tree.zxid != self._zxid:
            self._zxid, self._unwell = self._tree.zxid, self._find_unwell()
        return self._unwell

    def _find_unwell(self) -> list[str]:
        live, found = self.live(), []
        for name, topic in self.topics().items():
            for partition, replicas in topic.replicas.items():
                state = self.state(TopicPartition(name, partition))
                if state is None or state.leader not in live:
                    found.append(f"{name}-{partition} has no leader ({state})")
                elif set(state.isr) != set(replicas):
                    found.append(f"{name}-{partition} has in sync {state.isr} of {replicas}")
                elif topic.adding.get(partition) or topic.removing.get(partition):
                    found.append(f"{name}-{partition} is being moved")
        return found

    def _children(self, path: str) -> list[str]:
        return self._tree.children(path) if self._tree.stat(path) is not None else []
