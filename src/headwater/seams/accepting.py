"""Accepts the connections of one listener, and begins TLS where it is used.

A connection is handed to its owner when it is accepted, before TLS: limits and deadlines count peers
that never finish their handshake. A handshake begins only when the peer's whole first message is
there, few begin in one turn of the loop, and their steps run on threads (`seams/tls_handshake.py`).
If the threads cannot keep up, the others wait in the kernel.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from headwater.seams.tasks import Tasks
from headwater.seams.tls_handshake import Handshake
from headwater.seams.tls_transport import RECEIVED_AT_ONCE, RECORD_HEADER, TlsTransport

ACCEPTS_A_TURN = 32
HANDSHAKES_A_TURN = 4
STEPS_AT_ONCE = 64
"""How many steps of handshakes may wait for threads when one more handshake begins."""
STEPS_PAUSE_S = 0.01
HALF_OPEN = 1024
"""How many handshakes may be under way: each has tens of KiB, which count in no budget."""
NO_DESCRIPTORS_PAUSE_S = 1.0
LONGEST_FIRST_RECORD = 16 * 1024
"""Bytes after its header: a first message of TLS is not encrypted."""
FIRST_BYTES = 4096
"""How much is examined: more than the first message of TLS, or a first request without TLS."""
_HANDSHAKE_RECORD = 0x16
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("headwater.server")


class NotTlsError(ConnectionError):
    """The first bytes of a peer are not those of TLS."""


class Acceptor(Protocol):
    """Decides about new connections, and owns them."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context of the next connection; None for plain TCP."""

    @property
    def setup_timeout_s(self) -> float:
        """How long the handshake of TLS may take."""

    def plain_answer(self, received: bytes) -> bytes:
        """Return what to send to a peer whose first bytes are not those of TLS, before the end."""

    def pause_s(self) -> float:
        """Return for how long to accept nothing; 0 if the next connection may come."""

    def accept(self, host: str) -> asyncio.BaseProtocol | None:
        """Return the protocol of a new connection, or None to close it.

        `connection_made` is called after the handshake. If there is none, `connection_lost` is
        called alone, with the reason. With TLS it is a protocol with buffers.
        """


class AcceptAll:
    """Accepts every connection, without TLS."""

    tls = None
    setup_timeout_s = 0.0

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory

    def plain_answer(self, received: bytes) -> bytes:
        return b""

    def pause_s(self) -> float:
        return 0.0

    def accept(self, host: str) -> asyncio.BaseProtocol | None:
        return self._factory()


class TcpListener:
    """Accepts from a bound socket until it is closed."""

    def __init__(
        self, bound: socket.socket, acceptor: Acceptor, backlog: int, tasks: Tasks
    ) -> None:
        self.port: int = bound.getsockname()[1]
        self._socket = bound
        self._acceptor = acceptor
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._greetings: dict[_Greeting, None] = {}
        # Connections whose handshake may begin.
        self._ready: deque[_Greeting] = deque()
        self._starting = False
        self._handshakes: dict[Handshake, asyncio.BufferedProtocol] = {}
        self._tasks = tasks
        self._connecting: set[asyncio.Task[None]] = set()
        # Where the connections of this loop receive, one at a time.
        self._scratch = memoryview(b"" if acceptor.tls is None else bytearray(RECEIVED_AT_ONCE))
        bound.setblocking(False)
        bound.listen(backlog)
        self._loop.add_reader(bound, self._accept_some)

    def close(self) -> None:
        """Accept no more connections, and drop those whose handshake has not ended."""
        if self._socket.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for greeting in [*self._greetings, *self._ready]:
            greeting.drop(None)
        self._ready.clear()
        for handshake in [*self._handshakes]:
            handshake.drop(None)

    # -- accepting

    def _accept_some(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            pause_s = self._acceptor.pause_s()
            if pause_s > 0:
                self._pause_for(pause_s)
                return
            try:
                stream, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as failure:
                if failure.errno in _NO_DESCRIPTORS:
                    log.warning("connections cannot be accepted: %s", failure)
                    self._pause_for(NO_DESCRIPTORS_PAUSE_S)
                    return
                continue  # the peer is gone already
            self._accepted(stream, address[0])

    def _pause_for(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket)
        self._pause = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._accept_some)

    def _accepted(self, stream: socket.socket, host: str) -> None:
        protocol = self._acceptor.accept(host)
        if protocol is None:
            stream.close()
            return
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._acceptor.tls is None:
            task = self._loop.create_task(self._connect(stream, protocol))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        else:
            deadline_s = self._loop.time() + self._acceptor.setup_timeout_s
            answer = self._acceptor.plain_answer
            greeting = _Greeting(
                self._loop, stream, protocol, deadline_s, self._greeting_ended, answer
            )
            self._greetings[greeting] = None

    # -- TLS

    def _greeting_ended(self, greeting: "_Greeting", *, whole: bool) -> None:
        """The first message of a peer has arrived, or the peer is gone."""
        self._greetings.pop(greeting, None)
        if whole:
            self._ready.append(greeting)
            if not self._starting:
                self._starting = True
                self._loop.call_soon(self._start_some)

    def _start_some(self) -> None:
        self._starting = False
        steps = sum(handshake.stepping for handshake in self._handshakes)
        for _ in range(min(HANDSHAKES_A_TURN, len(self._ready), max(0, STEPS_AT_ONCE - steps))):
            greeting = self._ready.popleft()
            context = self._acceptor.tls
            if context is None or greeting.deadline_s <= self._loop.time():
                greeting.drop(TimeoutError("the TLS handshake took too long"))
            else:
                self._begin_handshake(greeting, context)
        if self._ready:
            self._starting = True
            if steps < STEPS_AT_ONCE:
                self._loop.call_soon(self._start_some)
            else:
                self._loop.call_later(STEPS_PAUSE_S, self._start_some)

    def _begin_handshake(self, greeting: "_Greeting", context: ssl.SSLContext) -> None:
        if len(self._handshakes) >= HALF_OPEN:
            self._drop_oldest()
        handshake = Handshake(
            self._loop,
            greeting.stream,
            context,
            greeting.deadline_s,
            self._tasks,
            self._handshake_ended,
        )
        self._handshakes[handshake] = cast(asyncio.BufferedProtocol, greeting.protocol)
        handshake.read()

    def _drop_oldest(self) -> None:
        """Drop the handshake that has waited longest for its peer: others answer at once."""
        for handshake in self._handshakes:
            if not handshake.stepping:
                handshake.drop(ConnectionError("the TLS handshake was slow, and too many began"))
                return

    def _handshake_ended(self, handshake: Handshake, failure: Exception | None) -> None:
        protocol, stream = self._handshakes.pop(handshake), handshake.stream
        if handshake.set_up:
            transport = TlsTransport(
                self._loop, stream, handshake.end, handshake.unsent, self._scratch
            )
            transport.begin(protocol)
        else:
            stream.close()
            protocol.connection_lost(failure)

    # -- plain TCP

    async def _connect(self, stream: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, stream)
        except (OSError, TimeoutError) as failure:
            stream.close()
            protocol.connection_lost(failure)


