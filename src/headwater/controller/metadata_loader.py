"""Loads the whole cluster state from the store, for a newly elected controller."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from headwater.controller.state import ClusterState, LiveBroker, PartitionRegistration, TopicState
from headwater.controller.store.metadata_store import (
    MetadataStore,
    Reply,
    StoreError,
    StoreFailure,
    Znode,
)
from headwater.controller.store.znodes import (
    BROKER_EPOCHS,
    BROKER_IDS,
    DELETED_TOPICS,
    TOPICS,
    BrokerNode,
    StateNode,
    TopicNode,
    clients_of_user,
    config_path,
    decode_broker_epochs,
    decode_config,
    unquote_entity,
)

log = logging.getLogger(__name__)

T = TypeVar("T")


READS_IN_FLIGHT = 200
"""How many reads a batch sends before it waits for answers; their answers may come in one tick."""

NodeRead: TypeAlias = tuple[str, Callable[[Znode], None]]
"""A path, and what takes its node."""


class BatchedReads:
    """A batch of reads with one callback. Skips nodes that vanish or cannot be decoded.

    However many nodes it reads, a bounded number of reads is in flight.
    """

    def __init__(self, store: MetadataStore, done: Callable[[StoreError | None], None]) -> None:
        self._store = store
        self._done = done
        self._in_flight = 0
        self._queued: deque[Iterator[NodeRead]] = deque()
        self._failure: StoreError | None = None

    def children(self, path: str, found: Callable[[list[str]], None]) -> None:
        self._store.children(path, self._awaited(found))

    def get(self, path: str, found: Callable[[Znode], None]) -> None:
        self.get_all(iter([(path, found)]))

    def get_all(self, reads: Iterator[NodeRead]) -> None:
        """Read these nodes; `reads` is asked for the next one when it can be sent."""
        self._queued.append(reads)
        self._send_more()

    def _send_more(self) -> None:
        while self._queued and self._in_flight < READS_IN_FLIGHT:
            read = next(self._queued[0], None)
            if read is None:
                self._queued.popleft()
            else:
                self._store.get(read[0], self._awaited(read[1]))

    def _awaited(self, found: Callable[[T], None]) -> Reply[T]:
        self._in_flight += 1

        def arrived(result: T | StoreError) -> None:
            if not isinstance(result, StoreError):
                try:
                    found(result)
                except ValueError as undecodable:
                    log.error("skipped a node of the metadata store: %s", undecodable)
            elif result.kind is not StoreFailure.NO_NODE:
                self._failure = result
            self._in_flight -= 1
            self._send_more()
            if not self._in_flight:
                self._done(self._failure)

        return arrived


def read_brokers(
    store: MetadataStore, names: Sequence[str], reply: Reply[dict[int, LiveBroker]]
) -> None:
    """Read the registrations of brokers; `names` are the nodes below /brokers/ids."""
    brokers: dict[int, LiveBroker] = {}

    def found(broker_id: int, node: Znode) -> None:
        brokers[broker_id] = LiveBroker(BrokerNode.decode(broker_id, node.data), node.stat.czxid)

    reads = BatchedReads(store, lambda failure: reply(failure or dict(sorted(brokers.items()))))
    reads.children(BROKER_IDS, lambda _: None)
    for name in names:
        reads.get(f"{BROKER_IDS}/{name}", partial(found, int(name)))


def read_topics(store: MetadataStore, reply: Reply[ClusterState]) -> None:
    """Read every topic with its partitions and overrides, and the overrides of brokers."""
    _TopicLoader(store, reply)


class _TopicLoader:
    def __init__(self, store: MetadataStore, reply: Reply[ClusterState]) -> None:
        self._reply = reply
        self._topics: dict[str, TopicState] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._deleted: list[str] = []
        self._state = ClusterState()
        self._reads = BatchedReads(store, self._ended)
        self._reads.get(BROKER_EPOCHS, self._broker_epochs)
        self._reads.children(DELETED_TOPICS, self._deleted.extend)
        for kind in ("topics", "brokers", "users", "clients", "ips"):
            self._reads.children(f"/config/{kind}", partial(self._config_names, kind))
        self._reads.children(TOPICS, self._topic_names)

    def _broker_epochs(self, node: Znode) -> None:
        self._state.known_epochs.update(decode_broker_epochs(node.data))

    def _config_names(self, kind: str, segments: list[str]) -> None:
        names = map(unquote_entity, segments)
        self._reads.get_all(
            (config_path(kind, name), partial(self._config, kind, name)) for name in names
        )

    def _config(self, kind: str, name: str, node: Znode) -> None:
        path = config_path(kind, name)
        self._state.config_nodes.add(path)
        overrides = decode_config(path, node.data)
        if kind == "topics":
            self._configs[name] = overrides
        else:
            self._state.entity_configs[kind, name] = overrides
        if kind == "users" and node.stat.num_children:
            clients = clients_of_user(name)
            self._state.config_nodes.add(f"/config/{clients}")
            self._reads.children(f"/config/{clients}", partial(self._config_names, clients))

    def _topic_names(self, names: list[str]) -> None:
        for name in names:
            self._reads.get(TopicNode.path(name), partial(self._topic, name))

    def _topic(self, name: str, node: Znode) -> None:
        read = TopicNode.decode(name, node.data)
        topic = TopicState(name, read.topic_id, {}, version=node.stat.version)
        self._topics[name] = topic
        self._reads.get_all(_partition_states(topic, read))

    def _ended(self, failure: StoreError | None) -> None:
        if failure is not None:
            self._reply(failure)
            return
        for name, topic in sorted(self._topics.items()):
            topic.config = self._configs.get(name, {})
            topic.deleting = name in self._deleted
            self._state.add(topic)
        self._reply(self._state)


def _partition_states(topic: TopicState, read: TopicNode) -> Iterator[NodeRead]:
    """Add the partitions to the topic, each with the read of its state."""
    name = topic.name
    for index, replicas in sorted(read.replicas.items()):
        adding = tuple(read.adding.get(index, ()))
        removing = tuple(read.removing.get(index, ()))
        one = PartitionRegistration(tuple(replicas), adding=adding, removing=removing)
        topic.partitions[index] = one
        yield StateNode.path(name, index), partial(_apply_state, name, index, one)


def _apply_state(topic: str, index: int, partition: PartitionRegistration, node: Znode) -> None:
    state = StateNode.decode(topic, index, node.data)
    partition.leader, partition.leader_epoch, partition.isr = (
        state.leader,
        state.leader_epoch,
        state.isr,
    )
    partition.controller_epoch, partition.recovering = state.controller_epoch, state.recovering
    partition.elr, partition.last_known_leader = state.elr, state.last_known_leader
    partition.version = node.stat.version
