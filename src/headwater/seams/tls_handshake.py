"""The handshake of an accepted connection: its bytes pass through the loop, its steps run on threads.

A step signs, and may verify a chain of certificates: hundreds of microseconds without the GIL. The
threads see only buffers; the socket belongs to the loop, which closes it at the deadline even while
a step runs.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from headwater.seams.tasks import Lane, Tasks
from headwater.seams.tls_transport import LONGEST_RECORD, RECORD_HEADER, TlsEnd

_RECEIVED_AT_ONCE = 16 * 1024
MOST_STEPS = 64
"""Of one handshake, which takes a few: its records come whole, its messages in a few records."""


class Handshake:
    """Calls `done` once: when TLS is set up, or with the reason if it will not be."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stream: socket.socket,
        context: ssl.SSLContext,
        deadline_s: float,
        tasks: Tasks,
        done: Callable[["Handshake", Exception | None], None],
    ) -> None:
        self.stream = stream
        self.end = TlsEnd(context)
        self.unsent = b""
        """Encrypted bytes that the socket has not taken yet."""
        self._loop = loop
        self._tasks = tasks
        self._done = done
        self.set_up = False
        self._ended = False
        self._step: asyncio.Future[None] | None = None
        self._steps = 0
        # Received, from the start of a record that is not whole.
        self._rest = bytearray()
        self._watching = False
        self._watching_room = False
        self._timer = loop.call_at(
            deadline_s, self.drop, TimeoutError("the TLS handshake took too long")
        )

    def read(self) -> None:
        """Read what the peer has sent, and run the next step on a thread."""
        try:
            received = self.stream.recv(_RECEIVED_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            self._watch()
            return
        except OSError as failure:
            self.drop(failure)
            return
        if not received:
            self.drop(ConnectionResetError())
            return
        # Nothing is read during a step. And uvloop reports a broken socket once, even if bytes were
        # before the error: it does so again when it is asked again.
        self._stop_watching()
        self._rest += received
        whole = _whole_records(self._rest)
        if not whole:  # a step for each byte would keep the threads from others
            self._watch()
            return
        self._steps += 1
        if self._steps > MOST_STEPS:
            self.drop(ConnectionError(f"the TLS handshake took more than {MOST_STEPS} steps"))
            return
        self.end.incoming.write(self._rest[:whole])
        del self._rest[:whole]
        self._step = self._tasks.in_thread(self.end.tls.do_handshake, Lane.HANDSHAKE)
        self._step.add_done_callback(self._stepped)

    @property
    def stepping(self) -> bool:
        """Whether a step is queued or running on a thread; otherwise the peer has to send more."""
        return self._step is not None

    def drop(self, failure: Exception | None) -> None:
        """Give up and report why; a queued step never runs."""
        if not self._ended:
            if self._step is not None:
                self._step.cancel()
            self._finish(failure)

    def _finish(self, failure: Exception | None) -> None:
        self._ended = True
        self._timer.cancel()
        self._stop_watching()
        self._watch_room(wanted=False)
        self._done(self, failure)

    def _stepped(self, step: "asyncio.Future[None]") -> None:
        failure = None if step.cancelled() else step.exception()
        if self._ended or step.cancelled():
            return
        self._step = None
        self.unsent += self.end.outgoing.read()
        if isinstance(failure, ssl.SSLWantReadError):
            self._send()
            self._watch()
        elif isinstance(failure, Exception):
            with contextlib.suppress(OSError):
                self.stream.send(self.unsent)  # the alert: the peer learns why
            self.drop(failure)
        else:
            self.set_up = True
            self.end.incoming.write(self._rest)
            self._finish(None)

    def _send(self) -> None:
        try:
            sent = self.stream.send(self.unsent) if self.unsent else 0
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as failure:
            self.drop(failure)
            return
        self.unsent = self.unsent[sent:]
        self._watch_room(wanted=bool(self.unsent))

    def _watch(self) -> None:
        if not self._watching and not self._ended:
            self._watching = True
            self._loop.add_reader(self.stream, self.read)

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self.stream)

    def _watch_room(self, *, wanted: bool) -> None:
        if wanted and not self._watching_room:
            self._loop.add_writer(self.stream, self._send)
        elif self._watching_room and not wanted:
            self._loop.remove_writer(self.stream)
        self._watching_room = wanted


def _whole_records(received: bytearray) -> int:
    """Return how many bytes are whole records, or what OpenSSL refuses at once."""
    at, end = 0, len(received)
    while end - at >= RECORD_HEADER:
        stop = at + RECORD_HEADER + int.from_bytes(received[at + 3 : at + RECORD_HEADER])
        if stop - at > LONGEST_RECORD:
            return end
        if stop > end:
            break
        at = stop
    return at
