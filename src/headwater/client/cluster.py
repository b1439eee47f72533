"""The cluster as a client sees it: brokers, topics, leaders, and open connections to them.

One request for metadata is under way at a time; whoever needs the answer waits for the same one.
What is known may be out of date at any moment: a caller that is told so by a broker calls
`suspect()` and asks again. Nothing here hangs: every wait has a timeout.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from headwater.client.backoff import Backoff
from headwater.client.errors import NetworkError, TimedOutError, failure
from headwater.config.client import ClientSettings
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_LEADER, ZERO_UUID, TopicPartition, Uuid
from headwater.seams.clock import Clock
from headwater.seams.network import Network
from headwater.seams.randomness import Randomness
from headwater.seams.tasks import LoopTasks
from headwater.transport.connection import Connection
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.schema import Struct

Answer = TypeVar("Answer", bound=Struct)

_FINAL_TOPIC_ERRORS = frozenset({E.INVALID_TOPIC_EXCEPTION, E.TOPIC_AUTHORIZATION_FAILED})
_WAITING = -1_000_000
"""Below it are the ids of second connections."""


class Node(NamedTuple):
    """A broker and where it is; a bootstrap address has a negative id."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """A partition as last told; `leader` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicView(NamedTuple):
    """A topic as last told; `partitions` are in the order of their numbers."""

    name: str
    topic_id: Uuid
    internal: bool
    partitions: tuple[PartitionView, ...]


