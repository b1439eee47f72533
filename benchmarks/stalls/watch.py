"""What a broker's other clients and its memory go through meanwhile."""

import multiprocessing
import socket
import struct
import time
from types import TracebackType
from typing import Any, NamedTuple, Self

from headwater.wire import framing
from headwater.wire.messages.cluster import ApiVersionsRequest

PING_GAP_S = 0.001
_FORK = multiprocessing.get_context("fork")


class Seen(NamedTuple):
    """One case."""

    stall_ms: float
    peak_bytes: int


class Connection:
    """A socket that speaks frames."""

    def __init__(self, port: int, timeout_s: float = 60) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, frame: bytes) -> bytes | None:
        """Send a request; its answer, or None where the broker hung up instead."""
        try:
            self.socket.sendall(frame)
            return self.receive()
        except ConnectionError:
            return None

    def receive(self) -> bytes:
        """The next answer."""
        return self._read(struct.unpack(">i", self._read(4))[0])

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(min(1 << 20, size - len(data)))
            if not piece:
                raise ConnectionError("the broker hung up")
            data += piece
        return bytes(data)


def _ping(port: int, stop: Any, ready: Any, out: Any) -> None:
    ask = ApiVersionsRequest(client_software_name="ping", client_software_version="1")
    frame = b"".join(framing.request(3, 1, "ping", ask))
    longest = 0.0
    with Connection(port) as connection:
        while not stop.is_set():
            began = time.perf_counter()
            connection.ask(frame)
            longest = max(longest, time.perf_counter() - began)
            ready.set()
            time.sleep(PING_GAP_S)
    out.put(longest)


class Watch:
    """Pings the broker from another process and notes the peak of its memory."""

    def __init__(self, port: int, pid: int) -> None:
        self._pid = pid
        self._stop, self._ready, self._out = _FORK.Event(), _FORK.Event(), _FORK.Queue()
        self._process = _FORK.Process(
            target=_ping, args=(port, self._stop, self._ready, self._out), daemon=True
        )
        self.seen = Seen(0.0, 0)

    def __enter__(self) -> Self:
        self._process.start()
        self._ready.wait()
        with open(f"/proc/{self._pid}/clear_refs", "w") as peaks:
            peaks.write("5")
        self._before = memory(self._pid, "VmRSS")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        peak = memory(self._pid, "VmHWM") - self._before
        self._stop.set()
        longest = self._out.get(timeout=600)
        self._process.join()
        self.seen = Seen(1000 * longest, max(0, peak))


def memory(pid: int, row: str) -> int:
    """Bytes of a process: VmRSS now, VmHWM at most since the last reset."""
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith(row + ":"):
                return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} has no {row}")
