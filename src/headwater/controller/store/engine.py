"""Runs calls on the embedded store's tree, in order; a write is durable before it is answered.

Calls are queued. A round takes the queued calls, applies them in order, makes the writes durable with
one write and one fdatasync off the loop thread, and only then delivers replies and watches, a bounded
number per tick. The next round waits for that, so no client sees a state that a crash could undo. If
the disk refuses a write, the tree is restored from the journal, the round's writes fail with
CONNECTION_LOSS and its reads run again. If a sync fails, the file can no longer be trusted, and the
engine stops until a restart. A defect in a write stops it, too, because the tree may then differ from
the journal.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

from headwater.controller.store.journal import Journal, StoreDamaged, encode_transaction
from headwater.controller.store.metadata_store import (
    DELIVERIES_PER_TICK,
    Acl,
    Op,
    OpResult,
    Reply,
    Stat,
    StoreError,
    StoreFailure,
    Watch,
    WatchEvent,
)
from headwater.controller.store.tree import Caller, Edit, Tree, seen_by_watches
from headwater.seams.clock import Clock
from headwater.seams.files import Files
from headwater.seams.tasks import Lane, Tasks
from headwater.seams.timers import CallSoon

log = logging.getLogger(__name__)

OPS_PER_ROUND = 1000
"""Keeps one tick of the loop well under 10 ms."""

OffLoop: TypeAlias = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Runs the first call where blocking is allowed, then the second one on the loop with its failure."""

WatchKey: TypeAlias = tuple[bool, str]
"""Whether it watches the list of children, and the path."""

_Delivery: TypeAlias = Callable[[], None]


