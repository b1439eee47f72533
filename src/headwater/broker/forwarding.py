"""Forwards requests that only the controller can answer.

A client may send them to any broker. The broker wraps the unchanged request in an Envelope with the
client's principal, and the controller answers it as if the client had connected there. While there is
no controller, the request waits. If the connection to the controller breaks, the request is sent again,
to the next controller if there is one by then, as Kafka does: not every client retries NOT_CONTROLLER.
A request that the controller does not answer in time is not sent again.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from headwater.broker.context import Context
from headwater.broker.peers import PeerConnection
from headwater.broker.request import Request
from headwater.controller.commands import TopicCreation, TopicOutcome
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_LEADER
from headwater.security.quotas import QuotaKind
from headwater.wire.framing import read_response_header
from headwater.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from headwater.wire.messages.topics import CreateTopicsRequest, CreateTopicsResponse

RETRY_S = 0.1
PATIENCE_MS = 25_000
"""How long a request waits for a controller: longer than a session of ZooKeeper, by default 18 s."""
ANSWER_TIMEOUT_MS = 60_000

_SENT_AGAIN = (E.BROKER_NOT_AVAILABLE, E.NETWORK_EXCEPTION, E.NOT_CONTROLLER)


class Forwarding:
    """Forwards requests from this broker to the controller."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._connections: dict[int, PeerConnection] = {}

    @property
    def needed(self) -> bool:
        """Whether another broker has to answer."""
        return not self._context.controller.active

    def forward(self, request: Request, frame: bytes, serve_here: Callable[[], None]) -> None:
        """Answer `request`, whose bytes are `frame`, with the controller's response.

        `serve_here` answers it if this broker becomes the controller, or if there is none: then with why.
        """
        peer = request.connection
        envelope = EnvelopeRequest(
            request_data=frame,
            request_principal=str(peer.principal).encode(),
            client_host_address=peer.host.encode(),
        )

        def answered(result: EnvelopeResponse | KafkaError | None) -> None:
            peer.hold_bytes(-len(frame))
            if not isinstance(result, EnvelopeResponse) or result.response_data is None:
                serve_here()
                return
            self._mute_throttled(request, result.response_data)
            if request.row.applied_first:
                self._context.configs.catch_up(partial(request.reply_bytes, result.response_data))
            else:
                request.reply_bytes(result.response_data)

        peer.hold_bytes(len(frame))  # a controller that does not answer must not fill the memory
        _Attempts(self, envelope, answered).go()

    def _mute_throttled(self, request: Request, response: bytes) -> None:
        """Read nothing from a client for as long as the controller tells it to wait."""
        quotas, row = self._context.quotas, request.row
        if quotas is None or row.quota is not QuotaKind.CONTROLLER_MUTATION:
            return
        _, at = read_response_header(response, row.api.key, request.version)
        wait_ms = int.from_bytes(response[at : at + 4])  # the first field in all of their versions
        if wait_ms:
            quotas.mute_for_changes(request, wait_ms)

    def create_topics(
        self, topics: Sequence[TopicCreation], reply: Callable[[list[TopicOutcome]], None]
    ) -> None:
        """Have the controller create internal topics, or topics that a client requested."""
        request = CreateTopicsRequest(
            timeout_ms=ANSWER_TIMEOUT_MS // 2,
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=new.name,
                    num_partitions=new.partitions,
                    replication_factor=new.replication_factor,
                )
                for new in topics
            ],
        )

        def answered(result: CreateTopicsResponse | KafkaError) -> None:
            if isinstance(result, KafkaError):
                reply([TopicOutcome.refused(new.name, result) for new in topics])
            else:
                reply(
                    [
                        TopicOutcome(one.name, error_of(one.error_code), one.error_message)
                        for one in result.topics
                    ]
                )

        connection = self.connection()
        if connection is None:
            problem = self._context.controller.store_problem
            failure = KafkaError(
                E.NOT_CONTROLLER, problem or "no broker is the controller now; try again"
            )
            asyncio.get_running_loop().call_soon(answered, failure)
        else:
            connection.send(request, CreateTopicsResponse, answered, timeout_ms=ANSWER_TIMEOUT_MS)

    def connection(self) -> PeerConnection | None:
        """A connection to the controller; None if it is this broker, or there is none."""
        context = self._context
        controller = context.controller.controller_id
        if controller in (NO_LEADER, context.node_id):
            return None
        if controller not in self._connections:
            self._connections[controller] = context.peers.open(controller, "forwarding")
        return self._connections[controller]

    def controller_changed(self) -> None:
        """Close connections to earlier controllers: requests that wait for one fail and can be retried."""
        current = self._context.metadata.controller_id
        for former in [number for number in self._connections if number != current]:
            self._connections.pop(former).close()

    def now_ms(self) -> int:
        return self._context.clock.monotonic_ms()


class _Attempts:
    """One forwarded request; `answered` gets None if this broker must answer itself."""

    def __init__(
        self,
        forwarding: Forwarding,
        envelope: EnvelopeRequest,
        answered: Callable[[EnvelopeResponse | KafkaError | None], None],
    ) -> None:
        self._forwarding = forwarding
        self._envelope = envelope
        self._answered = answered
        self._deadline_ms = forwarding.now_ms() + PATIENCE_MS

    def go(self) -> None:
        if not self._forwarding.needed:
            self._answered(None)
            return
        connection = self._forwarding.connection()
        if connection is None:
            self._later(KafkaError(E.NOT_CONTROLLER))
        else:
            connection.send(
                self._envelope, EnvelopeResponse, self._replied, timeout_ms=ANSWER_TIMEOUT_MS
            )

    def _replied(self, result: EnvelopeResponse | KafkaError) -> None:
        error = result.code if isinstance(result, KafkaError) else error_of(result.error_code)
        if error in _SENT_AGAIN:
            self._later(result)
        else:
            self._answered(result)

    def _later(self, result: EnvelopeResponse | KafkaError) -> None:
        if self._forwarding.now_ms() >= self._deadline_ms:
            self._answered(result)
        else:
            asyncio.get_running_loop().call_later(RETRY_S, partial(self.go))
