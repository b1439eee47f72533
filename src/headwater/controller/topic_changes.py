"""Creates, grows and deletes topics. Pure; each command is a job that pauses between steps.

A creation writes the topic's node with the whole assignment, then the states of its partitions in
steps; after a crash in between, the next controller elects the first leader of each partition without
a state. A deletion writes a mark, then deletes the replicas, then the nodes; the next controller
resumes it after a crash.
"""

from collections.abc import Callable, Generator, Iterator, Sequence

from headwater.controller.commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    TopicOutcome,
)
from headwater.controller.continuations import (
    DeleteReplicas,
    ForgetTopic,
    NoteReplicasDeleted,
    Nothing,
)
from headwater.controller.control_requests import delete_replicas
from headwater.controller.leader_elections import PARTITIONS_PER_STEP, LeaderElections, state_ops
from headwater.controller.outstanding import Outstanding
from headwater.controller.placement import Placement
from headwater.controller.state import PartitionRegistration, TopicState
from headwater.controller.store.metadata_store import Create, Delete, Op, Set
from headwater.controller.store.znodes import (
    StateNode,
    TopicNode,
    config_path,
    deletion_path,
    encode_config,
    partitions_path,
)
from headwater.controller.topic_rules import (
    MAX_PARTITIONS_PER_REQUEST,
    TopicPlan,
    deletable_topic,
    duplicates,
    plan_partitions,
    plan_topic,
    sites,
)
from headwater.errors import E, KafkaError
from headwater.model import ZERO_UUID, TopicPartition, Uuid

REFUSALS_PER_STEP = 50
"""How many names of unknown topics are refused in one step."""
FOLDERS_PER_STEP = 10
"""How many partitions one control request creates or deletes; each takes a millisecond on a slow
disk."""


