"""A metadata store on its own host: its calls and replies travel over links that can be cut."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from headwater.broker.lifecycle_loop import OpenStore
from headwater.broker.local_store import LocalStore
from headwater.controller.store.metadata_store import (
    MetadataStore,
    Op,
    OpResult,
    Reply,
    SessionState,
    Stat,
    StoreError,
    Watch,
    WatchEvent,
    Znode,
)
from headwater.seams import Seams
from simulator.loop import SimLoop
from simulator.network import SimNetwork

T = TypeVar("T")

STORE_HOST = "store"


class RemoteStore:
    """`store` as seen over the network: each call, reply and watch crosses a link, in order."""

    def __init__(self, network: SimNetwork, loop: SimLoop, store: MetadataStore) -> None:
        self._network = network
        self._loop = loop
        self._store = store

    @property
    def session_id(self) -> int:
        """The owner of the ephemeral nodes made from here."""
        return self._store.session_id

    def create(
        self,
        path: str,
        data: bytes,
        reply: Reply[str],
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> None:
        """Create a node."""
        answer = self._answer(reply)
        self._call(
            lambda: self._store.create(
                path, data, answer, ephemeral=ephemeral, sequential=sequential
            )
        )

    def get(self, path: str, reply: Reply[Znode], watch: Watch | None = None) -> None:
        """Read a node."""
        self._call(partial(self._store.get, path, self._answer(reply), self._watch(watch)))

    def exists(self, path: str, reply: Reply[Stat | None], watch: Watch | None = None) -> None:
        """Read a node's stat."""
        self._call(partial(self._store.exists, path, self._answer(reply), self._watch(watch)))

    def children(self, path: str, reply: Reply[list[str]], watch: Watch | None = None) -> None:
        """List a node's children."""
        self._call(partial(self._store.children, path, self._answer(reply), self._watch(watch)))

    def set(self, path: str, data: bytes, version: int, reply: Reply[Stat]) -> None:
        """Replace a node's data."""
        self._call(partial(self._store.set, path, data, version, self._answer(reply)))

    def delete(self, path: str, version: int, reply: Reply[None]) -> None:
        """Delete a node."""
        self._call(partial(self._store.delete, path, version, self._answer(reply)))

    def multi(self, ops: Sequence[Op], reply: Reply[list[OpResult]]) -> None:
        """Apply all operations or none."""
        self._call(partial(self._store.multi, ops, self._answer(reply)))

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Report changes of the session."""
        self._store.on_session(lambda state: self._return(partial(listener, state)))

    def close(self) -> None:
        """End the session."""
        self._store.close()

    def _call(self, call: Callable[[], object]) -> None:
        self._network.carry((self._loop.host, STORE_HOST), self._loop, call)

    def _return(self, call: Callable[[], object]) -> None:
        self._network.carry((STORE_HOST, self._loop.host), self._loop, call)

    def _answer(self, reply: Reply[T]) -> Reply[T]:
        def answered(result: T | StoreError) -> None:
            self._return(partial(reply, result))

        return answered

    def _watch(self, watch: Watch | None) -> Watch | None:
        if watch is None:
            return None
        wanted = watch

        def fired(event: WatchEvent, path: str) -> None:
            self._return(partial(wanted, event, path))

        return fired


def open_remote_store(network: SimNetwork) -> OpenStore:
    """Give a broker a store that it reaches over `network`."""

    def open_store(seams: Seams, log_dir: str) -> LocalStore:
        local = LocalStore.open(seams, log_dir)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        local.store = RemoteStore(network, loop, local.store)
        return local

    return open_store
