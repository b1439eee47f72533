"""Requests that are no requests, and the order of answers."""

import struct
import time

from headwater.wire.messages.cluster import ApiVersionsRequest
from headwater.wire.messages.metadata import MetadataRequest
from tests.compat.differential.batch import batch
from tests.compat.differential.scene import Scene, scene
from tests.compat.differential.scenes.fetching import fetch
from tests.compat.differential.scenes.producing import NAMED, produce


def _frame(key: int, version: int, body: bytes, client: bytes = b"\0\1x") -> bytes:
    head = struct.pack(">hhi", key, version, 7) + client
    return struct.pack(">i", len(head) + len(body)) + head + body


@scene
def malformed_requests(s: Scene) -> None:
    name = b"\0\1t"
    for label, data in {
        "size 0": bytes(4),
        "size -1": b"\xff" * 4,
        "largest size": b"\x7f" + b"\xff" * 3,
        "three bytes": struct.pack(">i", 3) + b"abc",
        "HTTP": b"GET / HTTP/1.1\r\n\r\n",
        "unknown API": _frame(999, 0, b""),
        "negative API": _frame(-1, 0, b""),
        "version not served": _frame(3, 99, b""),
        "negative version": _frame(3, -1, b""),
        "API of the old controller": _frame(4, 1, bytes(20)),
        "fetch 3": _frame(1, 3, bytes(30)),
        "produce 2": _frame(0, 2, bytes(30)),
        "client id cut": struct.pack(">i", 12) + struct.pack(">hhih", 3, 1, 7, 90) + b"ab",
        "client id negative": _frame(3, 1, b"\0\0\0\0", b"\xff\xfe"),
        "client id not UTF-8": _frame(3, 1, b"\0\0\0\0", b"\0\1\xff"),
        "no client id": _frame(3, 1, b"\0\0\0\0", b"\xff\xff"),
        "body missing": _frame(3, 1, b""),
        "body cut": _frame(3, 1, b"\0\0\0\1" + b"\0\5ab"),
        "count too large": _frame(3, 1, struct.pack(">i", 2**31 - 1)),
        "negative string": _frame(3, 1, b"\0\0\0\1" + b"\xff\xfe"),
        "null where none may be": _frame(3, 1, b"\0\0\0\1" + b"\xff\xff"),
        "bytes behind the body": _frame(3, 1, b"\0\0\0\1" + name + b"more"),
        "name not UTF-8": _frame(3, 1, b"\0\0\0\1" + b"\0\1\xff"),
        "unknown tag": _frame(18, 3, b"\2x\0021\1\x09\1z", b"\0\1x\0"),
        "unknown tag in the header": _frame(18, 3, b"\2x\0021\0", b"\0\1x\1\x09\1z"),
        "tag that is cut": _frame(18, 3, b"\2x\0021\1\x09\7z", b"\0\1x\0"),
        "endless varint": _frame(3, 9, b"\xff" * 12, b"\0\1x\0"),
    }.items():
        with s.line() as line:
            line.send_bytes(data)
            answer = line.receive_bytes(0.5 if label == "largest size" else 5)
            s.note(label, answer if isinstance(answer, str) else "an answer")


@scene
def api_versions_not_known(s: Scene) -> None:
    for version in (5, 99, 32767):
        with s.line() as line:
            line.send_bytes(_frame(18, version, b"\2x\2x\0", b"\0\1x\0"))
            answer = line.receive_bytes()
            s.note(f"version {version}", answer)


@scene
def answers_come_in_order(s: Scene) -> None:
    s.topic("ordered")
    with s.line() as line:
        start = time.monotonic()
        line.send(fetch(s, "ordered", max_wait_ms=500, min_bytes=1), 12)
        line.send(ApiVersionsRequest(), 0)
        s.hear("the fetch that waits comes first", line)
        s.note("it waited", time.monotonic() - start > 0.45)
        s.note("then the other", type(line.receive()).__name__)
    with s.line() as line:
        for _ in range(5):
            line.send(produce("ordered", batch()), NAMED)
            line.send(MetadataRequest(topics=[]), 12)
        for number in range(5):
            s.hear(f"batch {number}", line)
            s.note(f"metadata {number}", type(line.receive()).__name__)
    with s.line() as line:
        line.send(produce("ordered", batch()), NAMED)
        line.send_bytes(_frame(999, 0, b""))
        s.hear("before the bad one", line)
        s.note("after it", line.receive_bytes())
