"""Shared connections to the brokers of a cluster, opened when needed, with backoff."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from headwater.client.backoff import Backoff
from headwater.client.connecting import login_of, open_connection
from headwater.client.errors import NetworkError
from headwater.client.refusals import refused
from headwater.client.topology import Node, bootstrap_nodes
from headwater.client.wait_warnings import Waiting
from headwater.config.client import ClientSettings
from headwater.errors import KafkaError
from headwater.seams.clock import Clock
from headwater.seams.network import Network
from headwater.seams.randomness import Randomness
from headwater.transport.client_connection import ClientConnection
from headwater.transport.tls import cached_client_context
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse

_FIRST_WITH_LIST = 4
"""The version of FindCoordinator that takes several groups."""
TRANSACTION = 1
"""The key type of transactional ids in FindCoordinator."""
_WAITING = -1_000_000
"""The ids of second connections are below this number."""


_UNREACHABLE_BACKOFFS = 3
"""For how many of the longest rests a failed attempt to connect says that a broker is away."""
_LEAST_IDLE_MS = 1000
"""A connection younger than this is not idle, whatever connections.max.idle.ms says."""


class Connections:
    """The connections of one client."""

    def __init__(
        self,
        settings: ClientSettings,
        network: Network,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        cached_client_context(settings.tls)  # raises now if a store cannot be read
        self.settings = settings
        self.nodes: dict[int, Node] = {}
        self._network = network
        self._clock = clock
        self._randomness = randomness
        self._connections: dict[int, ClientConnection] = {}
        self._opening: dict[int, asyncio.Task[ClientConnection]] = {}
        self._reconnect: dict[int, Backoff] = {}
        self._failed_ms: dict[int, int] = {}
        """By broker: when the last attempt to connect failed, where none has succeeded since."""
        self._closed = False
        self._login = login_of(settings, randomness)
        self._features: dict[str, int] = {}
        self._features_epoch = -1

    @property
    def now_ms(self) -> int:
        """Return the time of the clock for deadlines."""
        return self._clock.monotonic_ms()

    def backoff(self) -> Backoff:
        """Return delays between retries, by retry.backoff.ms and retry.backoff.max.ms."""
        return Backoff(
            self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms, self._randomness
        )

    async def connection(self, node: Node) -> ClientConnection:
        """Return an open connection to `node`; wait between a failed attempt and the next one.

        Raises NetworkError if the broker cannot be reached.
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
        try:
            return await asyncio.shield(opening)
        finally:
            del opening  # with its failure, whose traceback holds this frame, it would be a cycle

    async def waiting_connection(self, node: Node) -> ClientConnection:
        """Return a second connection to `node`, for requests that brokers hold for long.

        Brokers answer a connection in order: a commit or LeaveGroup behind a JoinGroup that waits
        for other members would wait as well.
        """
        return await self.connection(node._replace(id=_WAITING - node.id))

    def connected(self, node: Node) -> ClientConnection | None:
        """Return the open connection to `node`, if there is one."""
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
            rested_ms = self.now_ms - self._failed_ms.get(node.id, self.now_ms)
            await asyncio.sleep(max(backoff.next_ms() - rested_ms, 0) / 1000)
        else:
            backoff = self._reconnect[node.id] = Backoff(
                settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._randomness
            )
        try:
            connection = await self.open_stream(node)
        except (OSError, KafkaError) as refused:
            self._failed_ms[node.id] = self.now_ms
            if isinstance(refused, KafkaError):
                raise
            raise NetworkError(
                f"{node.host}:{node.port} cannot be reached ({str(refused) or 'connection lost'}); is the "
                "broker running?"
            ) from refused
        if connection.features_epoch >= self._features_epoch:
            self._features = connection.features
            self._features_epoch = connection.features_epoch
        del self._reconnect[node.id]
        self._failed_ms.pop(node.id, None)
        return connection

    async def open_stream(self, node: Node) -> ClientConnection:
        """Open a connection to `node` that belongs to the caller, authenticated if necessary."""
        return await open_connection(
            self.settings, self._network, node.host, node.port, self._login
        )

    def is_unreachable(self, node_id: int) -> bool:
        """Whether a connection to the broker failed a moment ago."""
        failed_ms = self._failed_ms.get(node_id)
        limit_ms = _UNREACHABLE_BACKOFFS * self.settings.reconnect_backoff_max_ms
        return failed_ms is not None and self.now_ms - failed_ms <= limit_ms

    def feature_level(self, name: str) -> int:
        """Return the level of a finalized feature, as far as the last connections tell; 0 if off."""
        return self._features.get(name, 0)

    def candidates(self) -> list[Node]:
        """Brokers to ask: open connections first, bootstrap addresses when all else failed."""
        known = list(self.nodes.values())
        turn = self._randomness.below(len(known)) if known else 0
        known = sorted(known[turn:] + known[:turn], key=self._cost)
        if self.settings.metadata_recovery_strategy == "rebootstrap" or not known:
            known += bootstrap_nodes(self.settings.bootstrap_servers)
        return known

    def _cost(self, node: Node) -> int:
        """For the choice among brokers: those that answer come before those that did not."""
        if node.id in self._connections and self._connections[node.id].is_open:
            return 0
        return 2 if node.id in self._failed_ms else 1

    def _opened(self, node_id: int, task: "asyncio.Task[ClientConnection]") -> None:
        self._opening.pop(node_id, None)
        if task.cancelled() or task.exception() is not None:
            return
        if self._closed:
            task.result().close()
        else:
            self._connections[node_id] = task.result()

    def drop_moved_connections(self) -> None:
        """Close connections to brokers whose address has changed."""
        for node_id, connection in list(self._connections.items()):
            node = self.nodes.get(node_id)
            if node_id >= 0 and node and connection.address != f"{node.host}:{node.port}":
                connection.close()
                del self._connections[node_id]


