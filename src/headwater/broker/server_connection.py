"""One client's connection: frames in, responses out in the order of their requests.

Requests are handled as they arrive and may finish in any order; each has a slot in the order of
arrival, and a response is sent when all before it have been sent. A client with too many unanswered
requests, or one that does not read its responses, is not read from until it catches up. Records that
are not in the page cache are read from the disk piece by piece, as fast as the client reads them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.broker.answer_buffers import handshake_failure, joined, own_bytes
from headwater.broker.idle_tracker import IdleTracker
from headwater.broker.listening import SETUP_TIMEOUT_S, ListenerSecurity
from headwater.broker.pending_response import PendingResponse
from headwater.broker.session_end import SessionEnd
from headwater.log.slices import PLAIN_SOCKET, PlainSocket, SliceStream
from headwater.seams.files import Buffer
from headwater.security.principals import ANONYMOUS, BROKER, Principal
from headwater.security.sasl_session import SaslSession
from headwater.transport.frame_protocol import FIRST_BUFFER, UNLIMITED, FrameProtocol
from headwater.transport.memory import MemoryBudget
from headwater.transport.wrong_protocol import HANDSHAKE, NO_TLS_HERE

if TYPE_CHECKING:
    from headwater.broker.client_quotas import QuotaMeter
    from headwater.broker.context import Context
    from headwater.broker.listener_tls import ListenerTls
    from headwater.broker.pure_fast_produce import FastRoute

MAX_UNANSWERED = 128
MAX_UNSENT = 1024 * 1024
"""Bytes of unsent responses above which no further request is read."""
MAX_HELD = 4 * 1024 * 1024
"""Bytes of requests that wait for a codec, a coordinator or a turn above which no more are read."""
MAX_POLLS = 2
"""The most long polls of one client: all of them may complete at the same moment."""
PIECE = 1024 * 1024
SMALL_PIECE = 64 * 1024
"""Bytes read from the disk at a time for one client, and while memory is short."""
ENVELOPE_ROOM = 256 * 1024
"""How much larger a broker's frame may be than a client's, which it forwards with the name of its user.
No certificate that OpenSSL takes has a longer subject, even escaped."""
WORTH_COUNTING = 64 * 1024
"""Smaller responses do not count in the memory budget: the transport sends them at once."""

SENT: list[Buffer] = []
"""The content of the slot of a sent response: a reference to the slot must not keep the bytes."""

log = logging.getLogger("headwater.server")


OnFrame: TypeAlias = Callable[["ServerConnection", int, int], None]
"""Handles the request that lies in the connection's buffer, from start to end."""


