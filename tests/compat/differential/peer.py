"""One broker as a scene sees it: connections on which requests are sent and answers read."""

import socket
import struct
from typing import Any, Self

from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.framing import read_response_header, request_frame
from headwater.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from headwater.wire.schema import Struct

WAIT_S = 20.0
CLIENT_ID = "differential"
USERS = (
    "nobody", "describer", "reader", "topic-reader", "group-reader", "writer", "topic-writer",
    "id-writer", "creator", "configurer", "config-reader", "alterer", "deleter",
    "cluster-creator", "cluster-describer", "idempotent", "all-but", "wild",
)  # fmt: skip
"""Who can log in, each with its name for a password."""
CLOSED = "the connection was closed"
SILENT = "no answer"


class Line:
    """One connection. Answers come in the order of the requests."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        self._due: list[tuple[int, int]] = []
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def send(
        self,
        message: Struct,
        version: int,
        client_id: str | None = CLIENT_ID,
        *,
        answered: bool = True,
    ) -> None:
        """Send a request and do not wait; one that gets no answer is not waited for later."""
        key = message.__schema__.api_key
        assert key is not None
        self._sent += 1
        if answered:
            self._due.append((key, version))
        self.send_bytes(request_frame(key, version, self._sent, client_id, message))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are; that the peer has closed is seen by the next `receive`."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self, wait_s: float = WAIT_S) -> Struct | str:
        """The answer to the oldest request, CLOSED, or SILENT when none comes in time."""
        frame = self.receive_bytes(wait_s)
        if isinstance(frame, str):
            return frame
        key, version = self._due.pop(0)
        _, body = read_response_header(frame, key, version)
        answer, end = codec.decode(API[key].response, version, frame, body)
        assert end == len(frame), f"{len(frame) - end} bytes too many in an answer to {key}"
        return answer

    def receive_bytes(self, wait_s: float = WAIT_S) -> bytes | str:
        """The next frame, without its size."""
        self._socket.settimeout(wait_s)
        try:
            (size,) = struct.unpack(">i", self._exactly(4))
            return self._exactly(size)
        except TimeoutError:
            return SILENT
        except (ConnectionResetError, EOFError):
            return CLOSED

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


class Peer:
    """A running broker."""

    def __init__(self, name: str, bootstrap: str, logins: str = "") -> None:
        """`logins` is the address of a listener with SASL PLAIN and SCRAM."""
        self.name = name
        self.bootstrap = bootstrap
        self._logins = logins

    def line(self) -> Line:
        """A new connection."""
        return Line(self.bootstrap)

    def stranger(self) -> Line:
        """A new connection that must log in."""
        return Line(self._logins)

    def line_of(self, user: str) -> Line:
        """A new connection of a user."""
        line = self.stranger()
        line.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        line.receive()
        token = f"\0{user}\0{user}".encode()
        line.send(SaslAuthenticateRequest(auth_bytes=token), 2)
        answer: Any = line.receive()
        assert isinstance(answer, Struct), f"{self.name}: {answer} to a login"
        assert answer.error_code == 0, f"{self.name}: {answer}"  # type: ignore[attr-defined]
        return line

    def call(self, message: Struct, version: int) -> Any:
        """One request on a connection of its own, which must be answered."""
        with self.line() as line:
            line.send(message, version)
            answer = line.receive()
        assert isinstance(answer, Struct), f"{self.name}: {answer} after {message}"
        return answer
