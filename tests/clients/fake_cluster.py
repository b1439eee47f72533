"""A scriptable cluster of several brokers: leaders move, brokers hang, answers get lost.

It knows what a client needs to produce: metadata, producer ids, idempotent appends with Kafka's
memory of five batches per partition. Everything else is added with `cluster.handlers[api_key]`.
What is stored survives a move of the leader, as if every replica had it.

The brokers are protocols behind a `seams.Network`: real sockets on a thread of their own with
`with serving(FakeCluster(3)) as cluster`, or the simulator's streams on virtual time with
`await cluster.serve(network)`.

    cluster.leaders[0] = 2                  # node 2 leads partition 0 from now on
    cluster.brokers[1].hang()               # reads nothing more and answers nothing
    cluster.brokers[1].die()                # its port is closed and its streams are reset
    cluster.fault = lambda attempt: "cut after" if attempt.number == 3 else None
"""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from headwater.errors import E
from headwater.records.batch import HEADER, RawHeader
from headwater.records.codec import decode_batch
from headwater.seams.accepting import AcceptAll
from headwater.seams.network import ListenerHandle, Network, TcpNetwork
from headwater.wire import codec
from headwater.wire.framing import read_request_header, response
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.schema import Struct

REMEMBERED = 5
HOST = "127.0.0.1"


class Attempt(NamedTuple):
    """A batch that arrived at a broker."""

    number: int
    """Of all attempts at the cluster, from 1 on."""
    broker: int
    topic: str
    partition: int
    epoch: int
    sequence: int
    values: list[bytes | None]


Fault = str | E | tuple[str, E] | None
"""What happens to an attempt instead of a truthful answer.

"cut before" and "cut after" (the append) break the connection, "no answer" stores and stays silent,
"left out" stores nothing and is not in the answer,
a code refuses without storing, ("after", code) stores and answers with that code.
"""


class Cut(Exception):
    """The broker breaks the connection."""


@dataclass
class Log:
    """A partition: its records, and what it remembers of each producer."""

    values: list[bytes | None] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    """The producer id of each record."""
    producers: dict[int, "_Producer"] = field(default_factory=dict)

    def append(
        self, producer_id: int, epoch: int, sequence: int, values: list[Any]
    ) -> tuple[E, int]:
        """Store once and in order, as Apache Kafka decides it."""
        offset = len(self.values)
        if producer_id < 0:
            self._store(producer_id, values)
            return E.NONE, offset
        state = self.producers.get(producer_id)
        if state is not None:
            if epoch < state.epoch:
                return E.INVALID_PRODUCER_EPOCH, -1
            known = state.batches.get((epoch, sequence, len(values)))
            if known is not None:
                return E.NONE, known
            expected = state.next if epoch == state.epoch else 0
            if sequence != expected:
                return E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if state is None or epoch > state.epoch:
            state = self.producers[producer_id] = _Producer(epoch)
        self._store(producer_id, values)
        state.next = sequence + len(values)
        state.batches[epoch, sequence, len(values)] = offset
        while len(state.batches) > REMEMBERED:
            del state.batches[next(iter(state.batches))]
        return E.NONE, offset

    def _store(self, producer_id: int, values: list[Any]) -> None:
        self.values += values
        self.owners += [producer_id] * len(values)


@dataclass
class _Producer:
    epoch: int
    next: int = 0
    batches: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def fence(self, epoch: int) -> None:
        """Refuse earlier epochs, as after a marker."""
        self.epoch, self.next = epoch, 0
        self.batches.clear()


class FakeBroker:
    """One node."""

    def __init__(self, cluster: "FakeCluster", number: int) -> None:
        self.cluster = cluster
        self.id = number
        self.port = 0
        self.hung = False
        self.requests: list[int] = []
        """The api keys of what it answered."""
        self.streams: set[_Stream] = set()
        self._listening: ListenerHandle | None = None

    async def serve(self, network: Network) -> None:
        """Listen; on the same port again after `die`."""
        self._listening = await network.serve(AcceptAll(lambda: _Stream(self)), HOST, self.port, 16)
        self.port = self._listening.port

    def hang(self) -> None:
        """Read nothing and answer nothing until `recover`; the peer's socket fills up."""
        self.cluster.do(self._hang)

    def recover(self) -> None:
        """Answer what waits."""
        self.cluster.do(self._recover)

    def die(self) -> None:
        """Reset every stream and accept no more."""
        self.cluster.do(self._die)

    def cut(self) -> None:
        """Reset every stream."""
        self.cluster.do(self._cut)

    def _hang(self) -> None:
        self.hung = True
        for stream in self.streams:
            stream.transport.pause_reading()

    def _recover(self) -> None:
        self.hung = False
        for stream in list(self.streams):
            stream.transport.resume_reading()
            stream.data_received(b"")

    def _die(self) -> None:
        if self._listening is not None:
            self._listening.close()
        self._cut()

    def _cut(self) -> None:
        for stream in list(self.streams):
            stream.transport.abort()