class TopicChanges:
    def __init__(
        self,
        outstanding: Outstanding,
        elections: LeaderElections,
        new_topic_id: Callable[[], Uuid],
        later: Callable[[Iterator[None]], None],
    ) -> None:
        self._outstanding = outstanding
        self._state = outstanding.state
        self._elections = elections
        self._new_topic_id = new_topic_id
        self._later = later
        # Topics with a durable deletion mark whose nodes are not being removed yet.
        self._marked = {name for name, topic in self._state.topics.items() if topic.deleting}
        # By marked topic: the brokers that may still have replicas.
        self._owing: dict[str, set[int]] = {}
        self._waiting_for_deletion: dict[str, list[int]] = {}
        # By topic: when its deletion was first found waiting.
        self._stuck_since: dict[str, int] = {}
        self._attempts = 0
        self._failed_attempts: set[int] = set()

    # -- creating

    def create(self, command: CreateTopics, token: int) -> Iterator[None]:
        outcomes = []
        twice = duplicates(new.name for new in command.topics)
        room = MAX_PARTITIONS_PER_REQUEST
        for new in {new.name: new for new in command.topics}.values():
            yield
            try:
                _refuse_repeated(new.name, twice)
                plan = plan_topic(new, self._state, self._outstanding.settings)
                room = _within(room, plan)
            except KafkaError as refusal:
                outcomes.append(TopicOutcome.refused(new.name, refusal))
                continue
            topic = TopicState(new.name, self._new_topic_id(), {}, config=plan.config)
            outcomes.append(_outcome(topic, plan))
            if not command.validate_only:
                yield from self._create(topic, plan, token)
        self._outstanding.decided(token, outcomes)

    def _create(self, topic: TopicState, plan: TopicPlan, token: int) -> Iterator[None]:
        self._state.add(topic)  # from here on the name is taken
        shown = "".join(f", {key}={value!r}" for key, value in plan.config.items())
        self._outstanding.report(
            f"topic {topic.name!r} created: {plan.count} partitions, "
            f"{plan.replication_factor} replicas{shown}"
        )
        replicas = yield from self._replicas(topic, plan)
        node = TopicNode(topic.topic_id, dict(enumerate(replicas)))
        ops: list[Op] = [
            self._config_op(topic),
            Create(TopicNode.path(topic.name), node.encode()),
            Create(partitions_path(topic.name)),
        ]
        yield from self._add_partitions(topic, 0, replicas, ops, token)

    def _config_op(self, topic: TopicState) -> Op:
        path, data = config_path("topics", topic.name), encode_config(topic.config)
        if path in self._state.config_nodes:
            return Set(path, data)
        self._state.config_nodes.add(path)
        return Create(path, data)

    def _replicas(
        self, topic: TopicState, plan: TopicPlan
    ) -> Generator[None, None, Sequence[tuple[int, ...]]]:
        if plan.replicas is not None:
            return plan.replicas
        taken = [partition.replicas for partition in topic.partitions.values()]
        placement = Placement(sites(self._state), self._state.load, taken)
        replicas = []
        for count in range(1, plan.count + 1):
            replicas.append(placement.next(plan.replication_factor))
            if count % PARTITIONS_PER_STEP == 0:
                yield
        return replicas

    def _add_partitions(
        self,
        topic: TopicState,
        first: int,
        replicas: Sequence[tuple[int, ...]],
        ops: list[Op],
        token: int,
    ) -> Iterator[None]:
        """Write the topic's `ops` with the first states, then the other states step by step."""
        topic.planned = first + len(replicas)
        for start in range(0, len(replicas), FOLDERS_PER_STEP):
            added = []
            for index, brokers in enumerate(
                replicas[start : start + FOLDERS_PER_STEP], first + start
            ):
                at, partition = TopicPartition(topic.name, index), PartitionRegistration(brokers)
                self._elections.first_leader(partition)
                ops += state_ops(at, partition)
                partition.version = 0
                self._state.add_partition(topic, index, partition)
                added.append(at)
            self._outstanding.write_partitions(ops, added, token, new=True)
            ops = []
            if start + FOLDERS_PER_STEP < len(replicas):
                yield

    # -- growing

    def create_partitions(self, command: CreatePartitions, token: int) -> Iterator[None]:
        outcomes = []
        twice = duplicates(more.name for more in command.topics)
        room = MAX_PARTITIONS_PER_REQUEST
        for more in {more.name: more for more in command.topics}.values():
            yield
            try:
                _refuse_repeated(more.name, twice)
                plan = plan_partitions(more, self._state)
                room = _within(room, plan)
            except KafkaError as refusal:
                outcomes.append(TopicOutcome.refused(more.name, refusal))
                continue
            topic = self._state.topics[more.name]
            outcomes.append(_outcome(topic, plan))
            if not command.validate_only:
                yield from self._grow(topic, plan, token)
        self._outstanding.decided(token, outcomes)

    def _grow(self, topic: TopicState, plan: TopicPlan, token: int) -> Iterator[None]:
        added = yield from self._replicas(topic, plan)
        self._outstanding.report(
            f"topic {topic.name!r} grows from {plan.first} to {plan.first + plan.count} partitions"
        )
        have = [topic.partitions[index].replicas for index in range(plan.first)]  # none is moving
        node = TopicNode(topic.topic_id, dict(enumerate([*have, *added])))
        ops: list[Op] = [Set(TopicNode.path(topic.name), node.encode(), topic.version)]
        topic.version += 1
        yield from self._add_partitions(topic, plan.first, added, ops, token)

    # -- deleting

    def delete(self, command: DeleteTopics, token: int) -> Iterator[None]:
        """Answer once the topics are gone, or marked if a broker with a replica is down."""
        outcomes = []
        names = dict.fromkeys(command.names) if duplicates(command.names) else command.names
        for number, name in enumerate(names, 1):
            if number % REFUSALS_PER_STEP == 0:
                yield
            try:
                topic = self._deletable(name, command.ids.get(name))
            except KafkaError as refusal:
                topic_id = command.ids.get(name, ZERO_UUID)
                outcomes.append(TopicOutcome.refused(name, refusal, topic_id))
                continue
            outcomes.append(TopicOutcome(name, topic_id=topic.topic_id))
            self._outstanding.hold(token)
            self._waiting_for_deletion.setdefault(name, []).append(token)
            if not topic.deleting:
                self._mark(topic)
            yield
        self._outstanding.decided(token, outcomes)

    def _deletable(self, name: str, topic_id: Uuid | None) -> TopicState:
        """The topic to delete; with an id, never a newer topic of the same name.

        A second request waits with the first: until the mark is durable, the deletion may still fail.
        """
        known = self._state.topics.get(name)
        if topic_id is not None and (known is None or known.topic_id != topic_id):
            raise KafkaError(E.UNKNOWN_TOPIC_ID, "no topic has this id")
        if known is not None and known.deleting and name in self._waiting_for_deletion:
            return known
        return deletable_topic(name, self._state, self._outstanding.settings)

    def _mark(self, topic: TopicState) -> None:
        topic.deleting = True
        self._outstanding.report(f"topic {topic.name!r} is marked for deletion")
        self._outstanding.write([Create(deletion_path(topic.name))], DeleteReplicas(topic.name))

    def deletion_marked(self, name: str) -> None:
        """Delete the replicas of a topic: the mark of its deletion is durable."""
        self._marked.add(name)
        self._later(self._delete_replicas(self._state.topics[name]))

    def resume_deletions(self) -> None:
        """Continue the deletions that wait for brokers."""
        for name in sorted(self._marked):
            self._later(self._delete_replicas(self._state.topics[name]))

    def report_stuck(self, now_ms: int) -> None:
        """Log each deletion that waits: for which brokers, and for how long."""
        waiting = {name: owing for name, owing in self._owing.items() if owing}
        self._stuck_since = {name: self._stuck_since.get(name, now_ms) for name in waiting}
        for name, since in self._stuck_since.items():
            if since < now_ms:
                self._outstanding.report(
                    f"the deletion of topic {name!r} waits for brokers {sorted(waiting[name])}, "
                    f"for {(now_ms - since) // 1000} s: start them, or take them out of the cluster",
                    loud=True,
                )

    def _delete_replicas(self, topic: TopicState) -> Iterator[None]:
        """Hide the topic from clients of every broker, then delete its replicas on the live ones."""
        if topic.name not in self._marked:
            return
        owing = {broker for one in topic.partitions.values() for broker in one.replicas}
        self._owing[topic.name] = owing
        for indexes in _steps(list(topic.partitions)):
            self._outstanding.send_update_metadata(
                [TopicPartition(topic.name, index) for index in indexes]
            )
            yield
        for broker_id in sorted(owing & set(self._state.brokers)):
            yield from self._stop(topic, broker_id)
        if not owing <= set(self._state.brokers):
            self._release_waiting(topic.name)
        self._remove_if_nothing_owed(topic.name)

    def _stop(self, topic: TopicState, broker_id: int) -> Iterator[None]:
        mine = [i for i, one in topic.partitions.items() if broker_id in one.replicas]
        steps = _steps(mine, FOLDERS_PER_STEP)
        self._attempts += 1
        attempt = self._attempts
        for number, indexes in enumerate(steps, 1):
            broker = self._state.brokers.get(broker_id)
            if broker is None:
                return
            request = delete_replicas(self._outstanding.identity, broker, topic, indexes)
            then = NoteReplicasDeleted(topic.name, broker_id, attempt, number == len(steps))
            self._outstanding.send(broker_id, request, then)
            yield

    def replicas_deleted(self, answered: NoteReplicasDeleted, error: E) -> None:
        """Remove the topic's nodes once every broker has deleted its replicas."""
        if error is not E.NONE:
            self._failed_attempts.add(answered.attempt)
        if not answered.last:
            return
        if answered.attempt in self._failed_attempts:
            self._failed_attempts.discard(answered.attempt)
            self._release_waiting(answered.topic)
        else:
            self._owing.get(answered.topic, set()).discard(answered.broker_id)
            self._remove_if_nothing_owed(answered.topic)

    def _remove_if_nothing_owed(self, name: str) -> None:
        if self._owing.get(name) == set():
            del self._owing[name]
            self._marked.discard(name)
            self._later(self._remove_nodes(self._state.topics[name]))

    def _remove_nodes(self, topic: TopicState) -> Iterator[None]:
        parent = partitions_path(topic.name)
        for indexes in _steps(list(topic.partitions)):
            ops: list[Op] = []
            for index in indexes:
                if topic.partitions[index].version >= 0:
                    ops += (Delete(StateNode.path(topic.name, index)), Delete(f"{parent}/{index}"))
            self._outstanding.write(ops, Nothing())
            yield
        last = [Delete(parent), Delete(TopicNode.path(topic.name))]
        config = config_path("topics", topic.name)
        if config in self._state.config_nodes:
            last.append(Delete(config))
        last.append(Delete(deletion_path(topic.name)))
        self._outstanding.write(last, ForgetTopic(topic.name))

    def topic_removed(self, name: str) -> None:
        """Forget a topic: its last node is gone from the store."""
        self._state.config_nodes.discard(config_path("topics", name))
        self._state.drop(name)
        self._outstanding.report(f"topic {name!r} deleted")
        self._release_waiting(name)

    def _release_waiting(self, name: str) -> None:
        for token in self._waiting_for_deletion.pop(name, []):
            self._outstanding.release(token)


def _steps(indexes: list[int], size: int = PARTITIONS_PER_STEP) -> list[list[int]]:
    return [indexes[start : start + size] for start in range(0, len(indexes), size)]


def _outcome(topic: TopicState, plan: TopicPlan) -> TopicOutcome:
    return TopicOutcome(
        topic.name,
        topic_id=topic.topic_id,
        partitions=plan.first + plan.count,
        replication_factor=plan.replication_factor,
    )


def _within(room: int, plan: TopicPlan) -> int:
    if plan.count > room:
        raise KafkaError(
            E.POLICY_VIOLATION,
            f"one request may create at most {MAX_PARTITIONS_PER_REQUEST} partitions",
        )
    return room - plan.count


def _refuse_repeated(name: str, twice: set[str]) -> None:
    if name in twice:
        raise KafkaError(E.INVALID_REQUEST, f"topic {name!r} appears twice in the request")