class Cluster:
    """Metadata and connections of one client. Lives on one event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        network: Network,
        clock: Clock,
        randomness: Randomness,
        tasks: LoopTasks,
        *,
        auto_create: bool = True,
    ) -> None:
        self.settings = settings
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicView] = {}
        self.problems: dict[str, E] = {}
        """Topics that were asked for and could not be told, and why."""
        self.listeners: list[Callable[[], None]] = []
        """Called on the loop after every answer to a request for metadata."""
        self._network = network
        self._clock = clock
        self._randomness = randomness
        self._tasks = tasks
        self._auto_create = auto_create
        self._bootstrap = tuple(bootstrap_nodes(settings.bootstrap_servers))
        self._wanted: set[str] = set()
        self._all_topics = False
        self._connections: dict[int, Connection] = {}
        self._opening: dict[int, asyncio.Task[Connection]] = {}
        self._reconnect: dict[int, Backoff] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._next_refresh: asyncio.TimerHandle | None = None
        self._backoff = self.backoff()
        self._updated_ms = -1
        self._closed = False

    # -- what is known

    def leader(self, partition: TopicPartition) -> Node | None:
        """The broker that leads `partition`, as far as is known."""
        topic = self.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        return self.nodes.get(topic.partitions[partition.partition].leader)

    @property
    def now_ms(self) -> int:
        """The clock for deadlines."""
        return self._clock.monotonic_ms()

    def backoff(self) -> Backoff:
        """Rests between repetitions, as retry.backoff.ms and retry.backoff.max.ms say."""
        return Backoff(
            self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms, self._randomness
        )

    # -- metadata

    async def metadata(
        self, topics: Iterable[str], *, timeout_ms: int | None = None, fresh: bool = False
    ) -> dict[str, TopicView]:
        """The named topics; asks until all are known, or raises for the first that is not.

        A topic that does not exist is waited for, since it may be on its way: in the end it is
        UnknownTopicOrPartitionError.
        """
        names = list(topics)
        limit = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        self._wanted.update(names)
        try:
            async with asyncio.timeout(limit / 1000):
                if fresh:
                    await self.refresh()
                await self._until_known(names)
        except TimeoutError:
            raise self._not_known(names, limit) from None
        return {name: self.topics[name] for name in names}

    async def learn(self, topics: Iterable[str], timeout_ms: int = 1000) -> None:
        """Ask about `topics` from now on; those that do not exist yet are no error."""
        names = [name for name in topics if name not in self.topics]
        if not names:
            return
        try:
            await self.metadata(names, timeout_ms=timeout_ms)
        except KafkaError as problem:
            if problem.code not in (E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE):
                raise

    async def all_topics(self) -> dict[str, TopicView]:
        """Every topic of the cluster, asked for now; later refreshes ask for all as well."""
        self._all_topics = True
        await self.refresh()
        return dict(self.topics)

    def forget(self, topics: Iterable[str]) -> None:
        """Ask no more about `topics`."""
        for name in topics:
            self._wanted.discard(name)
            self.topics.pop(name, None)
            self.problems.pop(name, None)

    async def refresh(self) -> None:
        """Ask any broker for metadata now, or wait for the request that is under way.

        Repeats with backoff until a broker answers; the caller bounds it by a timeout.
        """
        if self._closed:
            raise NetworkError("the client is closed")
        if self._refreshing is None:
            self._begin_refresh()
        assert self._refreshing is not None
        await asyncio.shield(self._refreshing)

    def suspect(self) -> None:
        """What is known was wrong: ask anew, in the background, with a rest between attempts."""
        self._refresh_in(self._backoff.next_ms())

    async def _until_known(self, names: list[str]) -> None:
        backoff = self.backoff()
        while missing := [name for name in names if name not in self.topics]:
            await self.refresh()
            for name in missing:
                problem = self.problems.get(name)
                if problem in _FINAL_TOPIC_ERRORS:
                    raise failure(problem, f"{name}: {problem.text}")
            if any(name not in self.topics for name in missing):
                await asyncio.sleep(backoff.next_ms() / 1000)

    def _not_known(self, names: list[str], limit_ms: int) -> KafkaError:
        missing = [name for name in names if name not in self.topics]
        for name in missing:
            if name in self.problems:
                problem = self.problems[name]
                return failure(problem, f"{name}: {problem.text} (asked for {limit_ms} ms)")
        return TimedOutError(
            f"no broker told of {', '.join(missing) or 'the cluster'} within {limit_ms} ms; is "
            f"{', '.join(self.settings.bootstrap_servers)} the right address?"
        )

    async def _refresh(self) -> None:
        backoff = self.backoff()
        while True:
            for node in self._candidates():
                try:
                    connection = await self.connection(node)
                    self._apply(await connection.call(self._question(), MetadataResponse))
                except (KafkaError, OSError):
                    continue
                self._backoff = self.backoff()
                return
            await asyncio.sleep(backoff.next_ms() / 1000)

    def _candidates(self) -> list[Node]:
        """Brokers to ask: open connections first, bootstrap addresses when all else failed."""
        known = list(self.nodes.values())
        turn = self._randomness.below(len(known)) if known else 0
        known = known[turn:] + known[:turn]
        known.sort(key=lambda node: node.id not in self._connections)
        if self.settings.metadata_recovery_strategy == "rebootstrap" or not known:
            known += self._bootstrap
        return known

    def _question(self) -> MetadataRequest:
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(self._wanted)]
        return MetadataRequest(
            topics=None if self._all_topics else topics,
            allow_auto_topic_creation=self._auto_create,
        )

    def _apply(self, told: MetadataResponse) -> None:
        if told.error_code == E.REBOOTSTRAP_REQUIRED:
            self.nodes.clear()
            raise failure(told.error_code)
        self.cluster_id, self.controller_id = told.cluster_id, told.controller_id
        self.nodes = {
            row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in told.brokers
        }
        topics, problems = {}, {}
        for row in told.topics:
            if row.name is None:
                continue
            if row.error_code and not row.partitions:
                problems[row.name] = error_of(row.error_code)
            else:
                topics[row.name] = _topic(row.name, row)
        if self._all_topics:
            self.topics = topics
        else:
            for name in problems:
                self.topics.pop(name, None)
            self.topics.update(topics)
        self.problems = problems
        self._updated_ms = self.now_ms
        self._drop_moved_connections()
        for listener in self.listeners:
            listener()

    def _drop_moved_connections(self) -> None:
        for node_id, connection in list(self._connections.items()):
            node = self.nodes.get(node_id)
            if node_id >= 0 and node and connection.address != f"{node.host}:{node.port}":
                connection.close()
                del self._connections[node_id]

    def _refreshed(self, task: "asyncio.Task[None]") -> None:
        self._refreshing = None
        if not task.cancelled() and not self._closed:
            self._refresh_in(self.settings.metadata_max_age_ms)

    def _refresh_in(self, delay_ms: float) -> None:
        if self._closed or self._refreshing is not None:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + delay_ms / 1000
        if self._next_refresh is not None:
            if self._next_refresh.when() <= when and not self._next_refresh.cancelled():
                return
            self._next_refresh.cancel()
        self._next_refresh = loop.call_at(when, self._refresh_due)

    def _refresh_due(self) -> None:
        self._next_refresh = None
        if self._refreshing is None and not self._closed:
            self._begin_refresh()

    def _begin_refresh(self) -> None:
        self._refreshing = self._tasks.spawn(self._refresh(), "metadata refresh")
        self._refreshing.add_done_callback(self._refreshed)

    # -- connections

    async def connection(self, node: Node) -> Connection:
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

    async def waiting_connection(self, node: Node) -> Connection:
        """A second connection to `node`, for requests that brokers hold for long.

        Brokers answer a connection in order: a commit or a goodbye behind a join that waits for the
        other members would wait as well.
        """
        return await self.connection(node._replace(id=_WAITING - node.id))

    def connected(self, node: Node) -> Connection | None:
        """The open connection to `node`, if there is one at this moment."""
        connection = self._connections.get(node.id)
        return connection if connection is not None and connection.is_open else None

    async def _open(self, node: Node) -> Connection:
        settings = self.settings
        backoff = self._reconnect.get(node.id)
        if backoff is not None:
            await asyncio.sleep(backoff.next_ms() / 1000)
        else:
            backoff = self._reconnect[node.id] = Backoff(
                settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._randomness
            )
        try:
            connection = await Connection.open(
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

    def _opened(self, node_id: int, task: "asyncio.Task[Connection]") -> None:
        self._opening.pop(node_id, None)
        if task.cancelled() or task.exception() is not None:
            return
        if self._closed:
            task.result().close()
        else:
            self._connections[node_id] = task.result()

    # -- asking

    async def ask(self, node: Node, request: Struct, answer: type[Answer]) -> Answer:
        """One request to one broker, once."""
        connection = await self.connection(node)
        return await connection.call(request, answer)

    async def any_node(self) -> Node:
        """Some live broker; learns the cluster first if need be."""
        if not self.nodes:
            await self.refresh()
        return next(node for node in self._candidates())

    async def controller(self) -> Node:
        """The controller, or any broker where none is told (all of them forward to it)."""
        if self.controller_id not in self.nodes:
            await self.refresh()
        return self.nodes.get(self.controller_id) or await self.any_node()

    async def coordinator(self, group: str, key_type: int = 0) -> Node:
        """The broker that coordinates `group`; repeats until there is one. Bound it by a timeout."""
        backoff = self.backoff()
        while True:
            known = self._coordinators.get((key_type, group))
            node = self.nodes.get(known) if known is not None else None
            if node is not None:
                return node
            try:
                await self._find_coordinator(group, key_type)
            except (KafkaError, OSError) as problem:
                if isinstance(problem, KafkaError) and not problem.code.retriable:
                    raise
                await asyncio.sleep(backoff.next_ms() / 1000)

    def forget_coordinator(self, group: str, key_type: int = 0) -> None:
        """The broker said that it does not coordinate `group`, or it is gone."""
        self._coordinators.pop((key_type, group), None)

    async def _find_coordinator(self, group: str, key_type: int) -> None:
        request = FindCoordinatorRequest(key=group, key_type=key_type, coordinator_keys=[group])
        connection = await self.connection(await self.any_node())
        if connection.version_for(request) >= 4:
            request.key = ""
        else:
            request.coordinator_keys = []
        told = await connection.call(request, FindCoordinatorResponse)
        row = told.coordinators[0] if told.coordinators else told
        if row.error_code:
            raise failure(row.error_code, row.error_message)
        self.nodes.setdefault(row.node_id, Node(row.node_id, row.host, row.port))
        self._coordinators[key_type, group] = row.node_id

    # -- the end

    async def close(self) -> None:
        """Close every connection and stop asking."""
        self._closed = True
        if self._next_refresh is not None:
            self._next_refresh.cancel()
        pending = [task for task in (self._refreshing, *self._opening.values()) if task]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def bootstrap_nodes(addresses: Iterable[str]) -> Iterable[Node]:
    """Brokers of which no more than the address is known."""
    for number, address in enumerate(addresses, start=1):
        host, _, port = address.rpartition(":")
        yield Node(-number, host.strip("[]"), int(port))


def _topic(name: str, row: MetadataResponse.MetadataResponseTopic) -> TopicView:
    partitions = tuple(
        PartitionView(
            part.partition_index,
            NO_LEADER if part.error_code == E.LEADER_NOT_AVAILABLE else part.leader_id,
            part.leader_epoch,
            tuple(part.replica_nodes),
            tuple(part.isr_nodes),
            tuple(part.offline_replicas),
        )
        for part in sorted(row.partitions, key=lambda part: part.partition_index)
    )
    return TopicView(name, row.topic_id or ZERO_UUID, row.is_internal, partitions)