class KnownBrokers(Protocol):
    """The part of the cluster that a coordinator lookup needs."""

    settings: ClientSettings
    nodes: dict[int, Node]

    def backoff(self) -> Backoff: ...

    def waiting(self, what: str, problem: Callable[[], object] | None = None) -> Waiting: ...

    def any_node(self) -> Awaitable[Node]: ...

    def connection(self, node: Node) -> Awaitable[ClientConnection]: ...

    def drop_moved_connections(self) -> None: ...


class CoordinatorLookup:
    """Finds and caches coordinators."""

    def __init__(self, cluster: KnownBrokers) -> None:
        self._cluster = cluster
        self._known: dict[tuple[int, str], int] = {}

    async def find(self, group: str, key_type: int) -> Node:
        """Return the coordinator of `group`; retry until there is one."""
        if (node := self._node(group, key_type)) is not None:
            return node
        backoff, last = self._cluster.backoff(), None
        what = "transactional id" if key_type == TRANSACTION else "group"
        with self._cluster.waiting(f"the coordinator of {what} {group}", lambda: last):
            while True:
                try:
                    await self._ask(group, key_type)
                except (KafkaError, OSError) as problem:
                    if isinstance(problem, KafkaError) and not problem.code.retriable:
                        raise
                    last = problem
                    await asyncio.sleep(backoff.next_ms() / 1000)
                if (node := self._node(group, key_type)) is not None:
                    return node

    def forget(self, group: str, key_type: int) -> None:
        """Drop the cached coordinator of `group`."""
        self._known.pop((key_type, group), None)

    def _node(self, group: str, key_type: int) -> Node | None:
        known = self._known.get((key_type, group))
        return self._cluster.nodes.get(known) if known is not None else None

    async def _ask(self, group: str, key_type: int) -> None:
        request = FindCoordinatorRequest(key=group, key_type=key_type, coordinator_keys=[group])
        connection = await self._cluster.connection(await self._cluster.any_node())
        if connection.version_for(request) >= _FIRST_WITH_LIST:
            request.key = ""
        else:
            request.coordinator_keys = []
        answer = await connection.call(request, FindCoordinatorResponse)
        row = answer.coordinators[0] if answer.coordinators else answer
        if row.error_code:
            raise refused(self._cluster.settings, row.error_code, group)
        nodes = self._cluster.nodes
        known = nodes.get(row.node_id)
        rack = known.rack if known is not None else None
        nodes[row.node_id] = Node(row.node_id, row.host, row.port, rack)
        self._cluster.drop_moved_connections()
        self._known[key_type, group] = row.node_id
