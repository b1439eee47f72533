"""A broker in this process that a test can look into, and a client that speaks the wire by hand."""

import asyncio
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import uvloop

from headwater.broker.lifecycle_loop import BrokerServer
from headwater.broker.process import system_seams
from headwater.broker.turns import finish
from headwater.config.broker import BrokerSettings
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.seams.clock import Clock
from headwater.seams.files import Files
from headwater.seams.workers import Workers
from headwater.security.principals import Principal
from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.framing import read_response_header, request_frame
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from headwater.wire.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from headwater.wire.schema import Struct

WAIT_S = 60
NOTHING = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "metrics.listener": "127.0.0.1:0",
}


class Live:
    """`headwater.broker.lifecycle_loop.BrokerServer` on a thread; `on_loop` runs a call where its state lives."""

    def __init__(
        self,
        data_dir,
        settings=None,
        *,
        files: Files | None = None,
        open_files: int | None = None,
        workers: Workers | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ):
        self.tls = tls
        self.settings = {
            **NOTHING,
            "log.dirs": str(data_dir),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **(settings or {}),
        }
        self._files = files
        self._open_files = open_files
        self._workers = workers
        self._clock = clock

    def __enter__(self) -> "Live":
        started: Future[None] = Future()
        parsed = BrokerSettings.load(None, self.settings)
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve(parsed, started)))
        self._thread.start()
        try:
            started.result(WAIT_S)
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the broker does not stop"

    async def _serve(self, settings: BrokerSettings, started: "Future[None]") -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        seams = system_seams()
        if self._files is not None:
            seams = replace(seams, files=self._files)
        if self._open_files is not None:
            seams = replace(seams, open_files=self._open_files)
        if self._workers is not None:
            seams = replace(seams, workers=self._workers)
        if self._clock is not None:
            seams = replace(seams, clock=self._clock)
        self.broker = BrokerServer(settings, seams)
        try:
            await self.broker.start()
        except BaseException as failure:  # noqa: BLE001 - the test's thread must hear of it
            self.broker.abandon()
            started.set_exception(failure)
            return
        started.set_result(None)
        await self._stopping.wait()
        await self.broker.stop()

    @property
    def context(self):
        return self.broker.context

    @property
    def port(self) -> int:
        return self.broker.listeners[0].port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def on_loop(self, call: Callable[[], object]):
        """Run a call on the broker's thread and give what it gives."""

        async def run() -> object:
            return call()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(WAIT_S)

    def metrics_text(self, *topics: str) -> str:
        """The metrics as they are now; `topics` are asked for by partition."""
        text = self.broker.parts.monitoring.exposition.text
        return self.on_loop(lambda: finish(text(topics))).decode()

    def samples(self, *topics: str) -> dict[str, float]:
        """Every metric: name with labels, and value."""
        lines = [line.rpartition(" ") for line in self.metrics_text(*topics).splitlines()]
        return {name: float(value) for name, _, value in lines if not name.startswith("#")}

    def replica(self, topic: str, partition: int = 0):
        return self.on_loop(lambda: self.context.replicas.get(topic, partition))

    def client(self, listener: int = 0, source: str = "") -> "Client":
        return Client(self.broker.listeners[listener].port, tls=self.tls, source=source)

    def log_in(self, client: "Client", principal: Principal) -> None:
        """Serve a client as `principal`, as if it had authenticated."""
        port = client.socket.getsockname()[1]

        def log_in() -> bool:
            for connection in self.context.connection_quotas.open:
                transport = connection.transport
                if transport and transport.get_extra_info("peername")[1] == port:
                    connection.authenticated_as(principal)
                    return True
            return False

        until(lambda: self.on_loop(log_in))

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        with self.client() as client:
            rows = [
                CreateTopicsRequest.CreatableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ]
            wanted = CreateTopicsRequest.CreatableTopic(
                name=topic, num_partitions=partitions, replication_factor=-1, configs=rows
            )
            answer = client.ask(
                CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), CreateTopicsResponse, 7
            )
            assert answer.topics[0].error_code == 0, answer


class Closed(Exception):
    """The broker ended the connection."""


class Client:
    """One connection; requests and answers by version, nothing hidden."""

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        source: str = "",
    ):
        self.socket = socket.create_connection((host, port), WAIT_S, (source, 0))
        if tls is not None:
            try:
                self.socket = tls.wrap_socket(self.socket, server_hostname=host)
            except BaseException:
                self.socket.close()
                raise
        self._numbers = itertools.count(1)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, request: Struct, version: int, client_id: str | None = "test") -> int:
        number = next(self._numbers)
        key = request.__schema__.api_key
        self.send_bytes(request_frame(key, version, number, client_id, request))
        return number

    def receive(self) -> bytes:
        """The next frame without its size."""
        return self._exactly(self.receive_size())

    def receive_size(self) -> int:
        """The size of the next frame, which stays to be received."""
        return int.from_bytes(self._exactly(4))

    def answer(self, response: type[Struct], version: int, number: int | None = None):
        frame = self.receive()
        found, at = read_response_header(frame, response.__schema__.api_key, version)
        assert number is None or found == number, "answers must keep the order of requests"
        decoded, end = codec.decode(response, version, frame, at)
        assert end == len(frame), "an answer with bytes behind its end"
        return decoded

    def ask(self, request: Struct, response: type[Struct], version: int):
        return self.answer(response, version, self.send(request, version))

    def is_closed(self) -> bool:
        """Whether the broker hung up without another word."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError as gone:
                raise Closed from gone
            if not part:
                raise Closed
            data += part
        return bytes(data)

    # -- the two requests that most tests need

    def produce(self, topic, records, *, partition=0, acks=-1, version=9, timeout_ms=9000):
        """The partition's answer to one batch."""
        request = produce_request(topic, records, partition, acks, version, timeout_ms)
        answer = self.ask(request, ProduceResponse, version)
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic, offset=0, *, partition=0, version=12, **limits):
        """The partition's answer to a fetch of one partition."""
        request = fetch_request({(topic, partition): offset}, version=version, **limits)
        return self.ask(request, FetchResponse, version).responses[0].partitions[0]


def batch(*values: bytes, key: bytes | None = None, now: int | None = None, **kind: int) -> bytes:
    """A batch of records with these values, timestamped now."""
    records = [Record(key=key, value=value) for value in values or (b"value",)]
    when = time.time_ns() // 1_000_000 if now is None else now
    return bytes(build_batch(records, now=when, **kind))


def produce_request(topic, records, partition=0, acks=-1, version=9, timeout_ms=9000):
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    named = {"topic_id": topic} if version >= 13 else {"name": topic}
    wanted = ProduceRequest.TopicProduceData(partition_data=[data], **named)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[wanted])


def fetch_request(
    offsets: "dict[tuple[str | bytes, int], int]",
    *,
    version: int = 12,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    isolation_level: int = 0,
    **partition: int,
) -> FetchRequest:
    topics: dict[str | bytes, FetchRequest.FetchTopic] = {}
    for (topic, index), offset in offsets.items():
        named = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
        group = topics.setdefault(topic, FetchRequest.FetchTopic(**named))
        group.partitions.append(
            FetchRequest.FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                **partition,
            )
        )
    more = {"session_id": session[0], "session_epoch": session[1]} if version >= 7 else {}
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=list(topics.values()),
        **more,
    )


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a condition that another thread brings about."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain {what}"
        time.sleep(0.002)


NAMES = {api.key: api.name for api in API.values()}