def on_file_thread(tasks: Tasks) -> OffLoop:
    """The broker's OffLoop: a thread that nothing else uses."""

    def run(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        tasks.in_thread(work, Lane.JOURNAL).add_done_callback(lambda ended: done(ended.exception()))

    return run


class _Call:
    """A queued call: `answer` gives its result from the tree, or raises StoreError."""

    __slots__ = ("answer", "reply", "writes")

    def __init__(self, answer: Callable[[], Any], reply: Reply[Any], writes: int) -> None:
        self.answer = answer
        self.reply = reply
        self.writes = writes


class _Watches:
    """One-time watches by key and owner; a failed round undoes its changes to them."""

    def __init__(self) -> None:
        self._by_key: dict[WatchKey, dict[object, Watch]] = {}
        self._undo: list[Callable[[], None]] = []

    def leave(self, key: WatchKey, owner: object, watch: Watch) -> None:
        owners = self._by_key.setdefault(key, {})
        if owner not in owners:
            owners[owner] = watch
            self._undo.append(partial(self.drop, key, owner))

    def drop(self, key: WatchKey, owner: object) -> None:
        owners = self._by_key.get(key)
        if owners is not None and owner in owners:
            del owners[owner]
            if not owners:
                del self._by_key[key]

    def pop(self, key: WatchKey) -> dict[object, Watch]:
        owners = self._by_key.pop(key, {})
        if owners:
            self._undo.append(partial(self._restore, key, owners))
        return owners

    def _restore(self, key: WatchKey, owners: dict[object, Watch]) -> None:
        self._by_key[key] = owners | self._by_key.get(key, {})

    def keep(self) -> None:
        """The round is durable."""
        self._undo.clear()

    def take_back(self) -> None:
        """The round failed: undo its changes."""
        while self._undo:
            self._undo.pop()()


class StoreEngine:
    """The tree of one folder, shared by any number of sessions."""

    def __init__(
        self, files: Files, directory: str, call_soon: CallSoon, off_loop: OffLoop, clock: Clock
    ) -> None:
        self._call_soon = call_soon
        self._off_loop = off_loop
        self._clock = clock
        self._journal = Journal(files, directory)
        self.tree: Tree = self._journal.load()
        self.durable_zxid = self.tree.zxid
        """The last transaction in the journal; the tree may be ahead of it."""
        self._queue: list[_Call] = []
        self._transactions: list[bytes] = []
        self._deliveries: list[_Delivery] = []
        self._watches = _Watches()
        self._busy = False
        self.ended = False
        self.on_failure: Callable[[], None] = lambda: None
        """Called once if the disk, or the tree in memory, can no longer be trusted."""

    def begin_only_session(self, password: bytes) -> int:
        """Open a session before the first call, ending all that were open; blocks for the disk."""
        for session in {*self.tree.sessions, *self.tree.owners()}:
            self.close_session(session)
        session = self.open_session(0, password)
        self._journal.append(self._transactions)
        self._transactions = []
        self.durable_zxid = self.tree.zxid
        return session

    def submit(self, answer: Callable[[], Any], reply: Reply[Any], writes: int = 0) -> None:
        """Queue a call; `writes` is how many operations it writes, 0 for a read."""
        self._queue.append(_Call(answer, reply, writes))
        if not self._busy:
            self._busy = True
            self._call_soon(self._round)

    def close(self) -> None:
        """Finish what is under way and refuse what comes later."""
        self.ended = True
        if not self._busy:
            self._journal.close()

    # -- what a call may do to the tree, in its turn

    def transact(self, ops: Sequence[Op], caller: Caller) -> list[OpResult]:
        results, edits = self.tree.transact(ops, caller)
        self._changed(caller.now_ms, edits)
        return results

    def set_acl(self, path: str, acl: Sequence[Acl], version: int, caller: Caller) -> Stat:
        stat, edits = self.tree.set_acl(path, acl, version, caller)
        self._changed(caller.now_ms, edits)
        return stat

    def open_session(self, timeout_ms: int, password: bytes) -> int:
        now_ms = self.now_ms()
        self._changed(now_ms, self.tree.open_session(timeout_ms, password, now_ms))
        return self.tree.zxid

    def close_session(self, session: int) -> None:
        now_ms = self.now_ms()
        self._changed(now_ms, self.tree.close_session(session, now_ms))

    def watch(self, of_children: bool, path: str, owner: object, watch: Watch) -> None:
        """Call `watch` at the next change; a second watch of the same owner is ignored."""
        self._watches.leave((of_children, path), owner, watch)

    def drop_watches(self, keys: Iterable[WatchKey], owner: object) -> None:
        for key in keys:
            self._watches.drop(key, owner)

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def _changed(self, now_ms: int, edits: Sequence[Edit]) -> None:
        if not edits:
            return
        self._transactions.append(encode_transaction(self.tree.zxid, now_ms, edits))
        for edit in edits:
            for change, path in seen_by_watches(edit):
                woken = self._watches.pop((change is WatchEvent.CHILDREN, path))
                if change is WatchEvent.DELETED:
                    woken = self._watches.pop((True, path)) | woken
                self._deliveries += [partial(watch, change, path) for watch in woken.values()]

    # -- rounds

    def _round(self) -> None:
        calls = self._next_calls()
        for call in calls:
            self._answer(call)
        if self._transactions:
            self._off_loop(self._persist, partial(self._persisted, calls))
        else:
            self._watches.keep()
            self._deliver()

    def _next_calls(self) -> list[_Call]:
        """Take the calls of one round, in order, up to the limit."""
        cost = count = 0
        for call in self._queue:
            cost += call.writes + 1
            count += 1
            if cost >= OPS_PER_ROUND:
                break
        calls, self._queue = self._queue[:count], self._queue[count:]
        return calls

    def _answer(self, call: _Call) -> None:
        if self.ended:
            self._refuse(call, StoreFailure.SESSION_EXPIRED)
            return
        try:
            result = call.answer()
        except StoreError as refusal:
            result = refusal
        except Exception:
            log.exception("a call of the metadata store failed")
            self._refuse(call, StoreFailure.CONNECTION_LOSS)
            if (
                call.writes
            ):  # nobody knows how much of it is in the tree, and none is in the journal
                self.ended = True
                self._deliveries.append(self.on_failure)
            return
        self._deliveries.append(partial(call.reply, result))

    def _refuse(self, call: _Call, kind: StoreFailure) -> None:
        self._deliveries.append(partial(call.reply, StoreError(kind, "")))

    def _persist(self) -> None:
        self._journal.append(self._transactions)
        self._journal.compact(self.tree)

    def _persisted(self, calls: list[_Call], failure: BaseException | None) -> None:
        self._transactions = []
        if failure is None:
            self.durable_zxid = self.tree.zxid
            self._watches.keep()
        else:
            self._fail_round(calls, failure)
        self._deliver()

    def _fail_round(self, calls: list[_Call], failure: BaseException) -> None:
        log.error("the metadata store could not write its journal: %s", failure)
        self._watches.take_back()
        self._deliveries = []
        for call in calls:
            if call.writes:
                self._refuse(call, StoreFailure.CONNECTION_LOSS)
        self._queue[:0] = [call for call in calls if not call.writes]
        if self._journal.in_doubt or not self._reload():
            self.ended = True
            self._deliveries.append(self.on_failure)

    def _reload(self) -> bool:
        """Restore the last durable tree; the ephemeral nodes of open sessions are still in it."""
        try:
            self.tree = self._journal.load()
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
                log.exception("a callback of the metadata store failed")
        if self._deliveries:
            self._call_soon(self._deliver)
        elif self._queue:
            self._call_soon(self._round)
        else:
            self._busy = False
            if self.ended:
                self._journal.close()
