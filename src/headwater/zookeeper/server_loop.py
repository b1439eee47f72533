"""The server of `headwater store`: a listener, the sessions, and the engine they share."""

import hmac
import logging
from collections.abc import Callable
from functools import partial

from headwater.controller.store.engine import StoreEngine
from headwater.controller.store.metadata_store import StoreError
from headwater.seams.accepting import AcceptAll
from headwater.seams.clock import Clock
from headwater.seams.network import ListenerHandle, Network
from headwater.seams.randomness import Randomness
from headwater.seams.timers import CallLater
from headwater.zookeeper.connection import StoreConnection
from headwater.zookeeper.messages import PASSWORD_BYTES, Connect
from headwater.zookeeper.sessions import TICK_MS, SessionDeadlines, negotiated

log = logging.getLogger(__name__)

BACKLOG = 1024
FIRST_FRAME_S = 10.0
"""How long a peer may take to ask for a session, as in ZooKeeper: each holds a descriptor."""
VERSION = "Zookeeper version: 3.9.0-headwater"


class StoreServer:
    """Serves one engine to any number of clients."""

    def __init__(
        self,
        engine: StoreEngine,
        network: Network,
        clock: Clock,
        randomness: Randomness,
        call_later: CallLater,
    ) -> None:
        self.engine = engine
        self._network = network
        self._clock = clock
        self._randomness = randomness
        self._call_later = call_later
        self._listening: ListenerHandle | None = None
        self._connections: set[StoreConnection] = set()
        self._by_session: dict[int, StoreConnection] = {}
        self._ending: set[int] = set()
        self._refused = False
        self._deadlines = SessionDeadlines(clock.monotonic_ms())
        for session in engine.tree.sessions.values():
            self._deadlines.add(session.session, session.timeout_ms, clock.monotonic_ms())

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port."""
        acceptor = AcceptAll(self._connection)
        self._listening = await self._network.serve(acceptor, host, port, BACKLOG)
        self._call_later(TICK_MS / 1000, self._tick)
        return self._listening.port

    def close(self) -> None:
        """Close the connections and stop. Clients can resume their sessions after a restart."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in list(self._connections):
            connection.close()
        self.engine.close()

    def _connection(self) -> StoreConnection:
        connection = StoreConnection(self)
        self._connections.add(connection)
        self._call_later(FIRST_FRAME_S, connection.close_if_silent)
        return connection

    # -- for connections

    def answer_word(self, word: bytes) -> bytes | None:
        match word:
            case b"ruok":
                return b"imok"
            case b"isro":
                return b"rw"
            case b"srvr" | b"stat":
                return self._report().encode()
            case _:
                return None

    def _report(self) -> str:
        tree = self.engine.tree
        return (
            f"{VERSION}\nConnections: {len(self._connections)}\nSessions: {len(self._deadlines)}\n"
            f"Zxid: {tree.zxid:#x}\nMode: standalone\nNode count: {len(tree.nodes)}\n"
        )

    def begin_session(self, connection: StoreConnection, connect: Connect) -> None:
        if connect.last_zxid > self.engine.durable_zxid:
            self._refuse(connection, connect)
            return
        if connect.session_id == 0:
            self._open(connection, connect)
            return

        def found() -> int:
            session = self.engine.tree.sessions.get(connect.session_id)
            if session is None or not hmac.compare_digest(session.password, connect.password):
                return 0
            return session.timeout_ms

        def take_up(timeout_ms: int | StoreError) -> None:
            if isinstance(timeout_ms, StoreError) or timeout_ms == 0:
                connection.session_begun(0, 0, bytes(PASSWORD_BYTES))
            else:
                self._bind(connection, connect.session_id)
                connection.session_begun(connect.session_id, timeout_ms, connect.password)

        self.engine.submit(found, take_up)

    def _refuse(self, connection: StoreConnection, connect: Connect) -> None:
        """Close the connection of a client that has seen later writes than this store has."""
        if not self._refused:
            self._refused = True
            log.error(
                "refusing %s and all others that have seen transaction %#x: the last one here is %#x, "
                "so this store has lost later writes; stop it and restore its newest data, because "
                "brokers that follow an older state lose records",
                connection.peer,
                connect.last_zxid,
                self.engine.durable_zxid,
            )
        connection.close()

    def _open(self, connection: StoreConnection, connect: Connect) -> None:
        timeout_ms = negotiated(connect.timeout_ms)
        password = self._randomness.uuid()

        def opened(session: int | StoreError) -> None:
            if isinstance(session, StoreError):
                connection.close()
                return
            self._deadlines.add(session, timeout_ms, self._clock.monotonic_ms())
            self._bind(connection, session)
            log.info("session %#x of %s began, timeout %d ms", session, connection.peer, timeout_ms)
            connection.session_begun(session, timeout_ms, password)

        self.engine.submit(lambda: self.engine.open_session(timeout_ms, password), opened, writes=1)

    def _bind(self, connection: StoreConnection, session: int) -> None:
        """Bind a session to its newest connection and close the others."""
        older = self._by_session.get(session)
        self._by_session[session] = connection
        if older is not None and older is not connection:
            older.close()
        self._deadlines.heard(session, self._clock.monotonic_ms())

    def heard(self, session: int) -> None:
        self._deadlines.heard(session, self._clock.monotonic_ms())

    def end_session(self, session: int, done: Callable[[], None]) -> None:
        def ended(result: StoreError | None) -> None:
            self._ending.discard(session)
            if not isinstance(result, StoreError):
                self._deadlines.remove(session)
            done()

        self._ending.add(session)
        self.engine.submit(lambda: self.engine.close_session(session), ended, writes=1)

    def connection_closed(self, connection: StoreConnection) -> None:
        self._connections.discard(connection)
        if self._by_session.get(connection.session) is connection:
            del self._by_session[connection.session]

    # -- expiry

    def _tick(self) -> None:
        if self._listening is None:
            return
        for session in self._deadlines.expired(self._clock.monotonic_ms()):
            if session not in self._ending:
                log.info("session %#x expired", session)
                self.end_session(session, partial(self._close_connection, session))
        self._call_later(TICK_MS / 1000, self._tick)

    def _close_connection(self, session: int) -> None:
        connection = self._by_session.get(session)
        if connection is not None:
            connection.close()
