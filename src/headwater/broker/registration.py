"""Registers this broker: its node below /brokers/ids exists as long as its session.

The czxid of a registration is the broker epoch; requests for an earlier epoch are refused. After a
lost session the broker registers again; if the node of an earlier session still exists, it waits for
that session to end instead of failing or hanging (KAFKA-7165). The broker does not
register in a store that has lost its data, is older, or belongs to another cluster; it keeps its logs.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from headwater.broker.store_mark import older_store_text, read_mark
from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    MetadataStore,
    SessionState,
    Stat,
    StoreError,
    StoreFailure,
    WatchEvent,
    Znode,
)
from headwater.controller.store.znodes import (
    CLUSTER_ID,
    CLUSTER_SECRET,
    PERSISTENT_PATHS,
    TIME_PREFIX,
    BrokerNode,
    LogDirsNode,
    decode_cluster_id,
    encode_cluster_id,
)
from headwater.seams.timers import CallLater, Timer

log = logging.getLogger(__name__)

RECHECK_S = 60.0
"""How often a broker checks again a store that it stays out of."""


class JoinError(Exception):
    """The broker cannot join its cluster; the text says what to do."""


def read_cluster_id(store: MetadataStore, reply: Callable[[str | StoreError | None], None]) -> None:
    """Reply with the id of the cluster in the store; None if it has none."""

    def read(result: Znode | StoreError) -> None:
        if isinstance(result, Znode):
            reply(decode_cluster_id(result.data))
        else:
            reply(None if result.kind is StoreFailure.NO_NODE else result)

    store.get(CLUSTER_ID, read)


def prepare_store(
    store: MetadataStore, cluster_id: str, reply: Callable[[str | StoreError], None]
) -> None:
    """Create the base paths; reply with the cluster id, which is `cluster_id` in an empty store.

    Retries after a lost connection: a node that was already created answers NODE_EXISTS.
    """
    failures: list[StoreError] = []

    def made(result: str | StoreError) -> None:
        if isinstance(result, StoreError) and result.kind is not StoreFailure.NODE_EXISTS:
            failures.append(result)

    def read(result: Znode | StoreError) -> None:
        if failures and all(one.kind is StoreFailure.CONNECTION_LOSS for one in failures):
            prepare_store(store, cluster_id, reply)
        elif isinstance(result, StoreError):
            reply(failures[0] if failures else result)
        else:
            reply(failures[0] if failures else decode_cluster_id(result.data))

    for path in PERSISTENT_PATHS:
        store.create(path, b"", made)
    store.create(CLUSTER_ID, encode_cluster_id(cluster_id), made)
    store.get(CLUSTER_ID, read)


def share_secret(
    store: MetadataStore, fresh: bytes, reply: Callable[[bytes | StoreError], None]
) -> None:
    """Reply with the secret that authenticates the cluster's brokers; `fresh` if there was none."""

    def made(result: str | StoreError) -> None:
        failure = result.kind if isinstance(result, StoreError) else None
        if failure is StoreFailure.CONNECTION_LOSS:
            store.create(CLUSTER_SECRET, fresh.hex().encode(), made)
        elif failure is None or failure is StoreFailure.NODE_EXISTS:
            store.get(CLUSTER_SECRET, read)
        elif isinstance(result, StoreError):
            reply(result)

    def read(result: Znode | StoreError) -> None:
        reply(result if isinstance(result, StoreError) else bytes.fromhex(result.data.decode()))

    store.create(CLUSTER_SECRET, fresh.hex().encode(), made)


def read_time(store: MetadataStore, reply: Callable[[int | StoreError], None]) -> None:
    """Reply with the wall clock of the store, in milliseconds; a node is created to learn it."""

    def made(result: str | StoreError) -> None:
        if isinstance(result, str):
            store.exists(result, partial(found, result))
        elif result.kind is StoreFailure.CONNECTION_LOSS:
            read_time(store, reply)
        else:
            reply(result)

    def found(path: str, stat: Stat | StoreError | None) -> None:
        if isinstance(stat, Stat):
            store.delete(path, ANY_VERSION, lambda _: None)  # or else it ends with the session
            reply(stat.ctime_ms)
        elif stat is None:
            read_time(store, reply)  # it ended with an earlier session
        else:
            reply(stat)

    store.create(TIME_PREFIX, b"", made, ephemeral=True, sequential=True)


def read_log_dirs(
    store: MetadataStore, node_id: int, reply: Callable[[dict[str, str] | StoreError], None]
) -> None:
    """Read the directory ids of this broker's earlier starts, with their paths."""

    def read(result: Znode | StoreError) -> None:
        if not isinstance(result, StoreError):
            reply(LogDirsNode.decode(node_id, result.data).directories)
        elif result.kind is StoreFailure.NO_NODE:
            reply({})
        else:
            reply(result)

    store.get(LogDirsNode.path(node_id), read)


def store_log_dirs(
    store: MetadataStore,
    node_id: int,
    directories: dict[str, str],
    reply: Callable[[StoreError | None], None],
) -> None:
    """Store the directory ids; they must be durable before a log is created in one of them."""
    path, data = LogDirsNode.path(node_id), LogDirsNode(directories).encode()

    def stored(result: str | Stat | StoreError) -> None:
        failure = result.kind if isinstance(result, StoreError) else None
        if failure is StoreFailure.NODE_EXISTS:
            store.set(path, data, ANY_VERSION, stored)
        elif failure is StoreFailure.CONNECTION_LOSS:
            store.create(path, data, stored)
        else:
            reply(result if isinstance(result, StoreError) else None)

    store.create(path, data, stored)


