"""What the simulated ZooKeeper answers, in the words of kazoo."""

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.states import ZnodeStat

from headwater.controller.store.metadata_store import Op, Stat, StoreError, StoreFailure

_ERRORS: dict[StoreFailure, type[KazooException]] = {
    StoreFailure.NO_NODE: NoNodeError,
    StoreFailure.NODE_EXISTS: NodeExistsError,
    StoreFailure.BAD_VERSION: BadVersionError,
    StoreFailure.NOT_EMPTY: NotEmptyError,
    StoreFailure.EPHEMERAL_PARENT: NoChildrenForEphemeralsError,
    StoreFailure.SESSION_EXPIRED: SessionExpiredError,
}


def error_of(refusal: StoreError) -> KazooException:
    """Return the exception of a refused operation."""
    return _ERRORS[refusal.kind]()


def first_answer(answer: Any) -> Any:
    """Return the result of a transaction of one operation, or its exception."""
    if isinstance(answer, StoreError):
        return error_of(answer)
    (result,) = answer
    return znode_stat(result) if isinstance(result, Stat) else result


def multi_answer(ops: Sequence[Op], answer: Any) -> Any:
    """Return the results of a transaction; if one failed, an exception for each operation."""
    if not isinstance(answer, StoreError):
        return [znode_stat(one) if isinstance(one, Stat) else one for one in answer]
    if answer.kind is StoreFailure.SESSION_EXPIRED:
        return error_of(answer)
    return [
        RolledBackError() if at < answer.index else error_of(answer) if at == answer.index
        else RuntimeInconsistency()
        for at in range(len(ops))
    ]  # fmt: skip


def znode_stat(stat: Stat) -> ZnodeStat:
    """Return the stat of a node."""
    return ZnodeStat(
        stat.czxid,
        stat.mzxid,
        stat.ctime_ms,
        stat.mtime_ms,
        stat.version,
        stat.cversion,
        stat.aversion,
        stat.ephemeral_owner,
        stat.data_length,
        stat.num_children,
        stat.pzxid,
    )
