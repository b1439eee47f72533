"""The base of all scripted clients: connects with retries, and detects missing answers.

A broker may be gone, starting, or cut off: the client retries. If a live broker that serves never
answers a request, that is a broken promise.
"""

import asyncio
from typing import TypeVar

from headwater.errors import E, KafkaError, error_of
from headwater.transport.client_connection import ClientConnection
from headwater.wire.framing import request_frame
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.schema import Struct
from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.node import PORT
from simulator.randomness import stream

Answer = TypeVar("Answer", bound=Struct)

SILENCE_S = 60.0
"""Longer than any timeout that a script requests."""

RETRIABLE = frozenset(
    {
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_ID,
        E.NOT_LEADER_OR_FOLLOWER,
        E.LEADER_NOT_AVAILABLE,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.NOT_CONTROLLER,
        E.OFFSET_NOT_AVAILABLE,
        E.NETWORK_EXCEPTION,
    }
)


class Disturbed(Exception):
    """The broker is unreachable or refused with a retriable error: try again later."""


class SimConnection(ClientConnection):
    """A client's stream that can also send requests without an answer."""

    def tell(self, request: Struct, version: int) -> None:
        """Send a request that the broker does not answer (acks=0)."""
        assert self._transport is not None
        self._sent += 1
        api_key = request.__schema__.api_key
        assert api_key is not None
        self._transport.write(request_frame(api_key, version, self._sent, self._client_id, request))


class Client:
    """A scripted client."""

    kept_out = True
    """Whether it must wait during an audit."""

    def __init__(self, cluster: Cluster, promises: Promises, name: str) -> None:
        self.cluster = cluster
        self.promises = promises
        self.name = name
        self.chance = stream(cluster.seed, name)
        self.topic_ids: dict[str, bytes] = {}
        self._connection: SimConnection | None = None
        self._life: object = None

    async def call(
        self, request: Struct, answer: type[Answer], *, newest: int | None = None
    ) -> Answer:
        """Send a request and return its answer; raise Disturbed if none arrives."""
        return await self.call_on(await self.connection(), request, answer, newest=newest)

    async def call_on(
        self,
        connection: SimConnection,
        request: Struct,
        answer: type[Answer],
        *,
        newest: int | None = None,
    ) -> Answer:
        """Send a request over a given stream and return its answer."""
        life = self._life
        try:
            return await connection.call(request, answer, newest=newest)
        except KafkaError as failure:
            self.disconnect()
            if failure.code is E.REQUEST_TIMED_OUT and life is self.cluster.node.life:
                self.promises.complain(f"{self.name}: no answer to {type(request).__name__}")
            raise Disturbed from failure

    async def connection(self) -> SimConnection:
        """Return the stream to the broker, opened if necessary."""
        if self._connection is None or not self._connection.is_open:
            self._life = self.cluster.node.life
            self._stay_out()
            try:
                opened = await SimConnection.open(
                    self.cluster.network,
                    self.cluster.node.host,
                    PORT,
                    client_id=self.name,
                    timeout_s=SILENCE_S,
                )
            except (OSError, KafkaError) as failure:
                raise Disturbed from failure
            assert isinstance(opened, SimConnection)
            self._connection = opened
            self.topic_ids = {}
            self._stay_out()
        return self._connection

    def _stay_out(self) -> None:
        if self.kept_out and self.cluster.auditing:
            self.disconnect()
            raise Disturbed

    def disconnect(self) -> None:
        """Drop the stream."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def topic_id(self, name: str) -> bytes:
        """Return the id of a topic, requested once per connection and after errors about it."""
        if name not in self.topic_ids:
            answer = await self.call(MetadataRequest(topics=None), MetadataResponse)
            self.topic_ids = {topic.name or "": topic.topic_id for topic in answer.topics}
            self.promises.told_ids(self.topic_ids)
        if name not in self.topic_ids:
            self.disconnect()
            raise Disturbed
        return self.topic_ids[name]

    async def pause(self, longest_ms: int) -> None:
        """Sleep for a random time."""
        await asyncio.sleep(self.chance.randrange(longest_ms) / 1000)

    async def back_off(self) -> None:
        """Wait until everything in flight has arrived or is lost."""
        await asyncio.sleep(self.chance.randrange(20, 200) / 1000)

    def check(self, code: int, *expected: E) -> E:
        """Return the error of an answer if it is expected; raise Disturbed for a retriable one."""
        error = error_of(code)
        if error is E.NONE or error in expected:
            return error
        if error in (E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION):
            self.topic_ids = {}
        if error not in RETRIABLE:
            self.promises.complain(f"{self.name}: {error.name} was answered")
        raise Disturbed(error.name)
