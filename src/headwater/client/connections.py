"""Open connections to the brokers of a cluster: shared, opened when needed, never in a hurry."""

import asyncio

from headwater.client.backoff import Backoff
from headwater.client.errors import NetworkError
from headwater.client.topology import Node
from headwater.config.client import ClientSettings
from headwater.seams.clock import Clock
from headwater.seams.network import Network
from headwater.seams.randomness import Randomness
from headwater.transport.client_connection import ClientConnection

_WAITING = -1_000_000
"""Below it are the ids of second connections."""


_LEAST_IDLE_MS = 1000
"""A connection just opened is not idle, whatever connections.max.idle.ms says."""


class Connections:
    """The connections of one client."""

    def __init__(
        self,
        settings: ClientSettings,
        network: Network,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self.settings = settings
        self.nodes: dict[int, Node] = {}
        self._network = network
        self._clock = clock
        self._randomness = randomness
        self._connections: dict[int, ClientConnection] = {}
        self._opening: dict[int, asyncio.Task[ClientConnection]] = {}
        self._reconnect: dict[int, Backoff] = {}
        self._closed = False

    @property
    def now_ms(self) -> int:
        """The clock for deadlines."""
        return self._clock.monotonic_ms()

    def backoff(self) -> Backoff:
        """Rests between repetitions, as retry.backoff.ms and retry.backoff.max.ms say."""
        return Backoff(
            self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms, self._randomness
        )

    async def connection(self, node: Node) -> ClientConnection:
        """An open connection to `node`; a failed attempt is followed by a rest.

        NetworkError where nobody listens; the rest grows with each failure.
        """
        open_one = self.connected(node)
        if open_one is not None:
            return open_one
        if self._closed:
            raise NetworkError("the client is closed")
        opening = self._opening.get(node.id)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._open(node))
            self._opening[node.id] = opening
            opening.add_done_callback(lambda task: self._opened(node.id, task))
        return await asyncio.shield(opening)

    async def waiting_connection(self, node: Node) -> ClientConnection:
        """A second connection to `node`, for requests that brokers hold for long.

        Brokers answer a connection in order: a commit or a goodbye behind a join that waits for the
        other members would wait as well.
        """
        return await self.connection(node._replace(id=_WAITING - node.id))

    def connected(self, node: Node) -> ClientConnection | None:
        """The open connection to `node`, if there is one at this moment."""
        connection = self._connections.get(node.id)
        if connection is None or not connection.is_open:
            return None
        limit_ms = self.settings.connections_max_idle_ms
        idle_s = connection.idle_for_s(asyncio.get_running_loop().time())
        if limit_ms >= 0 and 1000 * idle_s >= max(limit_ms, _LEAST_IDLE_MS):
            connection.close()
            return None
        return connection

    async def _open(self, node: Node) -> ClientConnection:
        settings = self.settings
        backoff = self._reconnect.get(node.id)
        if backoff is not None:
            await asyncio.sleep(backoff.next_ms() / 1000)
        else:
            backoff = self._reconnect[node.id] = Backoff(
                settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._randomness
            )
        try:
            connection = await ClientConnection.open(
                self._network,
                node.host,
                node.port,
                client_id=settings.client_id,
                timeout_s=settings.request_timeout_ms / 1000,
                setup_timeout_s=settings.socket_connection_setup_timeout_ms / 1000,
            )
        except OSError as refused:
            raise NetworkError(
                f"{node.host}:{node.port} cannot be reached ({refused}); is the broker running?"
            ) from refused
        del self._reconnect[node.id]
        return connection

    def _opened(self, node_id: int, task: "asyncio.Task[ClientConnection]") -> None:
        self._opening.pop(node_id, None)
        if task.cancelled() or task.exception() is not None:
            return
        if self._closed:
            task.result().close()
        else:
            self._connections[node_id] = task.result()

    def drop_moved_connections(self) -> None:
        """Close those to brokers that have another address now."""
        for node_id, connection in list(self._connections.items()):
            node = self.nodes.get(node_id)
            if node_id >= 0 and node and connection.address != f"{node.host}:{node.port}":
                connection.close()
                del self._connections[node_id]
