"""Peers that are no brokers: they listen, and answer with whatever a test gives them."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from tools.free_ports import free_port

Answer = Callable[[bytes], bytes | None]
"""What to send for a request (without its size); None closes the connection, b"" says nothing."""


@contextlib.contextmanager
def peer(answer: Answer) -> Iterator[str]:
    """Listen on a free port; every connection gets `answer` for each of its requests."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = []

    def serve(stream: socket.socket) -> None:
        with contextlib.suppress(OSError), stream:
            while request := _frame(stream):
                told = answer(request)
                if told is None:
                    return
                stream.sendall(told)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                stream, _ = listener.accept()
                opened.append(stream)
                threading.Thread(target=serve, args=(stream,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        for stream in opened:
            stream.close()


def _frame(stream: socket.socket) -> bytes:
    size = int.from_bytes(_exactly(stream, 4))
    return _exactly(stream, size)


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = stream.recv(size - len(data))
        if not more:
            return b""
        data += more
    return data


class Relay:
    """A second address of a broker that is to listen at port `target`, with a hand on the wire.

    A broker that advertises it has all its connections pass through here.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target = free_port()
        self._held: threading.Event | None = None
        self.lose_next_answer = False
        """While set, the next bytes of an answer are dropped and all connections broken."""
        self._pairs: list[socket.socket] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        """Keep answers back until `pass_on`."""
        self._held = threading.Event()

    def pass_on(self) -> None:
        """Let the answers through, from now on and those that wait."""
        self.lose_next_answer = False
        if self._held is not None:
            self._held.set()
            self._held = None

    def cut(self) -> None:
        """Break every connection that is open."""
        pairs, self._pairs = self._pairs, []
        for one in pairs:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        """Stop."""
        self._closed = True
        self.pass_on()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed:
                inner, _ = self._listener.accept()
                try:
                    outer = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    inner.close()
                    continue
                self._pairs += [inner, outer]
                for source, sink, answers in ((inner, outer, False), (outer, inner, True)):
                    threading.Thread(
                        target=self._pump, args=(source, sink, answers), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if answers and (held := self._held) is not None:
                    held.wait()
                if answers and self.lose_next_answer:
                    self.lose_next_answer = False
                    self.cut()
                    return
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
