"""Translates between kazoo and the metadata store: results, errors, operations, and events in order."""

import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, ZnodeStat
from kazoo.security import ACL, Id

from headwater.config.broker_keys.zookeeper import ZooKeeperTls
from headwater.controller.store.metadata_store import (
    Acl,
    AclAndStat,
    Check,
    Create,
    Delete,
    Op,
    OpResult,
    Set,
    Stat,
    StoreError,
    StoreFailure,
    WatchEvent,
)
from headwater.controller.store.znodes import secure_acl
from headwater.seams.clock import Clock

log = logging.getLogger(__name__)

_FAILURES: tuple[tuple[type[Exception], StoreFailure], ...] = (
    (NoNodeError, StoreFailure.NO_NODE),
    (NodeExistsError, StoreFailure.NODE_EXISTS),
    (BadVersionError, StoreFailure.BAD_VERSION),
    (NotEmptyError, StoreFailure.NOT_EMPTY),
    (NoChildrenForEphemeralsError, StoreFailure.EPHEMERAL_PARENT),
    (BadArgumentsError, StoreFailure.BAD_PATH),
    (NoAuthError, StoreFailure.NOT_AUTHORIZED),
    (InvalidACLError, StoreFailure.INVALID_ACL),
    (AuthFailedError, StoreFailure.AUTH_FAILED),
    (SessionExpiredError, StoreFailure.SESSION_EXPIRED),
)


CHANGES = {
    EventType.CREATED: WatchEvent.CREATED,
    EventType.DELETED: WatchEvent.DELETED,
    EventType.CHANGED: WatchEvent.DATA,
    EventType.CHILD: WatchEvent.CHILDREN,
}
"""The events that watches are fired with."""


class _InlineQueue:
    """Runs callbacks at once in kazoo's connection thread instead of queuing them for a worker."""

    def put(self, call: Callable[[], None]) -> None:
        call()


class OrderedHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without its two worker threads, which would lose the order of events.

    With `tls` every connection is encrypted. kazoo's own TLS would also trust the authorities of the
    system where others are named.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue = _InlineQueue()
        self._tls = tls

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **more: Any
    ) -> Any:
        if self._tls is None:
            return super().create_connection(
                address=address, hostname=hostname, timeout=timeout, **more
            )
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._tls.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        """Wait for sockets; one that holds decrypted bytes is ready, though its descriptor is not.

        A server may put several responses into one TLS record.
        """
        ready = [one for one in rlist if isinstance(one, ssl.SSLSocket) and one.pending()]
        if ready:
            return ready, [], []
        return super().select(rlist, wlist, xlist, timeout)


def tls_context(tls: ZooKeeperTls) -> ssl.SSLContext:
    """What certificates to show and to trust; OSError if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.check_hostname
    if tls.truststore is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        context.load_verify_locations(tls.truststore)
    if tls.keystore is not None:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(tls.keystore, password=tls.keystore_password or "")
    return context


def stat_from(stat: ZnodeStat) -> Stat:
    return Stat(
        stat.czxid,
        stat.mzxid,
        stat.version,
        stat.cversion,
        stat.ephemeralOwner,
        stat.numChildren,
        stat.dataLength,
        stat.pzxid,
        stat.aversion,
        stat.ctime,
        stat.mtime,
    )


def acl_from(answer: Any) -> AclAndStat:
    entries, stat = answer
    acl = tuple(Acl(one.perms, one.id.scheme, one.id.id) for one in entries)
    return AclAndStat(acl, stat_from(stat))


def nothing(_: Any) -> None: ...


def error_from(failure: BaseException, path: str, index: int = 0) -> StoreError:
    for kind, meaning in _FAILURES:
        if isinstance(failure, kind):
            return StoreError(meaning, path, index)
    log.error("unexpected failure of the metadata store at %s: %r", path, failure)
    return StoreError(StoreFailure.CONNECTION_LOSS, path, index)


def add_operation(transaction: Any, op: Op, *, secure: bool) -> None:
    match op:
        case Create(path, data, ephemeral, sequential):
            transaction.create(path, data, acl_of(path, secure=secure), ephemeral, sequential)
        case Set(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path, version):
            transaction.delete(path, version)
        case Check(path, version):
            transaction.check(path, version)


def multi_results(ops: Sequence[Op], answers: list[Any]) -> list[OpResult]:
    for index, (op, answer) in enumerate(zip(ops, answers, strict=True)):
        if isinstance(answer, KazooException) and any(
            isinstance(answer, kind) for kind, _ in _FAILURES
        ):
            raise error_from(answer, op.path, index)
    return [
        str(answer)
        if isinstance(op, Create)
        else stat_from(answer)
        if isinstance(op, Set)
        else None
        for op, answer in zip(ops, answers, strict=True)
    ]


def note_negotiated(kazoo: KazooClient, clock: Clock, note: Callable[[int, int], object]) -> None:
    """Report the time of each connect request and the granted timeout, which kazoo does not expose.

    A failed TLS handshake is logged, once for each reason: kazoo retries silently.
    """
    connection = kazoo._connection
    connect = connection._connect
    refusals: set[str] = set()

    def wrapped(*args: Any) -> Any:
        sent_ms = clock.monotonic_ms()
        try:
            read_timeout, connect_timeout = connect(*args)
        except Exception as dropped:
            why = dropped.__context__
            if isinstance(why, ssl.SSLError) and str(why) not in refusals:
                refusals.add(str(why))
                log.error("TLS with ZooKeeper at %s:%s failed: %s", args[0], args[2], why)
            raise
        note(sent_ms, round(read_timeout * 3 / 2))
        return read_timeout, connect_timeout

    connection._connect = wrapped


def stop_quietly(kazoo: KazooClient) -> None:
    try:
        kazoo.stop()
        kazoo.close()
    except Exception:
        log.debug("a client of the metadata store did not stop cleanly", exc_info=True)


def acl_of(path: str, *, secure: bool) -> list[ACL] | None:
    """The ACL of a new node; None for kazoo's default, which lets everyone do everything."""
    if not secure:
        return None
    return [ACL(one.permissions, Id(one.scheme, one.identity)) for one in secure_acl(path)]
