"""Translates between kazoo and the metadata store: results, errors, operations, and events in order."""

import logging
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
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, Id

from headwater.controller.store.metadata_store import (
    OPEN_ACL,
    Acl,
    Check,
    Create,
    Delete,
    Op,
    OpResult,
    Set,
    Stat,
    StoreError,
    StoreFailure,
)
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


class _InlineQueue:
    """Runs callbacks at once in kazoo's connection thread instead of queuing them for a worker."""

    def put(self, call: Callable[[], None]) -> None:
        call()


class OrderedHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without its two worker threads, which would lose the order of events."""

    def __init__(self) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue = _InlineQueue()

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False


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


def nothing(_: Any) -> None: ...


def error_from(failure: BaseException, path: str, index: int = 0) -> StoreError:
    for kind, meaning in _FAILURES:
        if isinstance(failure, kind):
            return StoreError(meaning, path, index)
    log.error("unexpected failure of the metadata store at %s: %r", path, failure)
    return StoreError(StoreFailure.CONNECTION_LOSS, path, index)


def add_operation(transaction: Any, op: Op, acl: list[ACL] | None) -> None:
    match op:
        case Create(path, data, ephemeral, sequential):
            transaction.create(path, data, acl, ephemeral, sequential)
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
    """Report the time of each connect request and the granted timeout, which kazoo does not expose."""
    connection = kazoo._connection
    connect = connection._connect

    def wrapped(*args: Any) -> Any:
        sent_ms = clock.monotonic_ms()
        read_timeout, connect_timeout = connect(*args)
        note(sent_ms, round(read_timeout * 3 / 2))
        return read_timeout, connect_timeout

    connection._connect = wrapped


def stop_quietly(kazoo: KazooClient) -> None:
    try:
        kazoo.stop()
        kazoo.close()
    except Exception:
        log.debug("a client of the metadata store did not stop cleanly", exc_info=True)


def acl_for(acl: Sequence[Acl]) -> list[ACL] | None:
    """None for the open ACL, which is kazoo's default."""
    if acl is OPEN_ACL:
        return None
    return [ACL(entry.permissions, Id(entry.scheme, entry.identity)) for entry in acl]
