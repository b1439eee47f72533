"""Large numbers of everything: what a broker must take without making others wait."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from benchmarks.stalls.watch import Connection
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.wire import framing
from headwater.wire.messages.fetch import FetchRequest
from headwater.wire.messages.groups import FindCoordinatorRequest, JoinGroupRequest
from headwater.wire.messages.metadata import MetadataRequest
from headwater.wire.messages.offsets import ListOffsetsRequest
from headwater.wire.messages.produce import ProduceRequest
from headwater.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from headwater.wire.schema import Struct

WRITERS = 8


class Scale(NamedTuple):
    """How many of each; a test takes far smaller ones."""

    topics: int = 2000
    partitions: int = 5
    members: int = 2000
    producers: int = 50_000
    segments: int = 5000
    pollers: int = 1000
    flood: int = 16
    flood_bytes: int = 60 << 20
    load_mib: int = 1024
    repeats: int = 90_000


class Scene(NamedTuple):
    """A name, and what to do while others are watched; it gives the bytes it sent."""

    name: str
    play: Callable[[], int]
    of_controller: bool = False
    """Whether to watch the listener of the controller."""


def scenes(port: int, scale: Scale) -> Iterator[Scene]:
    """In this order: later ones use the topics of the first."""
    stage = _Stage(port, scale)
    yield Scene(f"create {scale.topics} topics x {scale.partitions}", stage.create)
    yield Scene("first write to each partition", stage.write)
    yield Scene("metadata of all topics", stage.metadata)
    yield Scene("latest offset of all partitions", stage.list_offsets)
    yield Scene("fetch over all partitions", stage.fetch)
    yield Scene(f"{scale.members} members join one group", stage.join)
    yield Scene(f"{scale.producers} producers write to one partition", stage.producers)
    yield Scene(f"{scale.segments} segments", stage.segments)
    yield Scene(f"{scale.pollers} consumers wait, one record comes", stage.fan_out)
    yield Scene(f"a fetch names a partition {scale.repeats} times", stage.repeat)
    yield Scene(f"{scale.load_mib} MiB written and read", stage.load)
    yield Scene(f"{scale.load_mib} MiB, at the control listener", stage.load, of_controller=True)
    yield Scene(f"{scale.flood} unfinished requests of {scale.flood_bytes >> 20} MiB", stage.flood)
    yield Scene(f"delete {scale.topics} topics, of which groups may have offsets", stage.delete)


class _Stage:
    def __init__(self, port: int, scale: Scale) -> None:
        self._port = port
        self._scale = scale
        self._names = [f"topic-{number}" for number in range(scale.topics)]
        self._sent = 0

    def _ask(self, connection: Connection, message: Struct, version: int) -> None:
        frame = _encoded(message, version)
        self._sent += len(frame)
        connection.ask(frame)

    def _counted(self) -> int:
        sent, self._sent = self._sent, 0
        return sent

    def _create(self, connection: Connection, rows: list[tuple[str, int, dict[str, str]]]) -> None:
        make, setting = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableTopicConfig
        topics = [
            make(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[setting(name=key, value=value) for key, value in configs.items()],
            )
            for name, partitions, configs in rows
        ]
        self._ask(connection, CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)

    def create(self) -> int:
        with Connection(self._port) as connection:
            for start in range(0, len(self._names), 200):
                names = self._names[start : start + 200]
                self._create(connection, [(name, self._scale.partitions, {}) for name in names])
        return self._counted()

    def write(self) -> int:
        with Connection(self._port) as connection:
            for start in range(0, len(self._names), 100):
                rows = {
                    (name, index): _batch()
                    for name in self._names[start : start + 100]
                    for index in range(self._scale.partitions)
                }
                self._ask(connection, _produce(rows), 9)
        return self._counted()

    def metadata(self) -> int:
        with Connection(self._port) as connection:
            self._ask(connection, MetadataRequest(topics=None), 12)
        return self._counted()

    def list_offsets(self) -> int:
        topic, row = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsPartition
        indexes = range(self._scale.partitions)
        topics = [
            topic(name=name, partitions=[row(partition_index=n, timestamp=-1) for n in indexes])
            for name in self._names
        ]
        with Connection(self._port) as connection:
            self._ask(connection, ListOffsetsRequest(replica_id=-1, topics=topics), 7)
        return self._counted()

    def fetch(self) -> int:
        wanted = {
            (name, index): 0 for name in self._names for index in range(self._scale.partitions)
        }
        with Connection(self._port) as connection:
            self._ask(connection, _fetch(wanted), 11)
        return self._counted()

    def join(self) -> int:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m" * 100)
        find = FindCoordinatorRequest(key="g", key_type=0)
        frames = [
            _encoded(
                JoinGroupRequest(
                    group_id="g",
                    session_timeout_ms=60_000,
                    rebalance_timeout_ms=3_000,
                    protocol_type="consumer",
                    protocols=[protocol],
                ),
                3,
            )
        ] * self._scale.members
        with Connection(self._port) as connection:
            self._ask(connection, find, 3)
        members = [Connection(self._port) for _ in frames]
        for member, frame in zip(members, frames, strict=True):
            member.socket.sendall(frame)
        for member in members:
            member.receive()
            member.socket.close()
        return self._counted() + sum(map(len, frames))

    def producers(self) -> int:
        with Connection(self._port) as connection:
            self._create(connection, [("producers", 1, {})])
            for first in range(0, self._scale.producers, 100):
                last = min(first + 100, self._scale.producers)
                for producer in range(first, last):
                    one = _batch(producer_id=producer, producer_epoch=0, base_sequence=0)
                    frame = _encoded(_produce({("producers", 0): one}), 9)
                    self._sent += len(frame)
                    connection.socket.sendall(frame)
                for _ in range(first, last):
                    connection.receive()
        return self._counted()

    def segments(self) -> int:
        with Connection(self._port) as connection:
            settings = {"segment.bytes": "1048576", "max.message.bytes": "2097152"}
            self._create(connection, [("segments", 1, {**settings, "segment.ms": "1"})])
            for _ in range(self._scale.segments):
                self._ask(connection, _produce({("segments", 0): _batch()}), 9)
            for offset in range(0, self._scale.segments, max(1, self._scale.segments // 50)):
                self._ask(connection, _fetch({("segments", 0): offset}), 11)
        return self._counted()

    def fan_out(self) -> int:
        with Connection(self._port) as writer:
            self._create(writer, [("fan-out", 1, {})])
            ask = _encoded(_fetch({("fan-out", 0): 0}, max_wait_ms=60_000), 11)
            pollers = [Connection(self._port) for _ in range(self._scale.pollers)]
            for poller in pollers:
                poller.socket.sendall(ask)
            time.sleep(0.5)  # all wait; a poll that came later would only be answered sooner
            self._ask(writer, _produce({("fan-out", 0): _batch()}), 9)
            for poller in pollers:
                poller.receive()
                poller.socket.close()
        return self._counted() + len(ask) * len(pollers)

    def repeat(self) -> int:
        """Write records to a partition for which a fetch waits that names it many times."""
        with Connection(self._port) as writer, Connection(self._port) as reader:
            self._create(writer, [("repeated", 1, {})])
            body = _fetch({("repeated", 0): 0}, max_wait_ms=2_000)
            body.min_bytes = 1 << 20
            body.topics[0].partitions *= self._scale.repeats
            ask = _encoded(body, 11)
            reader.socket.sendall(ask)
            time.sleep(1)  # it waits; one that came later would find the records at once
            for _ in range(10):
                self._ask(writer, _produce({("repeated", 0): _batch()}), 9)
            reader.receive()
        return self._counted() + len(ask)

    def delete(self) -> int:
        named = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in self._names]
        with Connection(self._port) as connection:
            for key_type in (0, 1):
                find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
                self._ask(connection, find, 4)
            self._ask(connection, DeleteTopicsRequest(topics=named, timeout_ms=60_000), 6)
        return self._counted()

    def load(self) -> int:
        """As many batches of 1 MB as the broker takes from some clients, each read again at once."""
        topic, batch = "load", _batch(value=bytes(1_000_000))
        with Connection(self._port) as connection:
            self._create(connection, [(topic, WRITERS, {})])

        def write_and_read(partition: int) -> int:
            place, frames = (topic, partition), self._scale.load_mib // WRITERS + 1
            write = _encoded(_produce({place: batch}), 9)
            with Connection(self._port) as connection:
                for offset in range(frames):
                    connection.ask(write)
                    connection.ask(_encoded(_fetch({place: offset}), 11))
            return len(write) * frames

        with ThreadPoolExecutor(WRITERS) as threads:
            return self._counted() + sum(threads.map(write_and_read, range(WRITERS)))

    def flood(self) -> int:
        """Frames that never end, as many bytes of them as the broker takes."""
        junk, sent, open_ones = bytes(1 << 20), 0, []
        for _ in range(self._scale.flood):
            connection = socket.create_connection(("127.0.0.1", self._port))
            open_ones.append(connection)
            connection.settimeout(0.5)
            try:
                connection.sendall((100 << 20).to_bytes(4))
                for _ in range(self._scale.flood_bytes >> 20):
                    connection.sendall(junk)
                    sent += len(junk)
            except OSError:
                continue
        for connection in open_ones:
            connection.close()
        return sent


def _encoded(message: Struct, version: int) -> bytes:
    return b"".join(framing.request(version, 1, "stalls", message))


def _batch(value: bytes = b"value", **kind: int) -> bytes:
    now = time.time_ns() // 1_000_000
    return bytes(build_batch([Record(value=value)], now=now, **kind))


def _produce(rows: dict[tuple[str, int], bytes]) -> ProduceRequest:
    data, row = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
    topics: dict[str, Any] = {}
    for (name, index), records in rows.items():
        topic = topics.setdefault(name, data(name=name))
        topic.partition_data.append(row(index=index, records=records))
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=list(topics.values()))


def _fetch(wanted: dict[tuple[str, int], int], max_wait_ms: int = 0) -> FetchRequest:
    row = FetchRequest.FetchPartition
    topics: dict[str, Any] = {}
    for (name, index), offset in wanted.items():
        topic = topics.setdefault(name, FetchRequest.FetchTopic(topic=name))
        topic.partitions.append(row(partition=index, fetch_offset=offset, partition_max_bytes=1024))
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=list(topics.values()),
    )
