"""Whether the first step of SCRAM tells known users from unknown ones by its time.

    python -m benchmarks.micro.scram_timing

Measures it inside one process, and as a stranger sees it: over loopback, on a connection for each try.
Prints the medians and the p-value of a Mann-Whitney test over 10,000 tries of each; a p-value below
0.01 in most runs on a quiet machine would be a leak.
"""

import gc
import math
import random
import secrets
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headwater.security.scram import Account, ScramServer
from headwater.security.scram_credentials import SCRAM_SHA_512, ScramCredential
from headwater.security.scram_file import FileCredential, lines_of
from headwater.security.scram_users import ScramUsers
from headwater.testing import Broker
from headwater.wire import codec
from headwater.wire.framing import read_response_header, request_frame
from headwater.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)

USERS = 1000
TRIES = 10_000
WARM_UP = 1000
_KNOWN, _UNKNOWN = "user", "else"
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: a close leaves no port that waits."""

FirstStep = Callable[[str], int]
"""Takes the first step as a user and returns its nanoseconds."""


class Times(NamedTuple):
    """The nanoseconds of each try."""

    known: list[int]
    unknown: list[int]

    def __str__(self) -> str:
        return (
            f"known users {statistics.median(self.known):.0f} ns, "
            f"unknown users {statistics.median(self.unknown):.0f} ns, "
            f"p={mann_whitney(self.known, self.unknown):.3f}"
        )


def main(tries: int = TRIES, *, subprocess: bool = True) -> None:
    """Measure both, and print."""
    credentials = [_credential(f"{_KNOWN}-{number:06d}") for number in range(USERS)]
    users = ScramUsers(secrets.token_bytes(32))
    for one in credentials:
        users.replace(one.user, {one.mechanism: one.credential.encode()})
    print("in one process:", measure(lambda name: _in_process(users, name), tries))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "users.properties")
        lines = lines_of(credentials)
        file.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
        settings = {
            "sasl.enabled.mechanisms": SCRAM_SHA_512.name,
            "sasl.scram.users.file": str(file),
        }
        with Broker(
            settings, listeners="SASL_PLAINTEXT://127.0.0.1:0", subprocess=subprocess
        ) as broker:
            _wait_for(broker.port, credentials[-1])
            print(
                "over loopback: ", measure(lambda name: _over_socket(broker.port, name)[0], tries)
            )


def measure(first_step: FirstStep, tries: int) -> Times:
    """Take that many first steps of each kind, in a random order."""
    times = Times([], [])
    order = [_KNOWN, _UNKNOWN] * tries
    random.shuffle(order)
    gc.disable()
    try:
        for kind in (*order[:WARM_UP], *order):
            took = first_step(f"{kind}-{random.randrange(USERS):06d}")
            (times.known if kind == _KNOWN else times.unknown).append(took)
    finally:
        gc.enable()
    return Times(times.known[-tries:], times.unknown[-tries:])


def _credential(user: str) -> FileCredential:
    parts = (secrets.token_bytes(size) for size in (26, 64, 64))
    return FileCredential(user, SCRAM_SHA_512.name, ScramCredential(*parts, 8192))


def _token(name: str) -> bytes:
    return f"n,,n={name},r=fyko+d2lbbFgONRv9qkx".encode()


def _in_process(users: ScramUsers, name: str) -> int:
    server = ScramServer(
        SCRAM_SHA_512, lambda one, _: Account(users.credential(SCRAM_SHA_512, one), one), bytes(24)
    )
    token = _token(name)
    began = time.perf_counter_ns()
    server.feed(token)
    return time.perf_counter_ns() - began


def _over_socket(port: int, name: str) -> tuple[int, bytes]:
    """Return the time of the first step, and the broker's token."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        _ask(peer, request_frame(17, 1, 1, "", SaslHandshakeRequest(mechanism=SCRAM_SHA_512.name)))
        body = SaslAuthenticateRequest(auth_bytes=_token(name))
        frame = request_frame(36, 1, 2, "", body)
        began = time.perf_counter_ns()
        answer = _ask(peer, frame)
        took = time.perf_counter_ns() - began
    _, start = read_response_header(answer, 36, 1)
    response, _ = codec.decode(SaslAuthenticateResponse, 1, answer, start)
    return took, bytes(response.auth_bytes)


def _ask(peer: socket.socket, frame: bytes) -> bytes:
    peer.sendall(frame)
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4]):
        more = peer.recv(4096)
        if not more:
            raise ConnectionError("the broker closed the connection")
        received += more
    return received[4:]


def _wait_for(port: int, last: FileCredential) -> None:
    """Wait until the broker knows the users of its file."""
    salt = last.credential.encode().partition(",")[0].replace("salt=", "s=").encode()
    deadline = time.monotonic() + 60
    while salt not in _over_socket(port, last.user)[1]:
        if time.monotonic() > deadline:
            raise TimeoutError("the broker did not add its users")


def mann_whitney(one: list[int], other: list[int]) -> float:
    """Return the two-sided p-value that both are of one distribution, by the normal approximation."""
    values = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    ranks, start = 0.0, 0
    while start < len(values):
        end = start
        while end < len(values) and values[end][0] == values[start][0]:
            end += 1
        mine = sum(1 for _, whose in values[start:end] if not whose)
        ranks += mine * (start + end + 1) / 2
        start = end
    size, others = len(one), len(other)
    mean = size * others / 2
    deviation = math.sqrt(size * others * (size + others + 1) / 12)
    return math.erfc(abs(ranks - size * (size + 1) / 2 - mean) / deviation / math.sqrt(2))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
