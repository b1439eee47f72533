"""Hears every stream to a broker, from clients and other brokers: which request came when, and what answered it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.framing import read_request_header, read_response_header
from headwater.wire.schema import Struct
from simulator.loop import Scheduler
from simulator.network import SimTransport


@dataclass(slots=True)
class Stream:
    """One connection to a broker."""

    client: str
    """The host that opened it."""
    broker: str
    mechanism: str = ""
    tokens: int = 0
    """How many tokens of the login were accepted."""
    authenticated: bool = False
    ends_us: int | None = None
    """When the session ends; None if it does not."""
    requests: dict[int, "Exchange"] = field(default_factory=dict)
    """Those that wait, by correlation id."""
    _incoming: bytearray = field(default_factory=bytearray)
    _outgoing: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Exchange:
    """A request and, later, its answer; both are decoded on demand."""

    stream: Stream
    api_key: int
    version: int
    asked: bytes
    _body: int
    came_us: int
    authenticated: bool
    ends_us: int | None
    oldest: int = 0
    """The oldest version of the ACLs that the broker may act by."""
    newest: int = 0
    """The version in the store when the request came."""
    answer: bytes = b""
    answered_us: int = 0

    def request(self) -> Struct:
        """Return the request."""
        return codec.decode(API[self.api_key].request, self.version, self.asked, self._body)[0]

    def throttle_ms(self) -> int:
        """Return the throttle time of an answer that begins with it."""
        _, body = read_response_header(self.answer, self.api_key, self.version)
        return int.from_bytes(self.answer[body : body + 4])

    def response(self) -> Struct:
        """Return the answer."""
        _, body = read_response_header(self.answer, self.api_key, self.version)
        return codec.decode(API[self.api_key].response, self.version, self.answer, body)[0]


class Wiretap:
    """Puts frames together, and pairs answers with requests."""

    def __init__(
        self,
        scheduler: Scheduler,
        came: Callable[[Exchange], None],
        answered: Callable[[Exchange], None],
    ) -> None:
        self._scheduler = scheduler
        self._came = came
        self._answered = answered
        self._streams: dict[SimTransport, Stream] = {}

    def received(self, reader: SimTransport, data: bytes) -> None:
        """A broker reads what a client has sent."""
        stream = self._stream(reader)
        if stream is None:
            return
        stream._incoming += data
        for frame in _frames(stream._incoming):
            header = read_request_header(frame, 0, len(frame))
            exchange = Exchange(
                stream, header.api_key, header.version, frame, header.body,
                self._scheduler.now_us, stream.authenticated, stream.ends_us,
            )  # fmt: skip
            stream.requests[header.correlation_id] = exchange
            self._came(exchange)

    def sent(self, writer: SimTransport, data: bytes) -> None:
        """A broker answers a client."""
        stream = self._stream(writer)
        if stream is None:
            return
        stream._outgoing += data
        for frame in _frames(stream._outgoing):
            exchange = stream.requests.pop(int.from_bytes(frame[:4], signed=True))
            exchange.answer, exchange.answered_us = frame, self._scheduler.now_us
            self._answered(exchange)

    def _stream(self, end: SimTransport) -> Stream | None:
        """Return the stream of a broker's end; None for other streams."""
        found = self._streams.get(end)
        if found is None:
            broker, client = end.loop.host, end.peer.loop.host
            if not broker.startswith("broker") or not end.accepted:
                return None
            found = self._streams[end] = Stream(client, broker)
        return found


def _frames(buffer: bytearray) -> list[bytes]:
    found = []
    while len(buffer) >= 4:
        end = 4 + int.from_bytes(buffer[:4])
        if len(buffer) < end:
            break
        found.append(bytes(buffer[4:end]))
        del buffer[:end]
    return found
