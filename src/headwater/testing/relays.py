"""Relays between the nodes of a test cluster: links that can be cut and healed.

Every connection between two brokers, and every connection of a broker to the store, goes through a
relay in this process. A cut link keeps its connections open and delivers nothing, in one direction
or in both, as a network does that drops packets; a healed link delivers what was held back.

A broker's listener has one relay for all other brokers, which need not know about relays. The client
id of the first request (`broker-2-...`) identifies the sender; with TLS, which hides it, the process
that holds the connection does.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

import uvloop

from headwater.testing.socket_owner import owner_of

Node: TypeAlias = int | str
"""A broker by its id, or STORE."""
STORE = "zookeeper"
T = TypeVar("T")

CALL_TIMEOUT_S = 30
CHUNK = 256 * 1024
_CLIENT_ID_AT = 4 + 2 + 2 + 4
TLS = 0x16
"""The first byte of a TLS handshake; a frame that begins with it would have 369 MB."""
_BROKER = re.compile(rb"broker-(\d+)")


class Relays:
    """All relays of one cluster, on a thread with its own loop."""

    def __init__(self, pids: Callable[[], Mapping[int, int]]) -> None:
        """`pids` returns the process of each broker that runs."""
        self._pids = pids
        self._loop = uvloop.new_event_loop()
        self._open: dict[tuple[Node, Node], asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="headwater-relays", daemon=True
        )
        self._thread.start()

    def relay_to_broker(self, broker: int, port: int) -> int:
        """Relay connections of other brokers to this one's `port`; return where to connect."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            first = await _first_bytes(reader)
            if first[0] == TLS:
                near, far = (writer.get_extra_info(end)[1] for end in ("sockname", "peername"))
                sender = owner_of(far, near, self._pids())
            else:
                sender = _broker_of(first)
            source = "client" if sender is None else sender
            await self._relay(source, broker, first, reader, writer, port)

        return self.run(self._serve(accept))

    def relay_to_store(self, broker: int, host: str, port: int) -> int:
        """Relay one broker's connections to the store; return where to connect."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._relay(broker, STORE, b"", reader, writer, port, host)

        return self.run(self._serve(accept))

    def cut(self, source: Node, target: Node) -> None:
        """Deliver nothing from `source` to `target` until `heal`."""
        self._loop.call_soon_threadsafe(lambda: self._link(source, target).clear())

    def heal(self) -> None:
        """Deliver everything again, what was held back first."""

        def open_all() -> None:
            for link in self._open.values():
                link.set()

        self._loop.call_soon_threadsafe(open_all)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the relays and wait for its result."""
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(CALL_TIMEOUT_S)

    def close(self) -> None:
        """Close every connection and end the thread."""
        if not self._thread.is_alive():
            return
        self.run(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()

    # -- on the loop

    def _link(self, source: Node, target: Node) -> asyncio.Event:
        link = self._open.get((source, target))
        if link is None:
            link = self._open[source, target] = asyncio.Event()
            link.set()
        return link

    async def _serve(
        self,
        accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
    ) -> int:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections.add(task)
            try:
                await accept(reader, writer)
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # an end closed its connection, or the cluster is closed
            finally:
                self._connections.discard(task)
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=CHUNK)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _relay(
        self,
        source: Node,
        target: Node,
        first: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        port: int,
        host: str = "127.0.0.1",
    ) -> None:
        forward, back = self._link(source, target), self._link(target, source)
        await forward.wait()
        far_reader, far_writer = await asyncio.open_connection(  # noqa: TID251 - a relay serves no simulation
            host, port, limit=CHUNK
        )
        try:
            far_writer.write(first)
            ways = [
                asyncio.ensure_future(_pump(reader, far_writer, forward)),
                asyncio.ensure_future(_pump(far_reader, writer, back)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            far_writer.close()

    async def _shut(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: asyncio.Event
) -> None:
    """Deliver bytes, and the end of the stream, while the link is open."""
    while True:
        chunk = await reader.read(CHUNK)
        await link.wait()
        if not chunk:
            return
        writer.write(chunk)
        await writer.drain()


async def _first_bytes(reader: asyncio.StreamReader) -> bytes:
    """Read everything up to the end of the client id in the first request, or the start of TLS."""
    head = await reader.readexactly(_CLIENT_ID_AT + 2)
    if head[0] == TLS:
        return head
    length = int.from_bytes(head[_CLIENT_ID_AT:], "big", signed=True)
    return head + await reader.readexactly(max(0, length))


def _broker_of(first: bytes) -> int | None:
    found = _BROKER.search(first, _CLIENT_ID_AT)
    return int(found[1]) if found else None
