"""TCP streams; the simulator has its own behind the same two calls."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from headwater.seams.accepting import Acceptor, TcpListener
from headwater.seams.tasks import LoopTasks, Tasks

_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""Routers drop idle connections: without keep-alive, the next request would get no answer."""

_LARGE_WRITE = 64 * 1024
"""From this size on a write takes longer than it takes to get the GIL back."""

Buffer = bytes | bytearray | memoryview
ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class ListenerHandle(Protocol):
    """An open listener."""

    @property
    def port(self) -> int:
        """The port it is bound to."""

    def close(self) -> None:
        """Accept no more connections."""


class Network(Protocol):
    """Streams to and from peers."""

    async def serve(self, acceptor: Acceptor, host: str, port: int, backlog: int) -> ListenerHandle:
        """Accept connections, each with its own protocol. Port 0 takes a free port."""

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> asyncio.BaseTransport:
        """Open a connection, with TLS if a context is given; OSError if nothing listens there."""


@contextmanager
def no_address_is_oserror(host: str, port: int) -> Iterator[None]:
    """Raise an OSError for what cannot be an address: a broker may advertise anything."""
    try:
        yield
    except OSError:
        raise  # certificates that do not fit are a ValueError, too
    except (ValueError, OverflowError) as problem:
        raise OSError(f"{host[:256]!r}, port {port}, is not an address: {problem}") from None


class TcpNetwork:
    """TCP over the running event loop."""

    def __init__(self, tasks: Tasks | None = None) -> None:
        self._tasks = tasks or LoopTasks()

    async def serve(self, acceptor: Acceptor, host: str, port: int, backlog: int) -> ListenerHandle:
        """Open a TCP listener."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
        except OSError:
            listener.close()
            raise
        return TcpListener(listener, acceptor, backlog, self._tasks)

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> asyncio.BaseTransport:
        """Open a TCP connection with keep-alive, which detects a silent peer within two minutes."""
        secure: dict[str, Any] = {}
        if tls is not None:
            secure = {"ssl": tls, "server_hostname": host, "ssl_shutdown_timeout": 2.0}
        loop = asyncio.get_running_loop()
        with no_address_is_oserror(host, port):
            transport, _ = await loop.create_connection(factory, host, port, **secure)
        stream = transport.get_extra_info("socket")
        if stream is not None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, seconds in _KEEPALIVE.items():
                if hasattr(socket, name):
                    stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
        return transport


def write_parts(transport: asyncio.Transport, parts: Sequence[Buffer]) -> None:
    """Write `parts` in order; many bytes at once without the GIL, which uvloop keeps.

    Threads that fill the next batches run meanwhile.
    """
    if sum(map(len, parts)) >= _LARGE_WRITE and not transport.get_write_buffer_size():
        parts = _write_at_once(transport, parts)
    if parts:
        transport.writelines(parts)


def _write_at_once(transport: asyncio.Transport, parts: Sequence[Buffer]) -> Sequence[Buffer]:
    """Write what the socket takes now, and return the rest; the transport tells of errors."""
    stream = transport.get_extra_info("socket")
    if stream is None or transport.get_extra_info("sslcontext") is not None:
        return parts
    try:
        sent = os.writev(stream.fileno(), parts)
    except OSError:
        return parts
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []
