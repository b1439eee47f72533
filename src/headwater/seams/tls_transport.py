"""A stream with TLS, after its handshake: bytes of the socket in, bytes of the protocol out.

What is written is encrypted piece by piece as the socket takes it: a large answer to a slow reader
holds neither the loop nor twice its memory, and a piece is still in the CPU's cache when it is sent.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any

Buffer = bytes | bytearray | memoryview

RECEIVED_AT_ONCE = 256 * 1024
RECORD_HEADER = 5
"""Bytes in front of a record: its type, its version, its size."""
LONGEST_RECORD = RECORD_HEADER + 16 * 1024 + 2048
RECORDS_A_TURN = 100
"""How many are decrypted in one turn of the loop: small ones take as long as large ones."""
MOST_EMPTY_IN_ROW = 32
"""How many in a row may be empty: each may change the keys, which takes long."""
PIECE = 7 * 16 * 1024
"""How much is encrypted before it is sent: whole records, in less memory than malloc gives back."""
PIECES_A_TURN = 16
"""How many are sent in one turn of the loop, even if the peer reads as fast as they come."""
HIGH_WATER = 512 * 1024
"""Unsent bytes above which the protocol should pause."""
LOW_WATER = HIGH_WATER // 4
WATCH_AGAIN_S = 1.0
"""How long after received bytes the loop is asked once more for an error of the socket."""
SHUTDOWN_TIMEOUT_S = 2.0
"""How long a peer may take to read more of what is left, and then to close its side."""

_size_at = Struct(">3xH").unpack_from


class TlsEnd:
    """One end of TLS between two buffers of encrypted bytes."""

    __slots__ = ("incoming", "outgoing", "tls")

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)


class TlsTransport(asyncio.Transport):
    """The transport of a protocol whose stream is encrypted."""

    __slots__ = (
        "_again",
        "_backlog",
        "_closing",
        "_decrypt",
        "_due",
        "_empty_in_row",
        "_encrypt",
        "_end",
        "_incoming",
        "_loop",
        "_lost",
        "_outgoing",
        "_partly",
        "_paused_writing",
        "_peer_gone",
        "_pending",
        "_protocol",
        "_reading",
        "_rest",
        "_scratch",
        "_sent_end",
        "_size",
        "_stream",
        "_timer",
        "_unsent",
        "_watching",
        "_watching_room",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stream: socket.socket,
        end: TlsEnd,
        unsent: bytes,
        scratch: memoryview,
    ) -> None:
        """`scratch` may be shared by the streams of a loop; `unsent` is the rest of the handshake."""
        super().__init__()
        self._loop = loop
        self._stream = stream
        self._end = end
        self._incoming, self._outgoing = end.incoming, end.outgoing
        # Without the calls in Python around those of OpenSSL, if there are any.
        tls: Any = getattr(end.tls, "_sslobj", end.tls)
        self._decrypt: Callable[[int, memoryview], int] = tls.read
        self._encrypt: Callable[[Buffer], int] = tls.write
        self._pending: Callable[[], int] = tls.pending
        self._scratch = scratch
        self._protocol: Any = None
        # Written and not encrypted; its bytes; encrypted and not taken by the socket.
        self._backlog: deque[Buffer] = deque()
        self._size = 0
        self._unsent: Buffer = unsent
        # Whether the protocol wants bytes; whether the loop reports bytes, and room for them.
        self._reading = True
        self._watching = False
        self._watching_room = False
        self._again: asyncio.TimerHandle | None = None
        # Received and not decrypted, from the start of a record; whether the last record is not
        # passed on whole; how many in a row had no content.
        self._rest: Buffer = b""
        self._partly = False
        self._empty_in_row = 0
        # Whether received bytes are passed on in the next turn of the loop.
        self._due = False
        self._paused_writing = False
        self._closing = False
        # Whether the peer has closed the stream; whether the end of TLS was sent.
        self._peer_gone = False
        self._sent_end = False
        self._lost = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, protocol: asyncio.BufferedProtocol) -> None:
        """Serve the protocol; what came with the end of the handshake is passed on first."""
        self._protocol = protocol
        try:
            self._watch()
            self._send_waiting()
            if not self._lost:
                protocol.connection_made(self)
        except Exception as failure:  # noqa: BLE001 - of the protocol; the loop goes on
            self._fail(failure)
        self._rest = self._incoming.read()
        if self._rest:
            self._pass_on_later()

    # -- what protocols call

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the peer's address, the socket, or the TLS object."""
        if name == "socket":
            return self._stream
        if self._lost:
            return default
        if name == "peername":
            with contextlib.suppress(OSError):
                return self._stream.getpeername()
        elif name == "ssl_object":
            return self._end.tls
        elif name == "sslcontext":
            return self._end.tls.context
        return default

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._closing

    def pause_reading(self) -> None:
        """Pass on nothing until `resume_reading`."""
        self._reading = False

    def resume_reading(self) -> None:
        """Pass on bytes again."""
        if self._reading or self._closing:
            return
        self._reading = True
        self._watch()
        if self._rest or self._partly:
            self._pass_on_later()

    def get_write_buffer_size(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._size + len(self._unsent)

    def write(self, data: Buffer) -> None:
        """Send bytes, or keep them until the socket takes them."""
        if self._closing or not data:
            return
        if self._backlog or self._unsent or len(data) > PIECE:
            self._queue(data)
            return
        try:
            self._encrypt(data)
            self._unsent = sealed = self._outgoing.read()
            sent = self._stream.send(sealed)
        except (BlockingIOError, InterruptedError):
            self._watch_room()
            return
        except OSError as failure:
            self._lose(failure)
            return
        self._unsent = sealed[sent:]
        if self._unsent:
            self._watch_room()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send several pieces, which may share a TLS record and a system call."""
        if not self._closing:
            self._queue(*list_of_data)

    def close(self) -> None:
        """Send what was written and the end of TLS; wait for the peer's, but not for long."""
        if self._closing:
            return
        self._closing = True
        self._rest = b""
        self._watch()
        self._send_waiting()
        if not self._lost:
            self._timer = self._loop.call_later(
                SHUTDOWN_TIMEOUT_S, self._check_closing, self.get_write_buffer_size()
            )

    def abort(self) -> None:
        """Close at once."""
        self._lose(None)

    # -- receiving

    def _watch(self) -> None:
        if not (self._watching or self._peer_gone):
            self._watching = True
            self._loop.add_reader(self._stream, self._readable)

    def _watch_again(self) -> None:
        """Find out about a broken socket, which uvloop reports once, even if it still has bytes."""
        self._again = None
        if self._watching:
            self._loop.remove_reader(self._stream)
            self._loop.add_reader(self._stream, self._readable)

    def _readable(self) -> None:
        if self._again is None:
            self._again = self._loop.call_later(WATCH_AGAIN_S, self._watch_again)
        if self._due:
            return
        if not (self._reading or self._closing):
            self._watching = False
            self._loop.remove_reader(self._stream)
            return
        scratch, rest = self._scratch, self._rest
        kept = len(rest)
        try:
            count = self._stream.recv_into(scratch[kept:] if kept else scratch)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as failure:
            self._lose(failure)
            return
        if count:
            if not self._closing:
                if kept:
                    scratch[:kept] = rest
                self._rest = scratch[: kept + count]
                self._pass_on()
                if self._rest:  # other streams use the same memory
                    self._rest = memoryview(bytes(self._rest))
            return
        self._peer_gone = True
        self._watching = False
        self._loop.remove_reader(self._stream)
        if not self._closing:
            self._ended()
        elif not self._watching_room:
            self._lose(None)

    def _pass_on_later(self) -> None:
        """Pass on more in the next turn of the loop, after the current tick has ended."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._pass_on_due)

    def _pass_on_due(self) -> None:
        self._due = False
        if not self._lost:
            self._pass_on()
            if not self._due:  # a part of a record must not keep what was received with it
                self._rest = bytes(self._rest)

    def _pass_on(self) -> None:
        """Decrypt what came, and fill the buffer of the protocol once."""
        try:
            if self._reading and not self._closing and self._fill():
                self._pass_on_later()
        except ssl.SSLError as failure:
            self._send_alert(failure)
        except Exception as failure:  # noqa: BLE001 - of the protocol; the loop goes on
            self._fail(failure)
        answers = self._outgoing.pending
        if answers > PIECE:
            self._lose(ConnectionError("the peer asks for new keys and reads none"))
        elif answers and not (self._watching_room or self._lost):
            self._send_waiting()

    def _fill(self) -> bool:
        """Fill the buffer of the protocol; return whether there may be more.

        OpenSSL gets one record at a time: among many without content, it would not return.
        """
        decrypt, feed, rest = self._decrypt, self._incoming.write, self._rest
        at, end = 0, len(rest)
        room: memoryview = self._protocol.get_buffer(-1)
        left = size = len(room)
        records, count = RECORDS_A_TURN, -1
        if self._partly:
            left -= decrypt(left, room)
        while left and records and end - at >= RECORD_HEADER:
            stop = at + RECORD_HEADER + _size_at(rest, at)[0]
            if stop > end:
                if stop - at <= LONGEST_RECORD:
                    break  # the rest of the record is under way
                stop = end  # OpenSSL says what is wrong with it
            feed(rest[at:stop])
            at = stop
            records -= 1
            try:
                count = decrypt(left, room[size - left :] if left < size else room)
            except ssl.SSLWantReadError:
                self._empty_in_row += 1
                if self._empty_in_row > MOST_EMPTY_IN_ROW:
                    self._lose(ConnectionError("the peer sends too many records without content"))
                    return False
                continue
            self._empty_in_row = 0
            left -= count
            if not count:
                break
        self._rest = rest[at:] if at < end else b""
        self._partly = not left and self._pending() > 0
        if left < size and not self._lost:
            self._protocol.buffer_updated(size - left)
        if not count and not self._closing:
            self._ended()
        return not (left and records)

    def _ended(self) -> None:
        """The peer sends nothing more."""
        try:
            self._protocol.eof_received()
        except Exception as failure:  # noqa: BLE001 - of the protocol; the loop goes on
            self._fail(failure)
        self.close()

    # -- sending

    def _send_waiting(self) -> None:
        """Encrypt and send until the socket takes no more or the turn ends."""
        try:
            for _ in range(PIECES_A_TURN):
                if not self._unsent and not self._encrypt_some():
                    break
                sent = self._stream.send(self._unsent)
                if sent < len(self._unsent):
                    self._unsent = memoryview(self._unsent)[sent:]
                else:
                    self._unsent = b""
            else:
                self._watch_room()
                return
        except (BlockingIOError, InterruptedError):
            self._watch_room()
            return
        except OSError as failure:
            self._lose(failure)
            return
        if self._watching_room:
            self._watching_room = False
            self._loop.remove_writer(self._stream)
        if self._closing:
            self._finish()

    def _queue(self, *several: Buffer) -> None:
        """Queue behind unsent bytes; pause the protocol if there are many."""
        self._backlog += several
        self._size += sum(map(len, several))
        if not self._watching_room:
            self._send_waiting()
        if self._size > HIGH_WATER and not self._paused_writing:
            self._paused_writing = True
            self._protocol.pause_writing()

    def _encrypt_some(self) -> int:
        """Encrypt about a piece of what was written; return the number of encrypted bytes."""
        backlog, outgoing = self._backlog, self._outgoing
        while backlog:
            data = backlog.popleft()
            room = PIECE - outgoing.pending
            if len(data) > room:
                rest = memoryview(data)
                data = rest[:room]
                backlog.appendleft(rest[room:])
            if data:
                self._encrypt(data)
                self._size -= len(data)
            if outgoing.pending >= PIECE:
                break
        self._unsent = sealed = outgoing.read()
        return len(sealed)

    def _watch_room(self) -> None:
        if not self._watching_room:
            self._watching_room = True
            self._loop.add_writer(self._stream, self._writable)

    def _writable(self) -> None:
        self._send_waiting()
        if self._paused_writing and self._size <= LOW_WATER and not self._closing:
            self._paused_writing = False
            try:
                self._protocol.resume_writing()
            except Exception as failure:  # noqa: BLE001 - of the protocol; the loop goes on
                self._fail(failure)

    # -- the end

    def _finish(self) -> None:
        """Send the end of TLS, then that of the stream; the peer closes its side."""
        if self._sent_end:
            if self._peer_gone:
                self._lose(None)
            else:
                with contextlib.suppress(OSError):
                    self._stream.shutdown(socket.SHUT_WR)
            return
        self._sent_end = True
        with contextlib.suppress(ssl.SSLError):  # the end of the peer has not come
            self._end.tls.unwrap()
            self._peer_gone = True
        self._send_waiting()

    def _check_closing(self, before: int) -> None:
        """Close the stream of a peer that has read nothing since, or has not closed its side.

        `before` is the number of unsent bytes at the last check.
        """
        left = self.get_write_buffer_size()
        if left == before:
            self._lose(TimeoutError("the end of TLS took too long"))
        else:
            self._timer = self._loop.call_later(SHUTDOWN_TIMEOUT_S, self._check_closing, left)

    def _send_alert(self, failure: ssl.SSLError) -> None:
        """Send the alert that OpenSSL made, which tells the peer why, and close the stream."""
        if not self._unsent and not self._lost:
            with contextlib.suppress(OSError):
                self._stream.send(self._outgoing.read())
        self._lose(failure)

    def _fail(self, failure: Exception) -> None:
        """The protocol raised an exception: report it, and close the stream."""
        self._loop.call_exception_handler(
            {
                "message": "internal error in a protocol over TLS",
                "exception": failure,
                "transport": self,
                "protocol": self._protocol,
            }
        )
        self._lose(failure)

    def _lose(self, failure: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        for timer in (self._again, self._timer):
            if timer is not None:
                timer.cancel()
        if self._watching:
            self._loop.remove_reader(self._stream)
        if self._watching_room:
            self._loop.remove_writer(self._stream)
        self._stream.close()
        self._backlog.clear()
        self._size, self._unsent = 0, b""
        self._loop.call_soon(self._report_lost, failure)

    def _report_lost(self, failure: Exception | None) -> None:
        """Let go of the protocol, which refers to this object, and of the memory of TLS."""
        protocol, self._rest = self._protocol, b""
        del self._protocol, self._end, self._incoming, self._outgoing
        del self._decrypt, self._encrypt, self._pending
        protocol.connection_lost(failure)
