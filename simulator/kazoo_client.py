"""A substitute for kazoo over the simulated network to the simulated ZooKeeper.

The store above (`ZooKeeperStore`) is the real one; this file behaves like kazoo: answers in order,
lost connections with unknown outcomes, expired sessions that are noticed only after a reconnect.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import (
    ConnectionLoss,
    SessionExpiredError,
)
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent

from headwater.broker.lifecycle_loop import OpenStore
from headwater.broker.local_store import LocalStore
from headwater.controller.store.metadata_store import (
    Check,
    Create,
    Delete,
    MetadataStore,
    Op,
    Set,
    Stat,
    StoreError,
    WatchEvent,
    Znode,
)
from headwater.controller.store.zookeeper_store import (
    Negotiated,
    ZooKeeperSettings,
    ZooKeeperStore,
)
from headwater.seams import Seams
from headwater.seams.clock import Clock
from simulator.kazoo_answers import error_of, first_answer, multi_answer, znode_stat
from simulator.loop import SimLoop
from simulator.network import SimNetwork
from simulator.randomness import Stream
from simulator.zookeeper import (
    ZOOKEEPER_HOST,
    ClientEnd,
    CloseSession,
    Connection,
    Ping,
    Read,
    Request,
    SimZooKeeper,
    Transact,
)

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 2.0

_EVENTS = {
    WatchEvent.CREATED: EventType.CREATED,
    WatchEvent.DELETED: EventType.DELETED,
    WatchEvent.DATA: EventType.CHANGED,
    WatchEvent.CHILDREN: EventType.CHILD,
}

Watcher = Callable[[WatchedEvent], None]


class SimResult:
    """The part of kazoo's AsyncResult that the store uses."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: BaseException | None = None
        self._then: Callable[[SimResult], None] = lambda _: None

    def rawlink(self, then: Callable[["SimResult"], None]) -> None:
        """Call `then` when the answer arrives."""
        self._then = then

    def settle(self, answer: Any) -> None:
        """Set the answer, or an exception."""
        if isinstance(answer, BaseException):
            self.exception = answer
        else:
            self.value = answer
        self._then(self)


