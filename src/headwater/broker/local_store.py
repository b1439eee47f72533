"""The embedded metadata store of one broker: its folder, its lock, its disk reserve."""

import asyncio

from headwater.broker.disk_reserve import DiskReserve
from headwater.controller.store.embedded_store import EmbeddedStore
from headwater.controller.store.engine import on_file_thread
from headwater.controller.store.metadata_store import MetadataStore
from headwater.log.log_dir import LogDirError
from headwater.seams import Seams

STORE_FOLDER = "headwater-metadata"
"""The store's folder in the first log dir; no topic's folder can have this name."""


class LocalStore:
    """Holds the lock from `open` to `close`: two brokers never share a folder."""

    def __init__(self, store: MetadataStore, reserve: DiskReserve, lock: int, seams: Seams) -> None:
        self.store = store
        self.reserve = reserve
        self._lock = lock
        self._files = seams.files

    @classmethod
    def open(cls, seams: Seams, log_dir: str) -> "LocalStore":
        """Lock the folder before anything in it is touched; LogDirError says what to do."""
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
            call_soon = asyncio.get_running_loop().call_soon
            run = on_file_thread(seams.tasks)
            store = EmbeddedStore(seams.files, folder, call_soon, run, seams.clock)
        except BaseException:
            seams.files.close(lock)
            raise
        return cls(store, reserve, lock, seams)

    def unlock(self) -> None:
        """Release the folder; the store must be closed."""
        self._files.close(self._lock)