_PERHAPS_MADE = (StoreFailure.NODE_EXISTS, StoreFailure.CONNECTION_LOSS)


class PreviousRegistration:
    """Waits until no broker is registered under this id, then calls `gone`.

    A broker that was killed stays registered until its session ends. `node` is that registration.
    """

    def __init__(self, store: MetadataStore, broker_id: int, gone: Callable[[], None]) -> None:
        self.node: BrokerNode | None = None
        self._store = store
        self._broker_id = broker_id
        self._gone: Callable[[], None] | None = gone
        store.on_session(self._session_changed)
        self._look()

    def _session_changed(self, session: SessionState) -> None:
        if session is SessionState.OPEN:
            self._look()  # watches end with their session

    def _look(self) -> None:
        if self._gone is not None:
            path = BrokerNode.path(self._broker_id)
            self._store.exists(path, self._found, lambda *_: self._look())

    def _found(self, stat: Stat | StoreError | None) -> None:
        if stat is None:
            gone, self._gone = self._gone, None
            if gone is not None:
                gone()
        elif isinstance(stat, Stat):
            self._store.get(BrokerNode.path(self._broker_id), self._read)

    def _read(self, node: Znode | StoreError) -> None:
        if isinstance(node, Znode) and self.node is None and self._gone is not None:
            self.node = BrokerNode.decode(self._broker_id, node.data)
            log.info(
                "node.id %d is registered at %s, by an earlier run of this broker or by another one; "
                "waiting for that session to end",
                self._broker_id,
                ", ".join(f"{end.host}:{end.port}" for end in self.node.endpoints),
            )


class Registration:
    """Keeps the broker registered; `on_registered` gets the stat of every registration.

    Its czxid is the broker epoch, its ctime the store's time. `last_mark` returns the transaction of the
    last mark of the store, 0 if it was never marked.
    """

    def __init__(
        self,
        store: MetadataStore,
        node: BrokerNode,
        cluster_id: str,
        on_registered: Callable[[Stat], None],
        call_later: CallLater,
        last_mark: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store = store
        self._node = node
        self._cluster_id = cluster_id
        self._path = BrokerNode.path(node.broker_id)
        self._on_registered = on_registered
        self._call_later = call_later
        self._last_mark = last_mark
        self._recheck: Timer | None = None
        self._wanted = True
        store.on_session(self._session_changed)
        self._register()

    def withdraw(self, done: Callable[[], None]) -> None:
        """Delete the registration: the broker stops."""
        self._wanted = False
        if self._recheck is not None:
            self._recheck.cancel()
        self._store.delete(self._path, -1, lambda _: done())

    def _session_changed(self, session: SessionState) -> None:
        if session is SessionState.OPEN and self._wanted:
            self._register()

    def _register(self) -> None:
        if self._recheck is not None:
            self._recheck.cancel()
            self._recheck = None
        read_cluster_id(self._store, self._cluster_read)

    def _cluster_read(self, cluster_id: str | StoreError | None) -> None:
        if not self._wanted:
            return
        if isinstance(cluster_id, StoreError):
            log.warning("this broker could not register: %s", cluster_id)
        elif cluster_id == self._cluster_id:
            if self._last_mark():
                read_mark(self._store, self._node.broker_id, self._mark_read)
            else:
                self._create()
        else:
            log.error(
                "the metadata store %s, this broker belongs to cluster %s: it keeps its logs and "
                "does not register; restore the data of the store, or correct zookeeper.connect",
                f"belongs to cluster {cluster_id}" if cluster_id else "has lost its data",
                self._cluster_id,
            )
            self._recheck = self._call_later(RECHECK_S, self._register)

    def _mark_read(self, mark: int | StoreError) -> None:
        if not self._wanted:
            return
        if isinstance(mark, StoreError):
            log.warning("this broker could not register: %s", mark)
        elif mark < self._last_mark():
            log.error(
                "the metadata store was restored from an older copy: %s",
                older_store_text(mark, self._last_mark()),
            )
            self._recheck = self._call_later(RECHECK_S, self._register)
        else:
            self._create()

    def _create(self) -> None:
        self._store.create(self._path, self._node.encode(), self._created, ephemeral=True)

    def _created(self, result: str | StoreError) -> None:
        if not isinstance(result, StoreError) or result.kind in _PERHAPS_MADE:
            self._store.exists(self._path, self._found, self._node_changed)
        else:
            log.warning("broker registration failed: %s", result)

    def _found(self, stat: Stat | StoreError | None) -> None:
        if isinstance(stat, Stat):
            if stat.ephemeral_owner == self._store.session_id:
                # A later registration of this process follows a lost session, not a restart.
                if self._node.kept_since < 0:
                    self._node = replace(self._node, kept_since=stat.czxid)
                self._on_registered(stat)
            else:
                log.warning("%s belongs to another session; waiting for it to end", self._path)
        elif stat is None and self._wanted:
            self._register()

    def _node_changed(self, change: WatchEvent, path: str) -> None:
        if change is WatchEvent.DELETED and self._wanted:
            self._register()
