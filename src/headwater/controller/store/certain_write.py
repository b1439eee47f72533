"""Writes whose outcome is always known, even if the connection is lost.

If the connection is lost while a multi is in flight, its outcome is unknown. The nodes reveal it: a
multi is applied as a whole or not at all, so any node that it creates, deletes or changes by version
shows whether it was applied. A multi that was not applied is sent again.
"""

from collections.abc import Sequence
from functools import partial

from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    OVERTAKEN,
    Check,
    Create,
    Delete,
    MetadataStore,
    Op,
    OpResult,
    Reply,
    Set,
    StoreError,
    StoreFailure,
    Znode,
)

MOST_TRIES = 5
"""A store that fails this often has another problem than lost connections, such as a full disk."""


def write_surely(store: MetadataStore, ops: Sequence[Op], reply: Reply[list[OpResult]]) -> None:
    """Like `store.multi`, but give up on lost connections only after `MOST_TRIES` attempts.

    A multi whose outcome no node reveals (it only sets nodes of any version and creates sequential
    ones) is sent again and may be applied twice.
    """
    _CertainWrite(store, ops, reply).send()


class _CertainWrite:
    def __init__(
        self, store: MetadataStore, ops: Sequence[Op], reply: Reply[list[OpResult]]
    ) -> None:
        self._store = store
        self._ops = ops
        self._reply = reply
        self._telling = [op for op in ops if _tells(op)]
        self._tries = 0
        self._found: list[OpResult] = []
        self._unread = 0

    def send(self) -> None:
        self._tries += 1
        self._store.multi(self._ops, self._answered)

    def _answered(self, result: list[OpResult] | StoreError) -> None:
        if not isinstance(result, StoreError):
            self._reply(result)
        elif self._may_be_applied(result.kind):
            self._look(result)
        else:
            self._reply(result)

    def _may_be_applied(self, failure: StoreFailure) -> bool:
        if failure is StoreFailure.CONNECTION_LOSS:
            return self._tries < MOST_TRIES
        return self._tries > 1 and failure in OVERTAKEN

    def _look(self, failure: StoreError) -> None:
        if not self._telling:
            self.send()
            return
        one = self._telling[0]
        self._store.get(one.path, partial(self._looked, one, failure))

    def _looked(self, op: Op, failure: StoreError, node: Znode | StoreError) -> None:
        if isinstance(node, StoreError) and node.kind is not StoreFailure.NO_NODE:
            self._reply(node)
        elif _is_applied(op, node):
            self._collect()
        elif failure.kind is StoreFailure.CONNECTION_LOSS:
            self.send()
        else:
            self._reply(failure)

    def _collect(self) -> None:
        """Answer as the multi would have: created paths, and the stats of the nodes it set."""
        self._found = [op.path if isinstance(op, Create) else None for op in self._ops]
        sets = [(rank, op) for rank, op in enumerate(self._ops) if isinstance(op, Set)]
        self._unread = len(sets)
        if not sets:
            self._reply(self._found)
        for rank, op in sets:
            self._store.get(op.path, partial(self._read, rank))

    def _read(self, rank: int, node: Znode | StoreError) -> None:
        if isinstance(node, Znode):
            self._found[rank] = node.stat
        self._unread -= 1
        if not self._unread:
            self._reply(self._found)


def _tells(op: Op) -> bool:
    match op:
        case Set(version=version):
            return version != ANY_VERSION
        case Create(sequential=sequential):
            return not sequential
        case Delete():
            return True
        case Check():
            return False


def _is_applied(op: Op, node: Znode | StoreError) -> bool:
    match op:
        case Set(data=data, version=version):
            return isinstance(node, Znode) and (node.data, node.stat.version) == (data, version + 1)
        case Create(data=data):
            return isinstance(node, Znode) and node.data == data
        case Delete() | Check():
            return not isinstance(node, Znode)
