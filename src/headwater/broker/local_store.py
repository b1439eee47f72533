"""Opens the metadata store of one broker: embedded in its first log dir, or a session with ZooKeeper.

Either way, the broker locks a folder in its first log dir, which also holds the disk reserve.
"""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from ssl import SSLContext
from typing import TypeAlias

from headwater.broker.disk_reserve import DiskReserve
from headwater.broker.registration import JoinError
from headwater.broker.wall_clock import LastTime
from headwater.config.broker import BrokerSettings
from headwater.controller.store.embedded_store import EmbeddedStore
from headwater.controller.store.engine import on_file_thread
from headwater.controller.store.metadata_store import AclReader, MetadataStore
from headwater.log.log_dir import LogDirError
from headwater.seams import Seams

STORE_FOLDER = "headwater-metadata"
"""The store's folder in the first log dir; no topic's folder can have this name."""
CLOSE_TIMEOUT_S = 5.0

MakeStore: TypeAlias = Callable[[Seams, str], MetadataStore]
"""Opens a store; the folder is for one that keeps files."""


class LocalStore:
    """Holds the lock from `open` to `close`: two brokers never share a folder.

    `is_shared` is set for the store of a cluster, whose sessions may expire and be replaced. An
    embedded store ends its session only if its disk fails.

    `refuses_other_time` is set for a store with a clock of its own: no broker whose clock is far from
    it starts. Simulated brokers run with any clock, as one does whose clock jumps later.
    """

    def __init__(
        self, store: MetadataStore, reserve: DiskReserve, lock: int, seams: Seams, folder: str
    ) -> None:
        self.store = store
        self.reserve = reserve
        self.is_shared = self.refuses_other_time = False
        self._last_time = LastTime(seams.files, folder)
        self.wait_closed: Callable[[], None] = _nothing_to_wait_for
        """Blocks until the servers of a shared store have ended the session."""
        self.owned: AclReader | None = None
        """The store, if its nodes belong to the login of the brokers."""
        self._lock = lock
        self._files = seams.files

    @classmethod
    def open(cls, seams: Seams, log_dir: str) -> "LocalStore":
        """The embedded store of a single broker; LogDirError says what to do."""
        return cls._open(seams, log_dir, _embedded)

    @classmethod
    def open_zookeeper(cls, settings: BrokerSettings, seams: Seams, log_dir: str) -> "LocalStore":
        """A session with the ZooKeeper of `zookeeper.connect`."""
        from headwater.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore

        hosts, chroot = settings.zookeeper_address
        wanted = ZooKeeperSettings(
            hosts,
            chroot,
            settings.zookeeper_session_timeout_ms,
            settings.zookeeper_login,
            settings.zookeeper_set_acl,
            tls_to_zookeeper(settings),
        )
        loop = asyncio.get_running_loop()

        def call_soon(call: Callable[..., object], *args: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(call, *args)

        def connect(_: Seams, folder: str) -> MetadataStore:
            return ZooKeeperStore(wanted, seams.clock, call_soon, loop.call_later)

        local = cls._open(seams, log_dir, connect)
        local.is_shared = local.refuses_other_time = True
        if isinstance(local.store, ZooKeeperStore):
            local.wait_closed = partial(local.store.wait_closed, CLOSE_TIMEOUT_S)
            local.owned = local.store if settings.zookeeper_set_acl else None
        return local

    @classmethod
    def _open(cls, seams: Seams, log_dir: str, make: MakeStore) -> "LocalStore":
        """Lock the folder before anything in it is touched."""
        folder = f"{log_dir}/{STORE_FOLDER}"
        try:
            seams.files.mkdir(folder)
            lock = seams.files.lock(f"{folder}/.lock")
        except BlockingIOError:
            raise LogDirError(
                f"{log_dir} is in use by another broker: "
                "stop it, or choose another folder with --data-dir (log.dirs)"
            ) from None
        except OSError as failure:
            raise LogDirError(
                f"the data folder {log_dir} cannot be used ({failure.strerror}): repair it, or "
                "choose another with --data-dir (log.dirs, the first of which holds the metadata)"
            ) from failure
        try:
            reserve = DiskReserve(seams.files, folder)
            reserve.give_up_if_full()
            store = make(seams, folder)
        except BaseException:
            seams.files.close(lock)
            raise
        return cls(store, reserve, lock, seams, folder)

    @property
    def own_time(self) -> LastTime | None:
        """The record of the time that this broker keeps; in a cluster it asks the store instead."""
        return None if self.is_shared else self._last_time

    def unlock(self) -> None:
        """Release the folder; the store must be closed."""
        self._files.close(self._lock)


def tls_to_zookeeper(settings: BrokerSettings) -> SSLContext | None:
    from headwater.controller.store.kazoo_adapter import tls_context

    tls = settings.zookeeper_tls
    if tls is None:
        return None
    try:
        return tls_context(tls)
    except OSError as failure:
        raise JoinError(
            f"TLS to ZooKeeper cannot be set up with zookeeper.ssl.keystore.location={tls.keystore} "
            f"and zookeeper.ssl.truststore.location={tls.truststore} ({failure}): correct the files, "
            "their password or their paths"
        ) from failure


def _embedded(seams: Seams, folder: str) -> MetadataStore:
    call_soon = asyncio.get_running_loop().call_soon
    return EmbeddedStore(seams.files, folder, call_soon, on_file_thread(seams.tasks), seams.clock)


def _nothing_to_wait_for() -> None:
    """An embedded store is closed when `close` returns."""