class ServerConnection(FrameProtocol):
    """The broker's end of a client's connection."""

    __slots__ = (
        "_accepted_ms",
        "_answers",
        "_charged",
        "_handed",
        "_held_back",
        "_held_bytes",
        "_leaving",
        "_polls",
        "_stream",
        "_streams",
        "_tick",
        "_too_many",
        "_unsent",
        "_writing_paused",
        "authenticated",
        "client_software",
        "context",
        "frame",
        "host",
        "idle",
        "last_shape",
        "listener",
        "meter",
        "pending",
        "plain_socket",
        "principal",
        "route",
        "sasl",
        "security",
        "session_end",
        "throttle_ms",
        "waits_for_start",
    )

    def __init__(
        self,
        context: "Context",
        security: ListenerSecurity,
        on_frame: "OnFrame",
        host: str,
    ) -> None:
        settings = context.settings
        limit = (
            settings.sasl_server_max_receive_size
            if security.uses_sasl
            else settings.socket_request_max_bytes
        )
        memory = context.memory_before_login if security.uses_sasl else context.memory
        super().__init__(limit, on_frame, memory)
        self.context = context
        self.security = security
        self.listener = security.name
        self.plain_socket: PlainSocket | None = None if security.tls else PLAIN_SOCKET
        self.principal: Principal = ANONYMOUS
        self.authenticated = not security.uses_sasl
        self._accepted_ms = context.clock.monotonic_ms()
        self.sasl: SaslSession | None = None
        """The authentication of the peer, once it has begun."""
        self.session_end = SessionEnd()
        self.waits_for_start = False
        """Whether its requests wait until the broker serves."""
        self.host = host
        self.client_software: tuple[str, str] = ("unknown", "unknown")
        self.pending: deque[PendingResponse] = deque()
        self.idle = IdleTracker()
        self.route: FastRoute | None = None
        """The route of this client's last produce request, for the fast path."""
        self.meter: QuotaMeter | None = None
        """What its requests count against; None before the first one with quotas."""
        self.throttle_ms = 0  # of the request being handled
        self.last_shape: object = None
        """The partitions of the last decoded produce request."""
        self.frame = (0, 0)
        """The position of the request being handled in the buffer."""
        self._answers: list[Any] = []
        self._unsent = 0
        self._polls = 0
        self._held_bytes = 0
        self._held_back = False
        self._charged = 0
        """Bytes of answers that count in the memory budget."""
        self._handed = 0
        self._streams = 0
        self._stream: SliceStream | None = None
        """The response being sent piece by piece; later responses wait."""
        self._writing_paused = False
        self._tick = context.tick
        self._too_many = False
        self._leaving = False

    # -- connect and disconnect

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read: the peer was counted when it was accepted, and TLS is established."""
        super().connection_made(transport)
        if not self.authenticated:
            passed_s = (self.context.clock.monotonic_ms() - self._accepted_ms) / 1000
            self.session_end.set(max(0.0, SETUP_TIMEOUT_S - passed_s), self._setup_expired)
        elif self.security.tls is not None and not self._identify(self.security.tls):
            self.abort()
            return

    def _identify(self, tls: "ListenerTls") -> bool:
        """Identify the peer by its certificate; return False if no rule gives it a name."""
        assert self.transport is not None
        principal = tls.principal_of(
            self.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        )
        if principal is None:
            why = "no rule of ssl.principal.mapping.rules makes a user of its certificate"
            self._report(why)
            self.context.audit.login_refused(self, "certificate", why)
            return False
        self.authenticated_as(principal)
        return True

    def _setup_expired(self) -> None:
        self._report(f"it did not authenticate within {SETUP_TIMEOUT_S:g} s")
        self.abort()

    def _report(self, why: object) -> None:
        self.context.peer_log.warning(
            f"listener {self.listener}", self.host, f"closed a connection: {why}"
        )

    def authenticated_as(self, principal: Principal) -> None:
        """Serve the peer as `principal`; what was looked up for another one is dropped."""
        self.session_end.clear()
        most = self.context.settings.socket_request_max_bytes
        self.max_frame = most + ENVELOPE_ROOM if principal.kind == BROKER else most
        if self.memory is self.context.memory_before_login:
            self.memory.leave(self)
            self.memory = self.context.memory
            self.memory.charge(self, len(self.buffer) - FIRST_BUFFER)
        self.principal = principal
        self.authenticated = True
        self.route = None

    def end_session(self) -> None:
        """Serve nothing until the peer has authenticated again."""
        self.authenticated = False
        self.route = None

    def longest_poll(self, wait_ms: int) -> int:
        """Limit a wait to the session and the idle timeout: a client that vanishes is not noticed while it waits."""
        idle_ms = self.context.settings.connections_max_idle_ms
        return self.session_end.limit_ms(min(wait_ms, idle_ms) if idle_ms >= 0 else wait_ms)

    def wait_for_start(self, start: int) -> None:
        """Take the request at `start`, and those after it, once the broker serves."""
        self.waits_for_start = True
        self.put_back(start)

    def start_serving(self, on_frame: "OnFrame") -> None:
        """The broker serves: hand over the requests that waited."""
        self.on_frame = on_frame
        if self.waits_for_start:
            self.waits_for_start = False
            self.release()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection; later responses are dropped."""
        if self.transport is None and exc is not None:
            why = handshake_failure(exc, self.security.protocol)
            self._report(why)
            if isinstance(exc, SSLCertVerificationError):
                self.context.audit.login_refused(self, "certificate", why)
        self.context.connection_quotas.leave(self, self.host, self.listener)
        self.context.metrics.closed_bytes_in += self.bytes_in
        self.context.metrics.closed_bytes_out += self.bytes_out
        self.context.client_quotas.connection_lost(self)
        self.session_end.clear()
        self._answers.clear()
        self._stream = None
        self.route = None
        self.leave_budget()
        for slot in self.pending:
            slot.peer_gone()

    def leave_budget(self) -> None:
        """Release the memory of received and unsent bytes; requests being handled stay counted."""
        self.memory.leave(self)
        if self.memory is not self.context.memory:
            return
        self.memory = MemoryBudget(UNLIMITED)
        self._charged = 0
        if self._held_bytes:
            self.context.memory.charge(self, self._held_bytes)

    @property
    def gone(self) -> bool:
        """Return whether the peer can no longer get responses."""
        return self.transport is None or self.transport.is_closing()

    def dismiss(self) -> None:
        """Read nothing more; answer pending requests, then close."""
        self._leaving = True
        self.hold()
        self._tick.send_soon(self)

    # -- requests

    def turn_ended(self) -> None:
        """Send ready responses, and pause reading from a client with too many pending requests."""
        if self.memory.tight:
            self.shrink()  # ends the tick, which may answer: before the answers are sent
        if self._answers:
            self.send_answers()
        if len(self.pending) >= MAX_UNANSWERED and not self._too_many:
            self._too_many = True
            self.hold()

    def before_reuse(self) -> None:
        """End the tick early: batches in this buffer must be written before it is overwritten."""
        if self._tick.dirty:
            self._tick.flush()

    def frame_refused(self, size: int) -> bytes:
        """Close the connection of a peer that announced an invalid frame size."""
        if size >> 16 == HANDSHAKE:
            self._report(
                "the client uses TLS, which this listener does not speak: it needs "
                f"security.protocol={self.security.protocol}, or the port of a listener with TLS"
            )
            return NO_TLS_HERE
        self.context.peer_log.warning(
            "frames", self.host, f"closed a connection: a frame of {size} bytes was announced"
        )
        return b""

    # -- answers

    def response_ready(self, slot: PendingResponse) -> None:
        """Send a response if all earlier ones have been sent."""
        pending = self.pending
        if pending[0] is not slot:
            return
        if len(pending) == 1 and not self._answers and slot.buffers is not None:
            self._answers, slot.buffers = slot.buffers, SENT
            pending.clear()
        else:
            answers = self._answers
            while pending and (buffers := pending[0].buffers) is not None:
                answers += buffers
                pending.popleft().buffers = SENT
        if self._too_many and len(pending) < MAX_UNANSWERED // 2:
            self._too_many = False
            self.release()
        if not self.in_turn:
            self._tick.send_soon(self)

    def answer_made(self, buffers: list[Buffer]) -> None:
        """Queue a response; count its bytes in this process's memory, if they are many."""
        size = own = 0
        for buffer in buffers:
            length = len(buffer)
            size += length
            kind: type = type(buffer)
            if kind is SliceStream:
                self._streams += 1
            elif kind is not memoryview:
                own += length
        before = self._unsent
        self._unsent = unsent = before + size
        if before <= MAX_UNSENT < unsent:
            self.hold()
        if own > WORTH_COUNTING:
            self._charge(own)

    def _answers_sent(self, size: int) -> None:
        self.bytes_out += size
        before = self._unsent
        if before:
            self._unsent = unsent = before - size if before > size else 0
            if unsent <= MAX_UNSENT < before:
                self.release()

    def hold_bytes(self, size: int) -> None:
        """Count bytes of its requests that wait for a codec, a coordinator or a turn; negative later.

        While memory is tight, a client with such bytes is not read at all: small requests need no
        leave to be received, and thousands of clients together could hold any amount.
        """
        self._held_bytes += size
        memory = self.context.memory
        memory.charge_work(self, size)
        held_back = self._held_bytes > (0 if memory.tight else MAX_HELD)
        if held_back is not self._held_back:
            self._held_back = held_back
            if held_back:
                self.hold()
            else:
                self.release()

    def poll_began(self) -> None:
        """Count a waiting fetch of this client."""
        self._polls += 1
        if self._polls == MAX_POLLS:
            self.hold()

    def poll_ended(self) -> None:
        """Count the end of a waiting fetch."""
        self._polls -= 1
        if self._polls == MAX_POLLS - 1:
            self.release()

    def send_answers(self) -> None:
        """Pass the responses to the transport; the buffer is free once all of it is written."""
        transport = self.transport
        if transport is None or transport.is_closing() or (self.lending and self._send_later()):
            return
        if not self._tick.dirty:
            self.rewind()
        if self._stream is not None:
            return
        answers = self._answers
        if answers:
            self._answers = []
            if self._streams:
                answers = self._up_to_stream(answers)
            if self.plain_socket is None:
                answers = joined(answers)
            if len(answers) == 1:
                transport.write(answers[0])
            elif answers:
                transport.writelines(answers)
            self._answers_sent(sum(map(len, answers)))
            if self._charged and not self._writing_paused:
                self._charge(-min(self._charged, own_bytes(answers)))
            if self._streams and self._begin_stream():
                return
        if self._leaving and not self.pending:
            self.close()

    def _send_later(self) -> bool:
        """Send once the transport has read: a write may fail, which closes it."""
        asyncio.get_running_loop().call_soon(self.send_answers)
        return True

    # -- answers that are read from the disk while they are sent

    def _up_to_stream(self, answers: list[Any]) -> list[Any]:
        """Return the responses before the next streamed one, which is sent next; the rest waits."""
        for rank, buffer in enumerate(answers):
            if isinstance(buffer, SliceStream):
                self._stream, self._answers = buffer, answers[rank + 1 :] + self._answers
                return answers[:rank]
        return answers

    def _begin_stream(self) -> bool:
        if self._stream is not None and not self._writing_paused:
            self._load_piece()
        return self._stream is not None

    def _load_piece(self) -> None:
        stream = self._stream
        if stream is None:
            return
        size = min(stream.left, SMALL_PIECE if self.memory.tight else PIECE)
        self._charge(size)

        def loaded(data: object, failure: Exception | None) -> None:
            if self.gone or not isinstance(data, bytes) or len(data) != size:
                self._stream_failed(failure)
            else:
                self._send_piece(stream, data)

        self.context.off_loop(lambda: stream.load(size), loaded)

    def _send_piece(self, stream: SliceStream, data: bytes) -> None:
        assert self.transport is not None
        self._handed += len(data)
        self.transport.write(data)
        self._answers_sent(len(data))
        if not stream.left:
            self._stream = None
            self._streams -= 1
        if self._writing_paused:
            return
        self._charge(-self._charged)
        if stream.left:
            self._load_piece()
        else:
            self.send_answers()

    def _stream_failed(self, failure: Exception | None) -> None:
        """Close the connection: the size of the response is already sent."""
        if not self.gone:
            log.warning(
                "closed the connection of %s: the records of its fetch cannot be read: %s",
                self.host,
                failure,
            )
            self.abort()

    def pause_writing(self) -> None:
        """Pause reading: the peer reads responses too slowly."""
        self._writing_paused = True
        self.hold()

    def resume_writing(self) -> None:
        """Resume reading: the peer has caught up."""
        self._writing_paused = False
        self._charge(-self._charged)
        self.release()
        if self._stream is not None:
            self._load_piece()
        elif self._answers:
            self._tick.send_soon(self)

    # -- memory

    def _charge(self, size: int) -> None:
        if size:
            self._charged += size
            self.memory.charge(self, size)

    def progress(self) -> int | None:
        """Return an approximate count of transferred bytes; None if the client waits for the broker."""
        if self.transport is None or self.transport.is_closing():
            return None
        if super().progress() is None and not self._writing_paused:
            return None
        return self.received() + self._handed - self.transport.get_write_buffer_size()


class SaslServerConnection(ServerConnection):
    """A client's connection on a listener with SASL, whose session may end."""

    __slots__ = ()

    def buffer_updated(self, nbytes: int) -> None:
        """End a session that is over before its client is served: the timer may be late."""
        self.session_end.catch_up()
        if not self.gone:
            super().buffer_updated(nbytes)