class _Greeting:
    """A connection that was accepted and has not sent its whole first record of TLS.

    Thousands of peers may send the rest of their first messages at the same moment: the kernel keeps
    these bytes, and none of the handshakes has begun.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stream: socket.socket,
        protocol: asyncio.BaseProtocol,
        deadline_s: float,
        done: Callable[..., None],
        plain_answer: Callable[[bytes], bytes],
    ) -> None:
        self.stream = stream
        self.protocol = protocol
        self.deadline_s = deadline_s
        self._loop = loop
        self._done = done
        self._wanted = RECORD_HEADER
        self._wake_with(RECORD_HEADER)
        self._plain_answer = plain_answer
        self._timer = loop.call_at(
            deadline_s, self.drop, TimeoutError("the TLS handshake did not begin in time")
        )
        loop.add_reader(stream, self._readable)

    def _wake_with(self, size: int) -> None:
        """Have the kernel report the stream once it holds `size` bytes, or its end."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _readable(self) -> None:
        wanted = self._wanted
        try:
            first = self.stream.recv(max(wanted, FIRST_BYTES), socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as failure:
            self.drop(failure)
            return
        if not first:
            self.drop(None)
        elif first[0] != _HANDSHAKE_RECORD:
            self._answer_plain()
            self.drop(NotTlsError("its first bytes are not those of TLS"))
        elif wanted == RECORD_HEADER <= len(first):
            self._wait_for_record(int.from_bytes(first[3:RECORD_HEADER]), len(first))
        else:  # whole, or the peer sends no more: then the handshake says what is wrong
            self._begin()

    def _wait_for_record(self, size: int, there: int) -> None:
        if size > LONGEST_FIRST_RECORD:
            self.drop(NotTlsError(f"its first record claims {size} bytes"))
            return
        self._wanted += size
        if there < self._wanted:
            self._wake_with(self._wanted)
            broken = self.stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if broken:  # uvloop reports it once, even if there are bytes
                self.drop(OSError(broken, os.strerror(broken)))
        else:
            self._begin()

    def _begin(self) -> None:
        self._stop_watching()
        self._wake_with(1)
        self._done(self, whole=True)

    def _answer_plain(self) -> None:
        """Answer a peer without TLS, once: what is not read would reset the connection."""
        try:
            answer = self._plain_answer(self.stream.recv(FIRST_BYTES))
            if answer:
                self.stream.send(answer)
        except OSError:
            return  # the peer is gone already

    def _stop_watching(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self.stream)

    def drop(self, failure: Exception | None) -> None:
        """Close the stream and notify its owner."""
        if self.stream.fileno() < 0:
            return
        self._stop_watching()
        self.stream.close()
        self._done(self, whole=False)
        self.protocol.connection_lost(failure)
