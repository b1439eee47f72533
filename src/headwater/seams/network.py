"""TCP streams; the simulator has its own behind the same two calls."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""Routers drop idle connections: without keep-alive, the next request would get no answer."""

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

    async def serve(
        self, factory: ProtocolFactory, host: str, port: int, backlog: int
    ) -> ListenerHandle:
        """Accept connections, each with its own protocol. Port 0 takes a free port."""

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> asyncio.BaseTransport:
        """Open a connection; OSError if nothing listens there."""


class _Listening:
    def __init__(self, server: asyncio.AbstractServer, port: int) -> None:
        self._server = server
        self.port = port

    def close(self) -> None:
        self._server.close()


class TcpNetwork:
    """TCP over the running event loop."""

    async def serve(
        self, factory: ProtocolFactory, host: str, port: int, backlog: int
    ) -> ListenerHandle:
        """Open a TCP listener."""
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
        except OSError:
            listener.close()
            raise
        bound_port: int = listener.getsockname()[1]
        server = await loop.create_server(factory, sock=listener, backlog=backlog)
        return _Listening(server, bound_port)

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> asyncio.BaseTransport:
        """Open a TCP connection with keep-alive, which detects a silent peer within two minutes."""
        transport, _ = await asyncio.get_running_loop().create_connection(factory, host, port)
        stream = transport.get_extra_info("socket")
        if stream is not None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, seconds in _KEEPALIVE.items():
                if hasattr(socket, name):
                    stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
        return transport
