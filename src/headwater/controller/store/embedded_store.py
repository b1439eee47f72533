"""The store of a single node: the tree in memory, its journal on disk, one session per start.

Calls queue up. A round takes what has queued, applies it in order, makes its writes durable with
one write and one fdatasync off the loop thread, and only then delivers replies and watches, a
bounded number per tick. The next round waits for that, so nobody is ever told what a crash could
take back. If the disk refuses a write, the tree is read again as last promised, the round's writes
fail with CONNECTION_LOSS and its reads are done again; if a sync fails, nothing on that file can be believed any more: the session
is over until a restart.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from headwater.controller.store.journal import Journal, StoreDamaged, encode_transaction
from headwater.controller.store.metadata_store import (
    Create,
    Delete,
    Op,
    OpResult,
    Reply,
    SessionState,
    Set,
    Stat,
    StoreError,
    StoreFailure,
    Watch,
    WatchEvent,
    Znode,
)
from headwater.controller.store.tree import Edit, seen_by_watches
from headwater.seams.files import Files
from headwater.seams.tasks import Lane, Tasks

log = logging.getLogger(__name__)

OPS_PER_ROUND = 1000
DELIVERIES_PER_TICK = 200
"""Both keep one tick of the loop well under 10 ms."""

CallSoon: TypeAlias = Callable[[Callable[[], None]], object]
OffLoop: TypeAlias = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Runs the first call where blocking is allowed, then the second one on the loop with its failure."""

_Delivery: TypeAlias = Callable[[], None]
_Watches: TypeAlias = dict[tuple[bool, str], list[Watch]]