class _Asked:
    """A request that is in flight or waits for a connection."""

    __slots__ = ("arm", "decode", "request", "result")

    def __init__(
        self,
        request: Request,
        decode: Callable[[Any], Any],
        arm: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.request = request
        self.decode = decode
        self.arm = arm
        self.result = SimResult()


class SimHandler:
    """Runs the calls that kazoo runs on its own threads."""

    def spawn(self, call: Callable[..., None], *args: Any) -> "SimHandler":
        """Run the call at once: nothing blocks in the simulation."""
        call(*args)
        return self

    def join(self, timeout_s: float) -> None:
        """Do nothing: the call has run."""


class SimKazoo:
    """One client with one session after the other, like `KazooClient`."""

    def __init__(
        self,
        network: SimNetwork,
        server: SimZooKeeper,
        chance: Stream,
        timeout_ms: int,
        clock: Clock,
        negotiated: Negotiated,
    ) -> None:
        self.handler = SimHandler()
        self.chroot, self.last_zxid = "", 0
        self._network = network
        self._server = server
        self._chance = chance
        self._clock = clock
        self._negotiated = negotiated
        self._wanted_ms = self._timeout_ms = timeout_ms
        self._session = 0
        self._listeners: list[Callable[[str], None]] = []
        self._watchers: dict[tuple[bool, str], list[Watcher]] = {}
        self._loop: SimLoop = _running()
        self._end: ClientEnd | None = None
        self._connection: Connection | None = None
        self._connected = False
        self._stopped = False
        self._numbers = 0
        self._waiting: list[_Asked] = []
        self._under_way: dict[int, _Asked] = {}
        self._heard_ms = 0
        self._asked_ms = 0
        self._retry_s = FIRST_RETRY_S

    # -- what the store calls

    @property
    def client_id(self) -> tuple[int, bytes]:
        """Session and password."""
        return self._session, b""

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Report changes of state."""
        self._listeners.append(listener)

    def start_async(self) -> None:
        """Connect, and connect again whenever the connection is lost."""
        self._loop.call_soon(self._connect)

    def stop(self) -> None:
        """End the session if the server can be reached; report nothing to the client anymore."""
        if not self._stopped:
            if self._connected:
                self._send(_Asked(CloseSession(), lambda _: None))
            self._stopped = True
            self._drop(lingers=True)
            self._fail(ConnectionLoss())

    def close(self) -> None:
        """Do nothing: `stop` leaves nothing open."""

    def create_async(
        self,
        path: str,
        data: bytes,
        acl: Any = None,
        ephemeral: bool = False,
        sequence: bool = False,
    ) -> SimResult:
        """Create a node."""
        return self._transact([Create(path, data, ephemeral, sequence)], first_answer)

    def set_async(self, path: str, data: bytes, version: int) -> SimResult:
        """Replace a node's data."""
        return self._transact([Set(path, data, version)], first_answer)

    def delete_async(self, path: str, version: int) -> SimResult:
        """Delete a node."""
        return self._transact([Delete(path, version)], first_answer)

    def transaction(self) -> "SimTransaction":
        """A multi."""
        return SimTransaction(self)

    def commit(self, ops: Sequence[Op]) -> SimResult:
        """Send a multi; a refused one is answered with an exception for each operation."""
        return self._transact(ops, lambda answer: multi_answer(ops, answer))

    def get_async(self, path: str, watch: Watcher | None = None) -> SimResult:
        """Data and stat."""

        def decode(node: Znode) -> Any:
            return node.data, znode_stat(node.stat)

        return self._read("get", path, watch, decode)

    def exists_async(self, path: str, watch: Watcher | None = None) -> SimResult:
        """Stat or None."""

        def decode(stat: Stat | None) -> Any:
            return znode_stat(stat) if stat is not None else None

        return self._read("exists", path, watch, decode)

    def get_children_async(
        self, path: str, watch: Watcher | None = None, include_data: bool = False
    ) -> SimResult:
        """Names and stat."""
        assert include_data
        return self._read("children", path, watch, lambda got: (got[0], znode_stat(got[1])))

    # -- requests

    def _transact(self, ops: Sequence[Op], decode: Callable[[Any], Any]) -> SimResult:
        return self._ask(_Asked(Transact(tuple(ops)), decode))

    def _read(
        self, what: str, path: str, watch: Watcher | None, decode: Callable[[Any], Any]
    ) -> SimResult:
        def answer(got: Any) -> Any:
            if isinstance(got, StoreError):
                return error_of(got)
            return decode(got)

        def arm(got: Any) -> None:
            if watch is not None and not isinstance(got, StoreError):
                self._watchers.setdefault((what == "children", path), []).append(watch)

        return self._ask(_Asked(Read(what, path, watch is not None), answer, arm))

    def _ask(self, asked: _Asked) -> SimResult:
        if self._connected:
            self._send(asked)
        else:
            self._waiting.append(asked)
        return asked.result

    def _send(self, asked: _Asked) -> None:
        self._numbers += 1
        number, connection, end = self._numbers, self._connection, self._end
        self._under_way[number] = asked
        assert end is not None
        assert connection is not None

        def arrive() -> None:
            # A request that the client gave up still arrives if its kernel had accepted it.
            if not end.closed or end.lingers:
                self._server.receive(connection, number, asked.request)

        self._network.carry((self._loop.host, ZOOKEEPER_HOST), self._server.loop, arrive)

    def _replied(self, number: int, answer: Any) -> None:
        self._heard_ms = self._clock.monotonic_ms()
        asked = self._under_way.pop(number, None)
        if asked is None:
            return
        asked.arm(answer)
        asked.result.settle(asked.decode(answer))

    def _changed(self, change: WatchEvent, path: str) -> None:
        of_children = change is WatchEvent.CHILDREN
        watchers = self._watchers.pop((of_children, path), [])
        if change is WatchEvent.DELETED:
            watchers += self._watchers.pop((True, path), [])
        for watcher in watchers:
            watcher(WatchedEvent(_EVENTS[change], KeeperState.CONNECTED, path))

    def _fail(self, failure: Exception) -> None:
        asked = [*self._under_way.values(), *self._waiting]
        self._under_way, self._waiting = {}, []
        for one in asked:
            one.result.settle(failure)

    # -- the connection

    def _connect(self) -> None:
        if self._stopped:
            return
        end = self._end = ClientEnd(self._loop)
        end.granted, end.replied, end.changed = self._granted, self._replied, self._changed
        end.broken = lambda: self._broke(end)
        self._asked_ms = self._clock.monotonic_ms()
        session, timeout_ms = self._session, self._wanted_ms

        def arrive() -> None:
            if end.closed or self._network.is_cut(ZOOKEEPER_HOST, self._loop.host):
                return
            end.connection = self._server.connect(end, session, timeout_ms)
            if end.connection is None:
                link = (ZOOKEEPER_HOST, self._loop.host)
                self._network.carry(link, self._loop, end.broken)

        self._network.carry((self._loop.host, ZOOKEEPER_HOST), self._server.loop, arrive)
        self._loop.call_later(timeout_ms / 1000, self._give_up, end)

    def _give_up(self, end: ClientEnd) -> None:
        """Give up a connection that was not established in time."""
        if end is self._end and not self._connected and not end.closed:
            self._broke(end)

    def _granted(self, session: int, timeout_ms: int) -> None:
        end = self._end
        assert end is not None
        if session == 0:
            self._session = 0
            self._fail(SessionExpiredError())
            self._tell(KazooState.LOST)
            self._broke(end)
            return
        self._session, self._timeout_ms = session, timeout_ms
        self._connection, self._connected = end.connection, True
        self._retry_s = FIRST_RETRY_S
        self._heard_ms = self._clock.monotonic_ms()
        self._negotiated(self._asked_ms, timeout_ms)
        self._tell(KazooState.CONNECTED)
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            self._send(asked)
        self._ping(end)

    def _ping(self, end: ClientEnd) -> None:
        """Ping three times per timeout, and detect a silent server."""
        if end is not self._end or not self._connected:
            return
        if self._clock.monotonic_ms() - self._heard_ms >= self._timeout_ms * 2 // 3:
            self._broke(end)
            return
        self._send(_Asked(Ping(), lambda _: None))
        self._loop.call_later(self._timeout_ms / 3000, self._ping, end)

    def _broke(self, end: ClientEnd) -> None:
        if end is not self._end or self._stopped:
            return
        was_connected = self._connected
        self._drop(lingers=self._chance.random() < 0.5)
        if was_connected:
            under_way, self._under_way = self._under_way, {}
            self._tell(KazooState.SUSPENDED)
            for asked in under_way.values():
                asked.result.settle(ConnectionLoss())
        delay_s = self._retry_s * (1 + self._chance.random() / 2)
        self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
        self._loop.call_later(delay_s, self._connect)

    def _drop(self, *, lingers: bool) -> None:
        """Close the socket; bytes in the kernel may still reach the server."""
        end = self._end
        self._connected = False
        self._watchers.clear()
        if end is None:
            return
        end.closed, end.lingers = True, lingers
        self._end = None
        connection = end.connection
        if connection is not None:
            link = (self._loop.host, ZOOKEEPER_HOST)
            self._network.carry(link, self._server.loop, lambda: self._server.end(connection))

    def _tell(self, state: str) -> None:
        for listener in self._listeners:
            listener(state)


class SimTransaction:
    """kazoo's TransactionRequest."""

    def __init__(self, kazoo: SimKazoo) -> None:
        self._kazoo = kazoo
        self._ops: list[Op] = []

    def create(
        self,
        path: str,
        data: bytes,
        acl: Any = None,
        ephemeral: bool = False,
        sequence: bool = False,
    ) -> None:
        """Add a creation."""
        self._ops.append(Create(path, data, ephemeral, sequence))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        """Add a change."""
        self._ops.append(Set(path, data, version))

    def delete(self, path: str, version: int) -> None:
        """Add a deletion."""
        self._ops.append(Delete(path, version))

    def check(self, path: str, version: int) -> None:
        """Add a check."""
        self._ops.append(Check(path, version))

    def commit_async(self) -> SimResult:
        """Send it."""
        return self._kazoo.commit(self._ops)


def open_zookeeper(
    network: SimNetwork, server: SimZooKeeper, chance: Stream, session_timeout_ms: int
) -> OpenStore:
    """Give a broker a session with the simulated ZooKeeper."""

    def open_store(seams: Seams, log_dir: str) -> LocalStore:
        def connect(_: Seams, folder: str) -> MetadataStore:
            return connect_store(network, server, chance, seams.clock, session_timeout_ms)

        local = LocalStore._open(seams, log_dir, connect)
        local.is_shared = True
        return local

    return open_store


def connect_store(
    network: SimNetwork, server: SimZooKeeper, chance: Stream, clock: Clock, timeout_ms: int
) -> ZooKeeperStore:
    """Return the real store of the running loop's process, over a simulated client."""
    loop = _running()

    def open_client(settings: ZooKeeperSettings, at: Clock, negotiated: Negotiated) -> SimKazoo:
        return SimKazoo(network, server, chance, settings.session_timeout_ms, at, negotiated)

    settings = ZooKeeperSettings(ZOOKEEPER_HOST, "", timeout_ms)
    return ZooKeeperStore(settings, clock, loop.call_soon, loop.call_later, open_client)


def _running() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop
