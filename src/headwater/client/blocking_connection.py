"""A connection to one broker without an event loop: the caller's own thread sends and receives.

For readers that send one request at a time and want little overhead between the socket and their
data. An answer is received into memory that the next answer reuses, so the caller must be done with
it by then. Idle connections are kept for the next reader of this process; a child process starts
without any.
"""

import os
import socket
import ssl
import threading
from struct import Struct as Layout
from typing import TYPE_CHECKING, TypeVar

from headwater import __version__
from headwater.client.connecting import tls_failure
from headwater.client.errors import NetworkError, TimedOutError, failure
from headwater.config.client_sasl import Credentials
from headwater.config.tls import TlsSettings
from headwater.errors import E
from headwater.seams.clock import SystemClock
from headwater.seams.network import no_address_is_oserror
from headwater.transport.tls import cached_client_context
from headwater.transport.wrong_protocol import is_alert, tls_needed
from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.framing import MAX_FRAME, read_response_header, request
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.primitives import WireError
from headwater.wire.schema import Struct
from headwater.wire.versions import Versions

if TYPE_CHECKING:
    from headwater.client.login import Login

Answer = TypeVar("Answer", bound=Struct)
Address = tuple[str, int, str, TlsSettings | None, Credentials | None]
"""Host, port, client id, TLS and user of a connection."""

_clock = SystemClock()
_FIRST_MEMORY = 64 * 1024
_SIZE = Layout(">i")
_LAST_ID = 2**31 - 1
_API_VERSIONS = 18
_NEWEST_API_VERSIONS = 3


