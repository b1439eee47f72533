"""The metadata store of a single broker: the tree in its own process, one session per start."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headwater.controller.store.engine import OffLoop, StoreEngine
from headwater.controller.store.metadata_store import (
    Create,
    Delete,
    Op,
    OpResult,
    Reply,
    SessionState,
    Set,
    Stat,
    Watch,
    Znode,
)
from headwater.controller.store.tree import Caller, Tree
from headwater.seams.clock import Clock
from headwater.seams.files import Files
from headwater.seams.timers import CallSoon

_NO_PASSWORD = bytes(16)


class EmbeddedStore:
    """A MetadataStore in one folder."""

    def __init__(
        self, files: Files, directory: str, call_soon: CallSoon, off_loop: OffLoop, clock: Clock
    ) -> None:
        self._engine = StoreEngine(files, directory, call_soon, off_loop, clock)
        self._engine.on_failure = self._expire
        self._listeners: list[Callable[[SessionState], None]] = []
        self._session = self._engine.begin_only_session(_NO_PASSWORD)

    @property
    def tree(self) -> Tree:
        """The tree, for reading only."""
        return self._engine.tree

    @property
    def session_id(self) -> int:
        """The owner of the ephemeral nodes created here."""
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
        """Create a node and answer with its path."""
        self._write_one(Create(path, data, ephemeral, sequential), reply)

    def set(self, path: str, data: bytes, version: int, reply: Reply[Stat]) -> None:
        """Replace the data if the node still has `version`."""
        self._write_one(Set(path, data, version), reply)

    def delete(self, path: str, version: int, reply: Reply[None]) -> None:
        """Delete a childless node if it still has `version`."""
        self._write_one(Delete(path, version), reply)

    def multi(self, ops: Sequence[Op], reply: Reply[list[OpResult]]) -> None:
        """All of it or nothing, in order."""
        self._engine.submit(partial(self._transact, ops), reply, writes=len(ops))

    def get(self, path: str, reply: Reply[Znode], watch: Watch | None = None) -> None:
        """Data and stat."""
        self._engine.submit(partial(self._get, path, watch), reply)

    def exists(self, path: str, reply: Reply[Stat | None], watch: Watch | None = None) -> None:
        """The stat, or None for an absent node."""
        self._engine.submit(partial(self._stat, path, watch), reply)

    def children(self, path: str, reply: Reply[list[str]], watch: Watch | None = None) -> None:
        """The names of the children, sorted."""
        self._engine.submit(partial(self._children, path, watch), reply)

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` when the session ends."""
        self._listeners.append(listener)

    def close(self) -> None:
        """End the session: pending calls complete, later ones are refused."""
        self._engine.close()

    def _expire(self) -> None:
        for listener in self._listeners:
            listener(SessionState.EXPIRED)

    # -- in a call's turn

    def _write_one(self, op: Op, reply: Reply[Any]) -> None:
        self._engine.submit(lambda: self._transact([op])[0], reply, writes=1)

    def _transact(self, ops: Sequence[Op]) -> list[OpResult]:
        return self._engine.transact(ops, Caller(self._session, self._engine.now_ms()))

    def _get(self, path: str, watch: Watch | None) -> Znode:
        node = self._engine.tree.get(path)
        self._leave(False, path, watch)
        return node

    def _stat(self, path: str, watch: Watch | None) -> Stat | None:
        stat = self._engine.tree.stat(path)
        self._leave(False, path, watch)
        return stat

    def _children(self, path: str, watch: Watch | None) -> list[str]:
        names = self._engine.tree.children(path)
        self._leave(True, path, watch)
        return names

    def _leave(self, of_children: bool, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._engine.watch(of_children, path, object(), watch)
