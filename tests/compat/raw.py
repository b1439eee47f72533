"""The protocol by hand, over a plain socket: bytes in, bytes out, nothing of Headwater's codec.

For what no client would send, and to look at batches as they are stored.
"""

import socket
import struct
from typing import NamedTuple, Self

PRODUCE, FETCH, METADATA, FIND_COORDINATOR = 0, 1, 3, 10
API_VERSIONS, INIT_PRODUCER_ID = 18, 22
WAIT_S = 20
_BATCH = struct.Struct(">qiibIhiqqqhii")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Batch(NamedTuple):
    """What the header of a stored batch says."""

    base_offset: int
    codec: str
    producer_id: int
    base_sequence: int
    count: int


def string(text: str | None) -> bytes:
    """A nullable string with a 16-bit length."""
    if text is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(text.encode())) + text.encode()


def frame(api: int, version: int, body: bytes, *, correlation: int = 7, tags: bytes = b"") -> bytes:
    """A request with its length; `tags` is b"\\0" for the header of a flexible version."""
    header = struct.pack(">hhi", api, version, correlation) + string("raw") + tags
    return struct.pack(">i", len(header) + len(body)) + header + body


class Raw:
    """One connection."""

    def __init__(self, bootstrap: str):
        self.bootstrap = bootstrap
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Sends bytes as they are; a peer that closed already is seen by `answer`."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def answer(self) -> bytes | None:
        """The next frame from its correlation id on, or None when the broker closed."""
        try:
            size = self._exactly(4)
            return None if size is None else self._exactly(struct.unpack(">i", size)[0])
        except ConnectionResetError:
            return None

    def _exactly(self, size: int) -> bytes | None:
        parts = b""
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                return None
            parts += part
        return parts

    def ask(self, api: int, version: int, body: bytes, *, tags: bytes = b"") -> bytes | None:
        """One request and its answer, without the correlation id."""
        self.send(frame(api, version, body, tags=tags))
        answer = self.answer()
        return None if answer is None else answer[4:]


def fetch_body(topic: str, offset: int, *, max_wait_ms: int = 0) -> bytes:
    """Fetch 4 of partition 0."""
    head = struct.pack(">iiiib", -1, max_wait_ms, 1, 32 << 20, 0)
    wanted = struct.pack(">iiqi", 1, 0, offset, 32 << 20)
    return head + struct.pack(">i", 1) + string(topic) + wanted


def fetch(bootstrap: str, topic: str, offset: int = 0) -> tuple[int, bytes]:
    """The error code and the record bytes of a Fetch 4."""
    with Raw(bootstrap) as raw:
        answer = raw.ask(FETCH, 4, fetch_body(topic, offset))
    assert answer is not None, "the broker closed the connection on a Fetch"
    at = 4 + 4 + 2 + len(topic.encode()) + 4
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
    at += 26 + max(aborted, 0) * 16
    (size,) = struct.unpack_from(">i", answer, at)
    return error, answer[at + 4 : at + 4 + max(size, 0)]


def stored_batches(bootstrap: str, topic: str) -> list[Batch]:
    """Headers of all batches of partition 0, asked for from the first offset until the end."""
    found: list[Batch] = []
    offset = 0
    while True:
        error, data = fetch(bootstrap, topic, offset)
        assert error == 0, f"fetch answered error {error}"
        new = list(batches(data))
        if not new:
            return found
        found += new
        offset = new[-1].base_offset + new[-1].count


def batches(data: bytes) -> "list[Batch]":
    """The headers of the whole batches in `data`."""
    out, at = [], 0
    while at + _BATCH.size <= len(data):
        base, length, *rest = _BATCH.unpack_from(data, at)
        if at + 12 + length > len(data):
            break
        out.append(Batch(base, _CODECS[rest[3] & 7], rest[7], rest[9], rest[10]))
        at += 12 + length
    return out