class BlockingConnection:
    """One connection, for one thread at a time. After OSError or NetworkError it is unusable."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float,
        tls: TlsSettings | None = None,
        login: "Login | None" = None,
    ) -> None:
        self.address = _address(host, port, client_id, tls, login)
        self.waiting = 0
        """Answers that have not been received yet."""
        self._process = os.getpid()
        self._name = f"{host}:{port}"
        self._sent = 0
        self._memory = bytearray(_FIRST_MEMORY)
        self._served: dict[int, Versions] = {}
        self._login = login
        self._timeout_s = timeout_s
        self._renew_ms: int | None = None
        """When to authenticate again."""
        try:
            self._socket = _connected(host, port, timeout_s, tls)
        except TimeoutError:
            raise self._timed_out("connecting", timeout_s) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._learn_versions(timeout_s)
            self._log_in()
        except BaseException:
            self.close()
            raise

    @property
    def inherited(self) -> bool:
        """Whether a parent process opened it, whose answers may arrive here."""
        return self._process != os.getpid()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def version_for(self, message: Struct, newest: int | None = None) -> int:
        """Return the newest version of a request that both sides know."""
        key = message.__schema__.api_key or 0
        ours, theirs = message.__schema__.versions, self._served.get(key, Versions(1, 0))
        version = min(theirs.highest, ours.highest if newest is None else newest)
        if version < max(theirs.lowest, ours.lowest):
            raise failure(
                E.UNSUPPORTED_VERSION,
                f"{self._name} supports no known version of {API[key].name}",
            )
        return version

    def call(self, message: Struct, answer: type[Answer], timeout_s: float) -> Answer:
        """Send a request and wait for its answer."""
        version = self.version_for(message)
        self.send(message, version)
        return self.receive(answer, version, timeout_s)

    def send(self, message: Struct, version: int) -> None:
        """Send a request; at most two may be unanswered at a time."""
        due_ms = self._renew_ms
        if due_ms is not None and not self.waiting and _clock.monotonic_ms() >= due_ms:
            self._log_in()
        self._send(message, version)

    def _send(self, message: Struct, version: int) -> None:
        self._sent = (self._sent + 1) & _LAST_ID
        self._socket.sendall(b"".join(request(version, self._sent, self.address[2], message)))
        self.waiting += 1

    def receive(self, answer: type[Answer], version: int, timeout_s: float) -> Answer:
        """Wait for the answer to the oldest request; the next answer reuses its memory."""
        key = answer.__schema__.api_key or 0
        frame = self._frame(API[key].name, timeout_s)
        self.waiting -= 1
        if key == _API_VERSIONS and frame[4:6] == E.UNSUPPORTED_VERSION.to_bytes(2):
            version = 0  # a broker that does not know the version answers in the oldest one
        try:
            number, body = read_response_header(frame, key, version)
            decoded, _ = codec.decode(answer, version, frame, body)
        except WireError as malformed:
            raise self._senseless(f"an answer that cannot be read ({malformed})") from malformed
        if number != self._sent:
            raise self._senseless("an answer to another request")
        return decoded

    def _frame(self, what: str, timeout_s: float) -> memoryview:
        """Return the bytes of an answer, without their size."""
        until_ms = _clock.monotonic_ms() + int(timeout_s * 1000)
        view, filled, whole = memoryview(self._memory), 0, _SIZE.size
        try:
            while filled < whole or whole == _SIZE.size:
                self._socket.settimeout(max(until_ms - _clock.monotonic_ms(), 1) / 1000)
                # No other answer is due: all received bytes are part of this one.
                count = self._socket.recv_into(view[filled:])
                if not count:
                    raise NetworkError(f"{self._name} closed the connection; see the broker's log")
                filled += count
                if whole == _SIZE.size and filled >= whole:
                    whole += self._checked(_SIZE.unpack_from(view)[0])
                    view = self._room(view, filled, whole)
        except TimeoutError:
            raise self._timed_out(what, timeout_s) from None
        return view[_SIZE.size : whole]

    def _checked(self, size: int) -> int:
        if not _SIZE.size <= size <= MAX_FRAME:
            if not self._served and is_alert(_SIZE.pack(size)):
                raise tls_needed(self._name)
            raise self._senseless(f"a frame of {size} bytes")
        return size

    def _room(self, view: memoryview, filled: int, whole: int) -> memoryview:
        """Return memory for a whole answer: the system maps its pages only as bytes arrive."""
        if filled > whole:
            raise self._senseless("more than it was asked for")
        if whole > len(view):
            grown = bytearray(whole + whole // 8)
            grown[:filled] = view[:filled]
            self._memory = grown
            return memoryview(grown)
        return view

    def _learn_versions(self, timeout_s: float) -> None:
        message = ApiVersionsRequest(
            client_software_name="headwater", client_software_version=__version__
        )
        self._send(message, _NEWEST_API_VERSIONS)
        told = self.receive(ApiVersionsResponse, _NEWEST_API_VERSIONS, timeout_s)
        if told.error_code == E.UNSUPPORTED_VERSION:
            self._send(message, 0)
            told = self.receive(ApiVersionsResponse, 0, timeout_s)
        if told.error_code == E.INVALID_CONFIG:
            raise tls_needed(self._name)
        if told.error_code:
            raise failure(told.error_code)
        self._served = {
            row.api_key: Versions(row.min_version, row.max_version) for row in told.api_keys
        }

    def _log_in(self) -> None:
        """Authenticate if the settings require it, now or again before the session ends."""
        login = self._login
        if login is None:
            return
        lifetime_ms = login.log_in(self._name, self._ask)
        if lifetime_ms > 0:
            self._renew_ms = _clock.monotonic_ms() + login.renewal_ms(lifetime_ms)

    def _ask(self, message: Struct, answer: type[Answer]) -> Answer:
        version = self.version_for(message)
        self._send(message, version)
        return self.receive(answer, version, self._timeout_s)

    def _senseless(self, what: str) -> NetworkError:
        return NetworkError(f"{self._name} sent {what}; is it a Kafka broker?")

    def _timed_out(self, what: str, timeout_s: float) -> TimedOutError:
        return TimedOutError(f"{self._name} did not answer within {timeout_s:g} s ({what})")


def _connected(host: str, port: int, timeout_s: float, tls: TlsSettings | None) -> socket.socket:
    with no_address_is_oserror(host, port):
        plain = socket.create_connection((host, port), timeout_s)
    context = cached_client_context(tls)
    if context is None:
        return plain
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLError as problem:
        plain.close()
        raise tls_failure(f"{host}:{port}", problem) from problem
    except BaseException:
        plain.close()
        raise


_lock = threading.Lock()
_idle: dict[Address, list[BlockingConnection]] = {}


def acquire(
    host: str,
    port: int,
    client_id: str,
    timeout_s: float,
    tls: TlsSettings | None = None,
    login: "Login | None" = None,
) -> BlockingConnection:
    """Return an idle connection of the same user with the same TLS, or a new one."""
    with _lock:
        connections = _idle.get(_address(host, port, client_id, tls, login))
        if connections:
            return connections.pop()
    return BlockingConnection(host, port, client_id, timeout_s, tls, login)


def _address(
    host: str, port: int, client_id: str, tls: TlsSettings | None, login: "Login | None"
) -> Address:
    return host, port, client_id, tls, login.credentials if login else None


def release(connection: BlockingConnection) -> None:
    """Keep the connection for others; close it if it has unanswered requests or is a parent's."""
    if connection.waiting or connection.inherited:
        connection.close()
        return
    with _lock:
        _idle.setdefault(connection.address, []).append(connection)


def discard(connection: BlockingConnection) -> None:
    """Close a broken connection, and idle ones to the same broker, which is probably gone."""
    connection.close()
    with _lock:
        others = _idle.pop(connection.address, [])
    for other in others:
        other.close()


def _after_fork() -> None:
    """Close the connections of the parent: two readers of one stream would each get parts of it."""
    global _lock, _idle
    _lock, left, _idle = threading.Lock(), _idle, {}
    for connections in left.values():
        for connection in connections:
            connection.close()  # closes only the child's descriptor


os.register_at_fork(after_in_child=_after_fork)
