"""Connections from this broker to the others of its cluster.

Each user of `Peers.open` gets its own connection: every follower fetcher, every control channel, and
forwarding. So none of them waits behind another. A connection is opened by its first request, and
reopened after a failure with a growing pause. It authenticates before its first request
(`security/broker_handshake.py`) and uses the newest version that both brokers know.

The address of a broker is looked up for every attempt: by default among the live brokers in the
metadata cache, on the inter-broker listener.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from ssl import SSLContext
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from headwater.errors import E, KafkaError
from headwater.seams.network import Network
from headwater.seams.randomness import Randomness
from headwater.seams.timers import Timer
from headwater.security.broker_handshake import (
    MECHANISM,
    NONCE_BYTES,
    BrokerCredentials,
    CallingBroker,
)
from headwater.transport.client_connection import ClientConnection
from headwater.transport.response_reader import Frame
from headwater.transport.sasl_login import log_in
from headwater.wire.schema import Struct

log = logging.getLogger("headwater.server")

FIRST_PAUSE_MS = 50
LONGEST_PAUSE_MS = 1000
"""The pause between two attempts to connect; it doubles with every failure."""
SETUP_TIMEOUT_S = 10.0

Answer = TypeVar("Answer", bound=Struct)


class Address(NamedTuple):
    """Where a broker listens, and by which name; the name decides about TLS."""

    host: str
    port: int
    listener: str = ""


AddressOf: TypeAlias = Callable[[int], Address | None]
"""Looks up the address of a broker; None for one that is not alive."""


class _PeerRequest(Generic[Answer]):
    """A pending request; `on_reply` is called once, at the latest soon after `due_s`.

    It receives its own frame: an answer is handled where it arrives, without a round of the loop.
    """

    __slots__ = ("answer", "due_s", "limit_ms", "on_reply", "request", "stream", "version")

    def __init__(
        self,
        request: Struct,
        answer: type[Answer],
        version: int | None,
        on_reply: Callable[[Answer | KafkaError], None],
        limit_ms: int,
    ) -> None:
        self.request = request
        self.answer = answer
        self.version = version
        self.limit_ms = limit_ms
        self.due_s = asyncio.get_running_loop().time() + limit_ms / 1000
        self.on_reply: Callable[[Answer | KafkaError], None] | None = on_reply
        self.stream: ClientConnection | None = None

    def done(self) -> bool:
        return self.on_reply is None

    def reply(self, result: Answer | KafkaError) -> None:
        on_reply, self.on_reply = self.on_reply, None
        if on_reply is not None:
            on_reply(result)

    def start(self, stream: ClientConnection) -> None:
        """Send it; KafkaError if the other broker has no version of it."""
        if self.version is None:
            self.version = stream.version_for(self.request)
        self.stream = stream
        stream.start_for(self, self.request, self.version)

    def set_result(self, frame: Frame) -> None:
        """The answer arrived."""
        assert self.stream is not None
        assert self.version is not None
        result: Answer | KafkaError
        try:
            result = self.stream.decode(frame, self.answer, self.version)
        except KafkaError as unreadable:
            result = unreadable
        try:
            self.reply(result)
        except Exception:
            log.exception("handling an answer to %s failed", type(self.request).__name__)

    def set_exception(self, why: KafkaError) -> None:
        """The stream broke; the caller hears of it later, never within its own call."""
        asyncio.get_running_loop().call_soon(self.reply, why)


class PeerConnection:
    """A connection to one broker that reconnects by itself. Create it with `Peers.open`.

    Requests arrive in the order of `send`. Each is answered once, later and on the loop: with the
    response, or with a KafkaError. NETWORK_EXCEPTION and REQUEST_TIMED_OUT mean that the request may
    have arrived, BROKER_NOT_AVAILABLE and UNSUPPORTED_VERSION that it did not. Nothing is sent twice;
    callers retry.
    """

    def __init__(self, peers: "Peers", broker_id: int, purpose: str, address_of: AddressOf) -> None:
        self.broker_id = broker_id
        self._peers = peers
        self._purpose = purpose
        self._address_of = address_of
        self._stream: ClientConnection | None = None
        self._address: Address | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pause: Timer | None = None
        self._failures = 0
        self._queued: deque[_PeerRequest[Any]] = deque()
        # Requests that may be unanswered, in their order, and when the first of them may be due.
        self._sent: deque[_PeerRequest[Any]] = deque()
        self._deadline: Timer | None = None
        self._deadline_s = 0.0
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether the next request can be sent at once."""
        return self._stream is not None and self._stream.is_open

    def send(
        self,
        request: Struct,
        answer: type[Answer],
        on_reply: Callable[[Answer | KafkaError], None],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send `request`, by default in the newest version that both brokers know.

        `timeout_ms` (default: request.timeout.ms) includes the time to connect. A request that times
        out closes the stream, and with it fails all pending requests.
        """
        limit_ms = self._peers.timeout_ms if timeout_ms is None else timeout_ms
        sent = _PeerRequest(request, answer, version, on_reply, limit_ms)
        if self._closed:
            closed = self._unreachable("the connection is closed")
            asyncio.get_running_loop().call_soon(sent.reply, closed)
            return
        self._limit(sent)
        if self._address is not None and self._address != self._address_of(self.broker_id):
            self._drop_stream()
        if self._stream is not None and self._stream.is_open and not self._queued:
            self._start(self._stream, sent)
        else:
            self._queued.append(sent)
            self._connect_soon()

    def close(self) -> None:
        """Close the stream; pending requests fail with NETWORK_EXCEPTION or BROKER_NOT_AVAILABLE."""
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._deadline is not None:
            self._deadline.cancel()
        self._drop_stream()
        self._fail_queued(self._unreachable("the connection is closed"))
        self._peers.forget(self)

    # -- requests

    def _start(self, stream: ClientConnection, sent: _PeerRequest[Any]) -> None:
        try:
            sent.start(stream)
        except KafkaError as refused:
            asyncio.get_running_loop().call_soon(sent.reply, refused)

    def _limit(self, sent: _PeerRequest[Any]) -> None:
        """Have the request time out. One timer serves all: most requests are answered before it fires."""
        pending = self._sent
        while pending and pending[0].done():
            pending.popleft()
        pending.append(sent)
        if self._deadline is None or sent.due_s < self._deadline_s:
            self._set_deadline(sent.due_s)

    def _set_deadline(self, due_s: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline_s = due_s
        self._deadline = loop.call_later(max(0.0, due_s - loop.time()), self._deadline_passed)

    def _deadline_passed(self) -> None:
        self._deadline = None
        now_s = asyncio.get_running_loop().time()
        for sent in [sent for sent in self._sent if sent.due_s <= now_s and not sent.done()]:
            self._timed_out(sent)
        self._sent = deque(sent for sent in self._sent if not sent.done())
        if self._sent and not self._closed:
            self._set_deadline(min(sent.due_s for sent in self._sent))

    def _timed_out(self, sent: _PeerRequest[Any]) -> None:
        if sent.done():
            return
        late = KafkaError(
            E.REQUEST_TIMED_OUT,
            f"broker {self.broker_id} did not answer within {sent.limit_ms} ms ({self._purpose})",
        )
        if sent in self._queued:
            self._queued.remove(sent)
        elif self._stream is not None:
            stream, self._stream, self._address = self._stream, None, None
            stream.abort(late)
        sent.reply(late)

    def _fail_queued(self, why: KafkaError) -> None:
        queued, self._queued = self._queued, deque()
        call_soon = asyncio.get_running_loop().call_soon
        for sent in queued:
            call_soon(sent.reply, why)

    def _unreachable(self, why: object) -> KafkaError:
        return KafkaError(
            E.BROKER_NOT_AVAILABLE, f"broker {self.broker_id} cannot be reached: {why}"
        )

    # -- connecting

    def _drop_stream(self) -> None:
        stream, self._stream, self._address = self._stream, None, None
        if stream is not None:
            stream.close()

    def _connect_soon(self) -> None:
        """Connect, after a pause if the last attempt failed, unless an attempt is in progress."""
        if self._connecting is None and self._pause is None:
            if self._failures:
                self._pause = asyncio.get_running_loop().call_later(
                    self._peers.pause_ms(self._failures) / 1000, self._connect
                )
            else:
                self._connect()

    def _connect(self) -> None:
        self._pause = None
        if not self._queued:
            return
        address = self._address_of(self.broker_id)
        if address is None:
            self._failed(self._unreachable("no live broker has this id"))
            return
        loop = asyncio.get_running_loop()
        self._connecting = loop.create_task(self._open(address), name=f"connect {self._purpose}")

    async def _open(self, address: Address) -> None:
        try:
            stream = await self._peers.connect(self.broker_id, self._purpose, address)
        except Exception as failure:  # noqa: BLE001 - whatever it is, the next attempt may work
            self._connecting = None
            self._failed(self._unreachable(failure))
        else:
            self._connecting = None
            self._opened(stream, address)

    def _opened(self, stream: ClientConnection, address: Address) -> None:
        self._stream, self._address = stream, address
        self._failures = 0
        while self._queued:
            self._start(stream, self._queued.popleft())

    def _failed(self, why: KafkaError) -> None:
        self._failures += 1
        log.debug("%s", why.message)
        self._fail_queued(why)


class Peers:
    """Opens connections to other brokers, as this broker."""

    def __init__(
        self,
        network: Network,
        randomness: Randomness,
        credentials: BrokerCredentials,
        address_of: AddressOf,
        timeout_ms: int,
        tls_of: Callable[[str], SSLContext | None] = lambda _: None,
    ) -> None:
        """`tls_of` returns the context for a listener of the other broker, None without TLS."""
        self.timeout_ms = timeout_ms
        self._tls_of = tls_of
        self._network = network
        self._randomness = randomness
        self._credentials = credentials
        self._address_of = address_of
        self._open: dict[PeerConnection, None] = {}

    def open(
        self, broker_id: int, purpose: str, address_of: AddressOf | None = None
    ) -> PeerConnection:
        """Return a new connection to a broker; `purpose` identifies it in both brokers' logs."""
        connection = PeerConnection(self, broker_id, purpose, address_of or self._address_of)
        self._open[connection] = None
        return connection

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self._open):
            connection.close()

    # -- what connections call

    def forget(self, connection: PeerConnection) -> None:
        self._open.pop(connection, None)

    def pause_ms(self, failures: int) -> int:
        """Return the pause after this many failures: doubled each time, with jitter."""
        most = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(failures - 1, 10))
        return most // 2 + self._randomness.below(most // 2 + 1)

    async def connect(self, broker_id: int, purpose: str, address: Address) -> ClientConnection:
        """Return a stream to a broker on which both sides are authenticated."""
        timeout_s = self.timeout_ms / 1000
        stream = await ClientConnection.open(
            self._network,
            address.host,
            address.port,
            tls=self._tls_of(address.listener),
            client_id=f"broker-{self._credentials.broker_id}-{purpose}",
            timeout_s=timeout_s,
            setup_timeout_s=min(SETUP_TIMEOUT_S, timeout_s),
        )
        try:
            await self._authenticate(stream, broker_id)
            await stream.learn_versions()
        except BaseException:
            stream.close()
            raise
        return stream

    async def _authenticate(self, stream: ClientConnection, broker_id: int) -> None:
        nonce = self._randomness.below(1 << 8 * NONCE_BYTES).to_bytes(NONCE_BYTES)
        try:
            await log_in(stream, MECHANISM, CallingBroker(self._credentials, broker_id, nonce))
        except KafkaError as refused:
            if refused.code not in (E.ILLEGAL_SASL_STATE, E.UNSUPPORTED_SASL_MECHANISM):
                raise
            raise KafkaError(
                refused.code,
                f"{stream.address} does not let brokers in on this listener: its version differs from "
                "that of this broker",
            ) from None
