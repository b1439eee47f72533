"""A simulated ZooKeeper: one server on its own host, whose sessions outlive its connections.

The tree is the embedded store's; everything written survives a restart. It has the difficult cases
of a real ensemble: a connection breaks after a write took effect and before its answer, or before
the write arrives; a session expires while its client is cut off and does not notice; a request on a
connection that the client has given up takes effect late.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import fields
from typing import Any, NamedTuple, TypeAlias

from headwater.controller.store.metadata_store import (
    Delete,
    Op,
    OpResult,
    StoreError,
    StoreFailure,
    WatchEvent,
)
from headwater.controller.store.tree import Caller, Edit, Tree, seen_by_watches
from headwater.zookeeper.sessions import SessionDeadlines, negotiated
from simulator.clock import SimClock
from simulator.loop import Scheduler, SimLoop
from simulator.network import SimNetwork
from simulator.randomness import Stream

ZOOKEEPER_HOST = "zookeeper"
TICK_S = 0.1
WIPED_ZXIDS = 1 << 20
"""How far the transactions of a server without its data are from those of before."""

WatchKey: TypeAlias = tuple[bool, str]
"""Whether it watches the list of children, and the path."""


class Read(NamedTuple):
    """`get`, `exists` or `children`, and whether to leave a watch."""

    what: str
    path: str
    watch: bool


class Transact(NamedTuple):
    """One or several operations: all of them or none."""

    ops: tuple[Op, ...]


class Ping(NamedTuple):
    """A heartbeat of the client."""


class CloseSession(NamedTuple):
    """End the session."""


Request: TypeAlias = Read | Transact | Ping | CloseSession


class ClientEnd:
    """The client's side of a connection, which the server calls over the network."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.closed = False
        self.granted: Callable[[int, int], None] = lambda session, timeout_ms: None
        """Session and timeout; session 0 if the one asked for has expired."""
        self.replied: Callable[[int, Any], None] = lambda number, answer: None
        self.changed: Callable[[WatchEvent, str], None] = lambda change, path: None
        self.broken: Callable[[], None] = lambda: None
        self.connection: Connection | None = None
        """The server's side, once it has accepted."""
        self.lingers = False
        """Whether what was sent before `closed` still arrives."""


class Connection:
    """One client's connection; watches belong to it, not to the session."""

    def __init__(self, client: ClientEnd) -> None:
        self.client = client
        self.session = 0
        self.watched: dict[WatchKey, None] = {}
        self.open = True
        self.break_at_write = ""
        """"before" or "after": the next write is lost with the connection, or its answer is."""


