"""The client end of one stream: sends requests, receives answers, and enforces timeouts.

Requests use the newest version that both sides know, from one ApiVersions request. Any number of
requests may be in flight; a broker answers them in order. A broken connection stays broken: its
owner opens another.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from ssl import SSLContext, SSLError
from typing import Any, Protocol, TypeVar, cast

from headwater import __version__
from headwater.errors import E, KafkaError, error_of
from headwater.seams.network import Buffer, Network, write_parts
from headwater.transport.response_reader import Frame, ResponseReader
from headwater.transport.wrong_protocol import is_alert, tls_needed
from headwater.wire import codec
from headwater.wire.apis import API, API_VERSIONS, key_of
from headwater.wire.framing import read_response_header
from headwater.wire.framing import request as wire_request
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.schema import Struct

Answer = TypeVar("Answer", bound=Struct)
T = TypeVar("T")
Read = Callable[[Frame], T]

_LAST_CORRELATION_ID = 2**31 - 1
_OTHER_SETUP = {
    False: "if its listener uses TLS, set security.protocol to SSL or SASL_SSL",
    True: "it may not accept this client's certificate: check ssl.keystore.location",
}
"""What to check if nothing was answered, by whether the connection uses TLS."""
Prepare = Callable[["ClientConnection"], Awaitable[None]]
"""What a connection needs before it is used, such as authentication."""


class FrameReceiver(Protocol):
    """Gets the answer to one request as a frame; the part of a future that a connection uses."""

    def done(self) -> bool:
        """Whether nobody waits for the answer any more."""

    def set_result(self, frame: Any, /) -> None:
        """The answer arrived; must not raise."""

    def set_exception(self, why: Any, /) -> None:
        """No answer will come; may be called while the connection is being closed."""


_Waiting = tuple[int, FrameReceiver, Read[Any]]
_Sendable = tuple[Sequence[Buffer], _Waiting | None]


class ClientConnection(asyncio.BufferedProtocol):
    """A stream to one broker. Create it with `ClientConnection.open`."""

    def __init__(
        self, address: str, client_id: str, timeout_s: float, *, uses_tls: bool = False
    ) -> None:
        self.address = address
        self._uses_tls = uses_tls
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._reader = ResponseReader()
        self._waiting: deque[_Waiting] = deque()
        self._used_s = 0.0
        self._giving_up: asyncio.TimerHandle | None = None
        self._sent = 0
        self._first_without_login = 0
        """The correlation id of the first request after ApiVersions, if there is no login."""
        self._served: dict[int, ApiVersionsResponse.ApiVersion] = {}
        self.features: dict[str, int] = {}
        """The finalized features of the cluster, each with its level."""
        self.features_epoch = -1
        """The epoch of `features`; greater ones are newer."""
        self._agreed: dict[tuple[type[Struct], int | None], int] = {}
        self._held: deque[_Sendable] | None = None
        """Requests that wait while sending is paused; None while it is not."""
        self._drained: asyncio.Future[None] | None = None
        self._later: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        network: Network,
        host: str,
        port: int,
        *,
        tls: SSLContext | None = None,
        client_id: str = "headwater",
        timeout_s: float = 30.0,
        setup_timeout_s: float | None = None,
        prepare: "Prepare | None" = None,
    ) -> "ClientConnection":
        """Connect, ask which versions the broker supports and `prepare`, within `setup_timeout_s`.

        Raises OSError if nothing listens there, KafkaError if the peer is not a Kafka broker.
        """
        connection = cls(f"{host}:{port}", client_id, timeout_s, uses_tls=tls is not None)
        limit_s = timeout_s if setup_timeout_s is None else setup_timeout_s
        accepted = False
        try:
            async with asyncio.timeout(limit_s):
                await network.connect(lambda: connection, host, port, tls)
                accepted = True
                await connection.learn_versions()
                if prepare is not None:
                    await prepare(connection)
                else:
                    connection._first_without_login = connection._sent + 1
        except TimeoutError:
            late = connection._setup_timed_out(limit_s, accepted)
            connection.abort(late)
            raise late from None
        except BaseException:
            connection.close()
            raise
        return connection

    async def call(
        self,
        request: Struct,
        answer: type[Answer],
        *,
        newest: int | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send `request` and wait for its answer; `newest` caps the version.

        `timeout_s` is for requests that a broker holds longer than others, such as JoinGroup.
        """
        version = self.version_for(request, newest)
        return await self._exchange(request, answer, version, timeout_s)

    async def call_version(self, request: Struct, answer: type[Answer], version: int) -> Answer:
        """Send `request` in this version and wait for its answer.

        It is sent whatever the broker advertises, and while sending is paused.
        """
        return await self._exchange(request, answer, version, at_once=True)

    def start(self, request: Struct, version: int) -> "asyncio.Future[Frame]":
        """Send `request` now; its answer comes as a frame, to be read with `decode`.

        For loops with many requests in flight and their own deadlines: this makes no task and no
        timer.
        """
        return self.start_reading(request, version, _as_it_is)

    def start_for(self, receiver: FrameReceiver, request: Struct, version: int) -> None:
        """Send `request` now; `receiver` gets the frame of its answer as soon as it arrives.

        It is called before the loop does anything else; no future is made.
        """
        self._submit(request, version, receiver, _as_it_is)

    def start_reading(self, request: Struct, version: int, read: Read[T]) -> "asyncio.Future[T]":
        """Send `request` now; `read` gets the answer as soon as it arrives.

        `read` runs before any task that awaits the future.
        """
        reply: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._submit(request, version, reply, read)
        return reply

    def send_one_way(self, request: Struct, version: int) -> None:
        """Send a `request` that is not answered (Produce with acks=0)."""
        self._submit(request, version, None, _as_it_is)

    # -- pauses

    async def pause(self) -> None:
        """Hold back requests from now on, and wait for the answers that are due."""
        self._held = deque()
        while self._waiting and self.is_open:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def resume(self) -> None:
        """Send what was held back, in its order."""
        held, self._held = self._held or deque(), None
        for parts, waiting in held:
            self._write(parts, waiting)

    def call_later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Call `work` after a time, unless the connection is closed by then."""
        self._later = asyncio.get_running_loop().call_later(delay_s, work)

    def decode(self, frame: Frame, answer: type[Answer], version: int) -> Answer:
        """Return the answer in `frame`; an unreadable one closes the connection."""
        key = key_of(answer)
        try:
            _, body = read_response_header(frame, key, version)
            decoded, _ = codec.decode(answer, version, frame, body)
        except codec.WireError as malformed:
            self.close()
            raise KafkaError(
                E.NETWORK_EXCEPTION,
                f"{self.address} sent an answer to {API[key].name} that cannot be read "
                f"({malformed}); is it a Kafka broker?",
            ) from malformed
        return decoded

    def version_for(self, request: Struct, newest: int | None = None) -> int:
        """Return the newest version of `request` that both sides know."""
        agreed = self._agreed.get((type(request), newest))
        if agreed is None:
            agreed = self._agreed[type(request), newest] = self._agree(request, newest)
        return agreed

    def _agree(self, request: Struct, newest: int | None) -> int:
        key = key_of(type(request))
        theirs, ours = self._served.get(key), request.__schema__.versions
        name = API[key].name
        if theirs is None:
            raise KafkaError(E.UNSUPPORTED_VERSION, f"the broker at {self.address} has no {name}")
        highest = ours.highest if newest is None else min(newest, ours.highest)
        version = min(theirs.max_version, highest)
        if version < max(theirs.min_version, ours.lowest):
            raise KafkaError(
                E.UNSUPPORTED_VERSION,
                f"the broker at {self.address} speaks {name} {theirs.min_version} to "
                f"{theirs.max_version}, which does not fit; use matching releases",
            )
        return version

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unanswered(self) -> int:
        """The number of requests without an answer yet."""
        return len(self._waiting) + len(self._held or ())

    def idle_for_s(self, now_s: float) -> float:
        """Return for how long nothing was sent or expected; `now_s` is the loop's time."""
        return 0.0 if self.unanswered else now_s - self._used_s

    @property
    def backlog(self) -> int:
        """Bytes that the socket has not accepted yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close the stream after the written bytes are sent; requests in flight fail at once.

        If the peer accepts no more bytes, the stream is aborted after the request timeout.
        """
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            if transport.get_write_buffer_size():
                loop = asyncio.get_running_loop()
                self._giving_up = loop.call_later(self._timeout_s, transport.abort)
        self._fail(self._broken())

    def abort(self, why: KafkaError) -> None:
        """Abort the stream and discard unsent bytes; requests in flight fail with `why`."""
        if self._transport is not None:
            self._transport.abort()
        self._fail(why)

    async def learn_versions(self) -> None:
        """Ask which versions the broker supports; it may advertise more after authentication."""
        request = ApiVersionsRequest(
            client_software_name="headwater", client_software_version=__version__
        )
        answer = await self._exchange(request, ApiVersionsResponse, 3)
        if answer.error_code == E.UNSUPPORTED_VERSION:
            answer = await self._exchange(request, ApiVersionsResponse, 0)
        if answer.error_code == E.INVALID_CONFIG:
            raise tls_needed(self.address)
        if answer.error_code:
            raise KafkaError(error_of(answer.error_code))
        self._served = {row.api_key: row for row in answer.api_keys}
        self._agreed.clear()
        self.features_epoch = answer.finalized_features_epoch
        self.features = {row.name: row.max_version_level for row in answer.finalized_features}

    async def _exchange(
        self,
        request: Struct,
        answer: type[Answer],
        version: int,
        timeout_s: float | None = None,
        *,
        at_once: bool = False,
    ) -> Answer:
        key = key_of(type(request))
        frame = await self._answer_to(request, version, timeout_s or self._timeout_s, at_once)
        if key == API_VERSIONS and frame[4:6] == E.UNSUPPORTED_VERSION.to_bytes(2):
            version = 0  # a broker that does not know the version answers in the oldest one
        return self.decode(frame, answer, version)

    async def _answer_to(
        self, request: Struct, version: int, timeout_s: float, at_once: bool
    ) -> Frame:
        reply: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._submit(request, version, reply, _as_it_is, at_once=at_once)
        try:
            async with asyncio.timeout(timeout_s):
                return await reply
        except TimeoutError:
            late = self._timed_out(API[key_of(type(request))].name, timeout_s)
            self.abort(late)  # later answers would be matched to earlier requests
            raise late from None

    def _submit(
        self,
        request: Struct,
        version: int,
        receiver: FrameReceiver | None,
        read: Read[Any],
        *,
        at_once: bool = False,
    ) -> None:
        """Send a request, or hold it back; without a receiver, it is not answered."""
        if self._transport is None or not self.is_open:
            raise self._broken()
        self._sent = (self._sent + 1) & _LAST_CORRELATION_ID
        parts = wire_request(version, self._sent, self._client_id, request)
        waiting = None if receiver is None else (self._sent, receiver, read)
        if self._held is None or at_once:
            self._write(parts, waiting)
        else:
            self._held.append((parts, waiting))

    def _write(self, parts: Sequence[Buffer], waiting: "_Waiting | None") -> None:
        if self._transport is not None and self.is_open:
            self._used_s = asyncio.get_running_loop().time()
            write_parts(self._transport, parts)
        if waiting is not None:
            self._waiting.append(waiting)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return room for the next bytes."""
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Complete the requests whose answers have arrived."""
        self._used_s = asyncio.get_running_loop().time()
        try:
            for frame in self._reader.received(nbytes):
                correlation_id, reply, read = self._waiting[0]
                if int.from_bytes(frame[:4]) != correlation_id:
                    raise ValueError("an answer out of order")
                self._waiting.popleft()
                if not reply.done():
                    _complete(reply, read, frame)
        except (ValueError, IndexError, codec.WireError):
            if not self._served and is_alert(self._reader.start):
                self._fail(tls_needed(self.address))
            self.close()
        if self._drained is not None and not self._waiting and not self._drained.done():
            self._drained.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every request without an answer: the stream is gone."""
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._fail(self._lost(exc))

    def _fail(self, why: KafkaError) -> None:
        if self._later is not None:
            self._later.cancel()
        waiting, self._waiting = self._waiting, deque()
        held, self._held = self._held or deque(), None
        waiting.extend(one for _, one in held if one is not None)
        for _, reply, _ in waiting:
            if not reply.done():
                reply.set_exception(why)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _lost(self, exc: Exception | None) -> KafkaError:
        """Return what the moment says about the reason: brokers refuse a client without a word."""
        if isinstance(exc, SSLError) and "ALERT" in (exc.reason or ""):
            return KafkaError(
                E.INVALID_CONFIG,
                f"{self.address} refused the TLS of this client: {_alert(exc)}; check the "
                "certificate in ssl.keystore.location, and that the broker trusts its authority",
            )
        if not self._served:
            return self._refused("without an answer", _OTHER_SETUP[self._uses_tls])
        if self._waiting and self._waiting[0][0] == self._first_without_login:
            secured = "SASL_SSL" if self._uses_tls else "SASL_PLAINTEXT or SASL_SSL"
            return self._refused(
                "at the first request",
                f"if its listener needs a login, set security.protocol to {secured}",
            )
        return self._broken()

    def _refused(self, when: str, advice: str) -> KafkaError:
        return KafkaError(
            E.NETWORK_EXCEPTION,
            f"{self.address} closed the connection {when}; {advice}; otherwise see the broker's log",
        )

    def _broken(self) -> KafkaError:
        return KafkaError(
            E.NETWORK_EXCEPTION,
            f"{self.address} closed the connection; see the broker's log for the reason",
        )

    def _setup_timed_out(self, limit_s: float, accepted: bool) -> KafkaError:
        what = (
            f"accepted a connection, but did not answer within {limit_s:g} s: is it a Kafka broker?"
            if accepted
            else f"did not accept a connection within {limit_s:g} s"
        )
        return KafkaError(E.REQUEST_TIMED_OUT, f"{self.address} {what}")

    def _timed_out(self, what: str, timeout_s: float) -> KafkaError:
        return KafkaError(
            E.REQUEST_TIMED_OUT,
            f"{self.address} did not answer within {timeout_s:g} s ({what})",
        )


def _alert(failure: SSLError) -> str:
    """Return an alert of TLS in words: `certificate required`."""
    return (failure.reason or "").partition("ALERT_")[2].lower().replace("_", " ")


def _as_it_is(frame: Frame) -> Frame:
    return frame


def _complete(reply: FrameReceiver, read: Read[Any], frame: Frame) -> None:
    """Complete the future with what `read` returns or raises."""
    try:
        result = read(frame)
    except Exception as problem:  # noqa: BLE001 - raised again where it is awaited
        reply.set_exception(problem)
    else:
        reply.set_result(result)
