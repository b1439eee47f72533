"""One client's connection: frames in, answers out in the order of their requests.

Requests are handled as they come and may finish in any order; each has a slot in the order of
arrival, and an answer leaves when all before it have left. A client that leaves too many
requests unanswered, or does not read its answers, is not read from until it catches up.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.seams.files import Buffer
from headwater.security.principals import ANONYMOUS, Principal
from headwater.transport.inbound import Inbound

if TYPE_CHECKING:
    from headwater.broker.context import Context
    from headwater.broker.handlers.produce import Route

MAX_UNANSWERED = 128
MAX_UNSENT = 1024 * 1024
"""Bytes of answers: with more of them unsent, no further request is taken."""
MAX_POLLS = 2
"""Long polls of one client at a time: all of them may come true at the same moment."""


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("buffers", "connection")

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.buffers: list[Buffer] | None = None
        connection.slots.append(self)

    @property
    def answered(self) -> bool:
        """Whether the answer is known."""
        return self.buffers is not None

    def fill(self, buffers: list[Buffer]) -> None:
        """Give the answer; empty for a request that has none. Exactly once."""
        if self.buffers is None:
            self.buffers = buffers
            self.connection.slot_filled(self)

    def peer_gone(self) -> None:
        """The client left before its answer."""


class Idleness:
    """Whether a connection did anything between two looks: counting costs the hot path nothing."""

    __slots__ = ("_frames", "_since_ms")

    def __init__(self) -> None:
        self._frames = -1
        self._since_ms = 0

    def for_ms(self, now_ms: int, frames_taken: int) -> int:
        """For how long no request has come, as far as the looks can tell."""
        if frames_taken != self._frames:
            self._frames, self._since_ms = frames_taken, now_ms
        return now_ms - self._since_ms


class Connection(Inbound):
    """A client as the broker sees it."""

    def __init__(
        self, context: "Context", listener: str, on_frame: Callable[["Connection", int, int], None]
    ) -> None:
        super().__init__(context.settings.socket_request_max_bytes, on_frame)
        self.context = context
        self.listener = listener
        self.principal: Principal = ANONYMOUS
        self.host = ""
        self.client_software: tuple[str, str] = ("unknown", "unknown")
        self.slots: deque[Slot] = deque()
        self.idle = Idleness()
        self.route: Route | None = None
        """The way of this client's last produce request, so that its next one need not be parsed."""
        self.frame = (0, 0)
        """Where the request being handled lies in the buffer."""
        self._answers: list[Buffer] = []
        self._unsent = 0
        self._polls = 0
        self._tick = context.tick
        self._in_turn = False
        self._too_many = False
        self._leaving = False

    # -- coming and going

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the peer in, or not."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else "unknown"
        if not self.context.doorkeeper.admit(self, self.host):
            self.context.hostile.warning("connections", self.host, "too many connections")
            self.abort()
        elif not self.context.serving:
            self.hold()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the peer; answers still to come go nowhere."""
        self.context.doorkeeper.leave(self, self.host)
        self._answers.clear()
        self.route = None
        for slot in self.slots:
            slot.peer_gone()

    @property
    def gone(self) -> bool:
        """Whether answers can no longer reach the peer."""
        return self.transport is None or self.transport.is_closing()

    def dismiss(self) -> None:
        """Take nothing more from this peer; what it asked before is answered, then it is closed."""
        self._leaving = True
        self.hold()
        self._tick.send_soon(self)

    # -- requests

    def buffer_updated(self, nbytes: int) -> None:
        """Take the requests that came, then send what could be answered at once."""
        self._end += nbytes
        if not self._holds:
            self._in_turn = True
            try:
                self._take_turn()
            finally:
                self._in_turn = False

    def turn_ended(self) -> None:
        """Send what is ready, and take no more from a client that has too much under way."""
        if self._answers:
            self.send_answers()
        if len(self.slots) >= MAX_UNANSWERED and not self._too_many:
            self._too_many = True
            self.hold()

    def before_reuse(self) -> None:
        """End the tick early: batches in this buffer must be written before it is overwritten."""
        if self._tick.dirty:
            self._tick.flush()

    def frame_refused(self, size: int) -> None:
        """Not a Kafka client, or a hostile one."""
        self.context.hostile.warning(
            "frames", self.host, f"closed a connection: a frame of {size} bytes was announced"
        )

    # -- answers

    def slot_filled(self, slot: Slot) -> None:
        """An answer is known: it leaves if it is its turn."""
        slots = self.slots
        if slots[0] is not slot:
            return
        answers = self._answers
        while slots and slots[0].buffers is not None:
            answers += slots.popleft().buffers or ()
        if self._too_many and len(slots) < MAX_UNANSWERED // 2:
            self._too_many = False
            self.release()
        if not self._in_turn:
            self._tick.send_soon(self)

    def answer_made(self, size: int) -> None:
        """An answer takes so many bytes of memory until it is sent."""
        before = self._unsent
        self._unsent += size
        if before <= MAX_UNSENT < self._unsent:
            self.hold()

    def _answers_sent(self, size: int) -> None:
        before = self._unsent
        self._unsent = max(0, before - size)
        if self._unsent <= MAX_UNSENT < before:
            self.release()

    def poll_began(self) -> None:
        """A request of this client waits for records."""
        self._polls += 1
        if self._polls == MAX_POLLS:
            self.hold()

    def poll_ended(self) -> None:
        """It has them, or waits no longer."""
        self._polls -= 1
        if self._polls == MAX_POLLS - 1:
            self.release()

    def send_answers(self) -> None:
        """Hand the answers to the transport; the buffer is free once all of it is written."""
        if not self._tick.dirty:
            self.rewind()
        answers = self._answers
        if self.transport is None or self.transport.is_closing():
            return
        if answers:
            self._answers = []
            if len(answers) == 1:
                self.transport.write(answers[0])
            else:
                self.transport.writelines(answers)
            if self._unsent:
                self._answers_sent(sum(map(len, answers)))
        if self._leaving and not self.slots:
            self.transport.close()