class _Stream(asyncio.Protocol):
    """A broker's end of a connection."""

    transport: asyncio.Transport

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.received = bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.broker.streams.add(self)
        if self.broker.hung:
            transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.streams.discard(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        while not self.broker.hung and len(self.received) >= 4:
            end = 4 + int.from_bytes(self.received[:4])
            if len(self.received) < end:
                return
            frame = bytes(self.received[4:end])
            del self.received[:end]
            try:
                self._answer(frame)
            except Cut:
                self.transport.abort()
                return

    def _answer(self, frame: bytes) -> None:
        head = read_request_header(frame, 0, len(frame))
        self.broker.requests.append(head.api_key)
        schema, handler = self.broker.cluster.handlers[head.api_key]
        request, _ = codec.decode(schema, head.version, frame, head.body)
        answer = handler(self.broker, request)
        if answer is not None:
            self.transport.writelines(response(head.correlation_id, head.version, answer))


Handler = Callable[[FakeBroker, Any], Struct | None]


class FakeCluster:
    """The brokers, numbered from 1 on, and what they share."""

    def __init__(self, brokers: int = 1, partitions: int = 1) -> None:
        self.brokers = {number: FakeBroker(self, number) for number in range(1, brokers + 1)}
        self.live = set(self.brokers)
        """Those that metadata lists."""
        self.leaders = dict.fromkeys(range(partitions), 1)
        """Who leads each partition, of every topic alike; -1 for nobody."""
        self.leader_epoch = 1
        self.controller = self.coordinator = 1
        self.hints = True
        """Whether NOT_LEADER_OR_FOLLOWER comes with the new leader (KIP-951)."""
        self.missing_topics: set[str] = set()
        self.throttle_ms = 0
        """How long a producer is asked to wait with each answer."""
        self.fault: Callable[[Attempt], Fault] = lambda _: None
        self.features: dict[str, int] = {}
        """The finalized features."""
        self.check_append: Callable[[str, int, RawHeader], E] = lambda *_: E.NONE
        """Called before a batch is stored; a code refuses it."""
        self.topic_ids: defaultdict[str, bytes] = defaultdict(lambda: uuid4().bytes)
        self.attempts: list[Attempt] = []
        self.logs: defaultdict[tuple[str, int], Log] = defaultdict(Log)
        self.handlers: dict[int, tuple[type[Struct], Handler]] = {
            ProduceRequest.__schema__.api_key or 0: (ProduceRequest, self._produce),
            3: (MetadataRequest, self._metadata),
            10: (FindCoordinatorRequest, self._find_coordinator),
            18: (ApiVersionsRequest, self._api_versions),
            22: (InitProducerIdRequest, self._init_producer_id),
        }
        self._next_producer_id = 7
        self.loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, network: Network) -> None:
        """Start every broker on this loop."""
        self.loop = asyncio.get_running_loop()
        for broker in self.brokers.values():
            await broker.serve(network)

    def do(self, what: Callable[[], object]) -> None:
        """Run `what` on the brokers' loop and wait for it, from any thread."""
        assert self.loop is not None
        try:
            here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            here = False
        if here:
            what()
            return
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (what(), done.set()))
        assert done.wait(60)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers.values())

    def move(self, partition: int, broker: int) -> None:
        """Elect another leader."""
        self.leaders[partition] = broker
        self.leader_epoch += 1

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """What a partition holds."""
        return self.logs[topic, partition].values

    # -- what brokers answer

    def _api_versions(self, _: FakeBroker, request: ApiVersionsRequest) -> ApiVersionsResponse:
        keys = []
        for key, (schema, _handler) in sorted(self.handlers.items()):
            versions = schema.__schema__.versions
            highest = 3 if key == 18 else versions.highest
            keys.append(
                ApiVersionsResponse.ApiVersion(
                    api_key=key, min_version=versions.lowest, max_version=highest
                )
            )
        return ApiVersionsResponse(
            api_keys=keys,
            finalized_features_epoch=1 if self.features else -1,
            finalized_features=[
                ApiVersionsResponse.FinalizedFeatureKey(
                    name=name, max_version_level=level, min_version_level=level
                )
                for name, level in self.features.items()
            ],
        )

    def _metadata(self, _: FakeBroker, request: MetadataRequest) -> MetadataResponse:
        asked = request.topics
        names = list(self.topic_ids) if asked is None else [row.name for row in asked if row.name]
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=number, host=HOST, port=self.brokers[number].port
                )
                for number in sorted(self.live)
            ],
            cluster_id="fake",
            controller_id=self.controller,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        if name in self.missing_topics:
            return MetadataResponse.MetadataResponseTopic(
                name=name, error_code=E.UNKNOWN_TOPIC_OR_PARTITION
            )
        replicas = sorted(self.brokers)
        return MetadataResponse.MetadataResponseTopic(
            name=name,
            topic_id=self.topic_ids[name],
            partitions=[
                MetadataResponse.MetadataResponsePartition(
                    error_code=E.NONE if leader > 0 else E.LEADER_NOT_AVAILABLE,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self.leader_epoch,
                    replica_nodes=replicas,
                    isr_nodes=replicas,
                )
                for index, leader in self.leaders.items()
            ],
        )

    def _init_producer_id(
        self, _: FakeBroker, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        self._next_producer_id += 1
        return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)

    def _find_coordinator(
        self, _: FakeBroker, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        node = self.brokers[self.coordinator]
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=node.id, host=HOST, port=node.port
                )
                for key in request.coordinator_keys
            ],
        )

    def recreate_topic(self, name: str) -> None:
        """Delete a topic and create another one of this name."""
        self.topic_ids[name] = uuid4().bytes
        for partition in self.leaders:
            self.logs.pop((name, partition), None)

    def _produce(self, broker: FakeBroker, request: ProduceRequest) -> ProduceResponse | None:
        topics, moved, silent = [], set(), False
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        for topic in request.topic_data:
            rows = []
            name = topic.name or names.get(topic.topic_id)
            for part in topic.partition_data:
                row = (
                    self._attempt(broker, name, part.index, bytes(part.records or b""))
                    if name is not None
                    else ProduceResponse.PartitionProduceResponse(
                        index=part.index, error_code=E.UNKNOWN_TOPIC_ID
                    )
                )
                silent |= row is None
                if row is None or row.index < 0:
                    continue
                if row.error_code == E.NOT_LEADER_OR_FOLLOWER and self.hints:
                    leader = self.leaders[part.index]
                    row.current_leader = ProduceResponse.LeaderIdAndEpoch(
                        leader_id=leader, leader_epoch=self.leader_epoch
                    )
                    moved |= {leader} & self.brokers.keys()
                rows.append(row)
            topics.append(
                ProduceResponse.TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=rows
                )
            )
        if silent or not request.acks:
            return None
        return ProduceResponse(
            responses=topics,
            throttle_time_ms=self.throttle_ms,
            node_endpoints=[
                ProduceResponse.NodeEndpoint(
                    node_id=number, host=HOST, port=self.brokers[number].port
                )
                for number in moved
            ],
        )

    def _attempt(
        self, broker: FakeBroker, topic: str, partition: int, records: bytes
    ) -> ProduceResponse.PartitionProduceResponse | None:
        header = HEADER.unpack_from(records)
        producer_id, epoch, sequence = header[9], header[10], header[11]
        values = [row[4] for row in decode_batch(records, 0, False)[1]]
        attempt = Attempt(
            len(self.attempts) + 1, broker.id, topic, partition, epoch, sequence, values
        )
        self.attempts.append(attempt)
        fault = self.fault(attempt)
        if fault == "cut before":
            raise Cut
        if fault == "left out":
            return ProduceResponse.PartitionProduceResponse(index=-1)
        if isinstance(fault, E):
            code, offset = fault, -1
        elif self.leaders[partition] != broker.id:
            code, offset = E.NOT_LEADER_OR_FOLLOWER, -1
        else:
            log = self.logs[topic, partition]
            code, offset = self.check_append(topic, partition, header), -1
            if code == E.NONE:
                code, offset = log.append(producer_id, epoch, sequence, values)
            if isinstance(fault, tuple) and code == E.NONE:
                code, offset = fault[1], -1
        if fault == "cut after":
            raise Cut
        if fault == "no answer":
            return None
        return ProduceResponse.PartitionProduceResponse(
            index=partition, error_code=code, base_offset=offset
        )


@contextlib.contextmanager
def serving(cluster: FakeCluster) -> Iterator[FakeCluster]:
    """The cluster on real sockets and a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake cluster", daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(cluster.serve(TcpNetwork()), loop).result(60)
    try:
        yield cluster
    finally:
        for broker in cluster.brokers.values():
            broker.die()
        cluster.do(loop.stop)
        thread.join(60)
        loop.close()