def on_file_thread(tasks: Tasks) -> OffLoop:
    """The broker's OffLoop: a thread that nothing else uses."""

    def run(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        tasks.in_thread(work, Lane.JOURNAL).add_done_callback(lambda ended: done(ended.exception()))

    return run


class _Call:
    """A queued call: `answer` gives its result from the tree, or raises StoreError."""

    __slots__ = ("answer", "reply", "writes")

    def __init__(self, answer: Callable[[], Any], reply: Reply[Any], writes: int = 0) -> None:
        self.answer = answer
        self.reply = reply
        self.writes = writes
        """How many operations it writes; none for a read."""


class EmbeddedStore:
    """A MetadataStore in one folder."""

    def __init__(
        self, files: Files, directory: str, call_soon: CallSoon, off_loop: OffLoop
    ) -> None:
        self._call_soon = call_soon
        self._off_loop = off_loop
        self._journal = Journal(files, directory)
        self._tree = self._journal.load()
        self._queue: list[_Call] = []
        self._transactions: list[bytes] = []
        self._deliveries: list[_Delivery] = []
        self._watches: _Watches = {}
        self._listeners: list[Callable[[SessionState], None]] = []
        self._busy = False
        self._closed = False
        self._session = self._begin_session()

    def _begin_session(self) -> int:
        """Bury the ephemerals of the last life; the burial's transaction names the new session."""
        burial = [Delete(path) for path in self._tree.ephemerals()]
        session = self._tree.zxid + 1
        _, edits = self._tree.transact(burial, session)
        if edits:
            self._journal.append([encode_transaction(self._tree.zxid, edits)])
        return session

    @property
    def session_id(self) -> int:
        """The owner of the ephemeral nodes made from here."""
        return self._session

    def create(
        self,
        path: str,
        data: bytes,
        reply: Reply[str],
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> None:
        """Make a node and answer with its path."""
        self._write_one(Create(path, data, ephemeral, sequential), reply)

    def set(self, path: str, data: bytes, version: int, reply: Reply[Stat]) -> None:
        """Replace the data if the node still has `version`."""
        self._write_one(Set(path, data, version), reply)

    def delete(self, path: str, version: int, reply: Reply[None]) -> None:
        """Remove a childless node if it still has `version`."""
        self._write_one(Delete(path, version), reply)

    def multi(self, ops: Sequence[Op], reply: Reply[list[OpResult]]) -> None:
        """All of it or nothing, in order."""
        self._enqueue(_Call(partial(self._transact, ops), reply, writes=len(ops)))

    def get(self, path: str, reply: Reply[Znode], watch: Watch | None = None) -> None:
        """Data and stat."""
        self._enqueue(_Call(partial(self._read, self._tree_get, path, watch), reply))

    def exists(self, path: str, reply: Reply[Stat | None], watch: Watch | None = None) -> None:
        """The stat, or None for an absent node."""
        self._enqueue(_Call(partial(self._read, self._tree_stat, path, watch), reply))

    def children(self, path: str, reply: Reply[list[str]], watch: Watch | None = None) -> None:
        """The names of the children, sorted."""
        self._enqueue(_Call(partial(self._read_children, path, watch), reply))

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Tell `listener` when the session ends."""
        self._listeners.append(listener)

    def close(self) -> None:
        """End the session. What is under way ends; what comes later is refused."""
        self._closed = True
        if not self._busy:
            self._journal.close()

    # The queue and its rounds

    def _write_one(self, op: Op, reply: Reply[Any]) -> None:
        self._enqueue(_Call(lambda: self._transact([op])[0], reply, writes=1))

    def _enqueue(self, call: _Call) -> None:
        self._queue.append(call)
        if not self._busy:
            self._busy = True
            self._call_soon(self._round)

    def _round(self) -> None:
        calls = self._next_round()
        watches = {key: list(watching) for key, watching in self._watches.items()}
        for call in calls:
            self._answer(call)
        if self._transactions:
            self._off_loop(self._persist, partial(self._persisted, calls, watches))
        else:
            self._deliver()

    def _next_round(self) -> list[_Call]:
        """Calls for one round, in order and not too many."""
        cost = count = 0
        for call in self._queue:
            cost += call.writes + 1
            count += 1
            if cost >= OPS_PER_ROUND:
                break
        calls, self._queue = self._queue[:count], self._queue[count:]
        return calls

    def _answer(self, call: _Call) -> None:
        if self._closed:
            self._refuse(call, StoreFailure.SESSION_EXPIRED)
            return
        try:
            result = call.answer()
        except StoreError as refusal:
            result = refusal
        self._deliveries.append(partial(call.reply, result))

    def _refuse(self, call: _Call, kind: StoreFailure) -> None:
        self._deliveries.append(partial(call.reply, StoreError(kind, "")))

    def _persist(self) -> None:
        self._journal.append(self._transactions)
        self._journal.compact(self._tree)

    def _persisted(
        self, calls: list[_Call], watches: _Watches, failure: BaseException | None
    ) -> None:
        self._transactions = []
        if failure is not None:
            self._fail_round(calls, watches, failure)
        self._deliver()

    def _fail_round(self, calls: list[_Call], watches: _Watches, failure: BaseException) -> None:
        log.error("the metadata store could not write its journal: %s", failure)
        self._watches = watches
        self._deliveries = []
        for call in calls:
            if call.writes:
                self._refuse(call, StoreFailure.CONNECTION_LOSS)
        self._queue[:0] = [call for call in calls if not call.writes]
        if self._journal.in_doubt or not self._reload():
            self._closed = True
            self._deliveries += [
                partial(listener, SessionState.EXPIRED) for listener in self._listeners
            ]

    def _reload(self) -> bool:
        """Go back to the tree as last promised; the session's ephemerals are still in it."""
        try:
            self._tree = self._journal.load()
        except (OSError, StoreDamaged) as failure:
            log.error("the metadata store cannot read its journal back: %s", failure)
            return False
        return True

    def _deliver(self) -> None:
        now, self._deliveries = (
            self._deliveries[:DELIVERIES_PER_TICK],
            self._deliveries[DELIVERIES_PER_TICK:],
        )
        for delivery in now:
            try:
                delivery()
            except Exception:
                log.exception("a reply of the metadata store was not taken")
        if self._deliveries:
            self._call_soon(self._deliver)
        elif self._queue:
            self._call_soon(self._round)
        else:
            self._busy = False
            if self._closed:
                self._journal.close()

    # What a call does to the tree

    def _transact(self, ops: Sequence[Op]) -> list[OpResult]:
        results, edits = self._tree.transact(ops, self._session)
        if edits:
            self._transactions.append(encode_transaction(self._tree.zxid, edits))
            self._fire(edits)
        return results

    def _tree_get(self, path: str) -> Znode:
        return self._tree.get(path)

    def _tree_stat(self, path: str) -> Stat | None:
        node = self._tree.nodes.get(path)
        return node.stat() if node is not None else None

    def _read(self, read: Callable[[str], Any], path: str, watch: Watch | None) -> Any:
        result = read(path)
        self._leave(False, path, watch)
        return result

    def _read_children(self, path: str, watch: Watch | None) -> list[str]:
        names = self._tree.children(path)
        self._leave(True, path, watch)
        return names

    def _leave(self, of_children: bool, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._watches.setdefault((of_children, path), []).append(watch)

    def _fire(self, edits: Sequence[Edit]) -> None:
        for edit in edits:
            for change, path in seen_by_watches(edit):
                of_children = change is WatchEvent.CHILDREN
                woken = self._watches.pop((of_children, path), [])
                if change is WatchEvent.DELETED:
                    woken += self._watches.pop((True, path), [])
                self._deliveries += [partial(watch, change, path) for watch in woken]