class SimZooKeeper:
    """The server; `connect` and `send` are called on its own loop, by what arrives there."""

    def __init__(self, scheduler: Scheduler, network: SimNetwork, chance: Stream) -> None:
        self.tree = Tree()
        self._backup = Tree()
        self.up = True
        self.on_edit: Callable[[Edit], None] = lambda _: None
        """Called with every change of the tree."""
        self._scheduler = scheduler
        self._network = network
        self._chance = chance
        self._clock = SimClock(scheduler)
        self.loop = SimLoop(scheduler, ZOOKEEPER_HOST, ZOOKEEPER_HOST)  # type: ignore[abstract]
        self._connections: dict[Connection, None] = {}
        self._deadlines = SessionDeadlines(self._clock.monotonic_ms())
        self._tick()

    # -- what clients send

    def connect(self, client: ClientEnd, session: int, timeout_ms: int) -> Connection | None:
        """Open a session, or take one up again; None if nobody listens."""
        if not self.up:
            return None
        connection = Connection(client)
        self._connections[connection] = None
        now_ms = self._clock.monotonic_ms()
        if session == 0:
            timeout_ms = negotiated(timeout_ms)
            self._changed(self.tree.open_session(timeout_ms, b"", self._clock.wall_ms()))
            session = self.tree.zxid
            self._deadlines.add(session, timeout_ms, now_ms)
        elif session in self.tree.sessions:
            timeout_ms = self.tree.sessions[session].timeout_ms
            for other in [one for one in self._connections if one.session == session]:
                self.end(other)
            self._deadlines.heard(session, now_ms)
        else:
            session = timeout_ms = 0
        connection.session = session
        self._tell(connection, lambda: client.granted(session, timeout_ms))
        return connection

    def receive(self, connection: Connection, number: int, request: Request) -> None:
        """Handle one request; its watch events leave before its answer."""
        if not connection.open or not self.up:
            return
        self._deadlines.heard(connection.session, self._clock.monotonic_ms())
        writes = isinstance(request, Transact)
        if writes and connection.break_at_write == "before":
            self.end(connection)
            return
        answer = self._answer(connection, request)
        if writes and connection.break_at_write:
            self.end(connection)
            return
        self._tell(connection, lambda: connection.client.replied(number, answer))

    def end(self, connection: Connection) -> None:
        """The stream is gone; the session lives on."""
        if connection.open:
            connection.open = False
            del self._connections[connection]
            self._carry(connection, connection.client.broken)

    # -- faults

    def stop(self) -> None:
        """The process ends; what it has written stays."""
        self._note("stops")
        self.up = False
        for connection in list(self._connections):
            self.end(connection)

    def start(self) -> None:
        """The process is back; every session gets its whole timeout again."""
        self._note("starts")
        self.up = True
        now_ms = self._clock.monotonic_ms()
        self._deadlines = SessionDeadlines(now_ms)
        for session in self.tree.sessions.values():
            self._deadlines.add(session.session, session.timeout_ms, now_ms)

    def wipe(self) -> None:
        """The server restarts without its data. No session of then has a number of before, or of later."""
        self.stop()
        self._note("loses its data")
        self._backup = copy(self.tree)
        self._become(Tree(self.tree.zxid + WIPED_ZXIDS))
        self.start()

    def restore(self) -> None:
        """The server restarts with the data that it has lost."""
        self.stop()
        self._note("has its data again")
        self._become(self._backup)
        self.start()

    def _become(self, other: Tree) -> None:
        for one in fields(Tree):
            setattr(self.tree, one.name, getattr(other, one.name))

    def break_at_next_write(self, share: float) -> None:
        """Break some connections at their next write, whose client cannot know what became of it."""
        self._note("breaks connections at their next write")
        for connection in self._connections:
            if self._chance.random() < share:
                connection.break_at_write = self._chance.choice(("before", "after"))

    def break_some(self, share: float) -> None:
        """Break some connections now."""
        for connection in list(self._connections):
            if self._chance.random() < share:
                self.end(connection)

    def expire(self, session: int) -> None:
        """End a session, whether or not its client is there."""
        if session in self.tree.sessions:
            self._note(f"session {session} expires")
            self._deadlines.remove(session)
            self._changed(self.tree.close_session(session, self._clock.wall_ms()))
            for connection in [one for one in self._connections if one.session == session]:
                self.end(connection)

    def remove(self, path: str) -> bool:
        """Delete a node, as somebody with zkCli would; False if there is none."""
        if self.tree.stat(path) is None:
            return False
        self._note(f"{path} is deleted by hand")
        self._transact(0, [Delete(path)])
        return True

    # -- inside

    def _note(self, what: str) -> None:
        self._scheduler.trace.note(f"{self._scheduler.now_us} zookeeper {what}")

    def _tick(self) -> None:
        if self.up:
            for session in self._deadlines.expired(self._clock.monotonic_ms()):
                self.expire(session)
        self.loop.call_later(TICK_S, self._tick)

    def _answer(self, connection: Connection, request: Request) -> Any:
        session = connection.session
        if session not in self.tree.sessions:
            return StoreError(StoreFailure.SESSION_EXPIRED, "")
        try:
            match request:
                case Read():
                    return self._read(connection, request)
                case Transact(ops):
                    return self._transact(session, ops)
                case CloseSession():
                    self.expire(session)
                case Ping():
                    pass
        except StoreError as refusal:
            return refusal
        return None

    def _read(self, connection: Connection, read: Read) -> Any:
        answer: Any
        match read.what:
            case "exists":
                answer = self.tree.stat(read.path)
            case "get":
                answer = self.tree.get(read.path)
            case _:
                names, stat = self.tree.children(read.path), self.tree.stat(read.path)
                answer = (names, stat)
        if read.watch:
            connection.watched[read.what == "children", read.path] = None
        return answer

    def _transact(self, session: int, ops: Sequence[Op]) -> list[OpResult]:
        results, edits = self.tree.transact(ops, Caller(session, self._clock.wall_ms()))
        self._changed(edits)
        return results

    def _changed(self, edits: Sequence[Edit]) -> None:
        for edit in edits:
            self.on_edit(edit)
            for change, path in seen_by_watches(edit):
                self._wake((change is WatchEvent.CHILDREN, path), change, path)

    def _wake(self, key: WatchKey, change: WatchEvent, path: str) -> None:
        keys = (key, (True, path)) if change is WatchEvent.DELETED else (key,)
        for connection in list(self._connections):
            left = [one for one in keys if one in connection.watched]
            for one in left:
                del connection.watched[one]
            if left:
                self._tell(connection, _call(connection.client, change, path))

    def _tell(self, connection: Connection, call: Callable[[], None]) -> None:
        if connection.open:
            self._carry(connection, call)

    def _carry(self, connection: Connection, call: Callable[[], None]) -> None:
        client = connection.client
        link = (ZOOKEEPER_HOST, client.loop.host)
        self._network.carry(link, client.loop, lambda: None if client.closed else call())


def _call(client: ClientEnd, change: WatchEvent, path: str) -> Callable[[], None]:
    return lambda: client.changed(change, path)
