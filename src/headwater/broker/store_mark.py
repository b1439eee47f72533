"""Detects a metadata store that was restored from an older copy, also after a restart of this broker.

The in-sync sets of an older copy name replicas that may lack acknowledged records. So a broker marks
the store: it writes a node of its own after every control request that it applies. Its log dirs keep
the transaction of the last mark. In an older copy the node has an earlier transaction, even if the
store has processed others since, and the broker stays out.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from headwater.broker.context import OffLoop
from headwater.controller.store.metadata_store import (
    MetadataStore,
    Stat,
    StoreError,
    StoreFailure,
)
from headwater.controller.store.znodes import store_mark_path
from headwater.log.checked_json import dump_checked, load_checked
from headwater.log.log_dir import LogDir
from headwater.seams.files import Files, read_file, replace_file
from headwater.seams.tasks import Lane
from headwater.seams.timers import CallLater

log = logging.getLogger(__name__)

FILE_NAME = "headwater-store-mark"
PAUSE_S = 0.2
"""The time between two marks while control requests keep coming."""


def read_noted_mark(files: Files, log_dirs: Iterable[str]) -> int:
    """Read the transaction of the last mark; the highest of all log dirs, 0 if none has one."""
    return max((_noted(files, f"{path.rstrip('/')}/{FILE_NAME}") for path in log_dirs), default=0)


def _noted(files: Files, path: str) -> int:
    try:
        return int(load_checked(read_file(files, path))["zxid"])
    except OSError:
        return 0  # a new folder, or a disk whose failure is reported when it is opened
    except (ValueError, KeyError, TypeError):
        log.warning("%s is damaged and ignored", path)
        return 0


def read_mark(
    store: MetadataStore, node_id: int, reply: Callable[[int | StoreError], None]
) -> None:
    """Reply with the transaction of this broker's mark in the store; 0 if it has none."""

    def found(stat: Stat | StoreError | None) -> None:
        if isinstance(stat, Stat):
            reply(stat.mzxid)
        else:
            reply(0 if stat is None else stat)

    store.exists(store_mark_path(node_id), found)


def older_store_text(found: int, noted: int) -> str:
    """Say how a store shows that it is an older copy, and what to do."""
    return (
        f"this broker marked it in transaction {noted:#x}, its mark there is of {found:#x}; the broker keeps its logs and does not "
        "register, because older in-sync sets lose acknowledged records; restore the newest data of "
        "the store and restart the brokers, or accept the loss: stop all brokers, remove "
        f"{FILE_NAME} from their log dirs and start them again"
    )


class StoreMark:
    """Marks the store and notes the mark; at most one mark is in progress."""

    def __init__(
        self,
        store: MetadataStore,
        node_id: int,
        files: Files,
        dirs: Sequence[LogDir],
        off_loop: OffLoop,
        call_later: CallLater,
    ) -> None:
        self.zxid = read_noted_mark(files, [log_dir.path for log_dir in dirs])
        """The transaction of the last mark."""
        self._store = store
        self._path = store_mark_path(node_id)
        self._files = files
        self._dirs = dirs
        self._off_loop = off_loop
        self._call_later = call_later
        self._busy = False
        self._wanted = False
        self._stopped = False

    def renew(self) -> None:
        """Mark the store and note it, at once or after the mark in progress."""
        if self._busy:
            self._wanted = True
            return
        self._busy, self._wanted = True, False
        self.mark(self._marked)

    def mark(self, done: Callable[[], None]) -> None:
        """Mark the store; `zxid` then has the transaction, unless the store failed or is older."""

        def found(stat: Stat | StoreError | None) -> None:
            if stat is None and not self.zxid:
                self._store.create(self._path, b"", created)
            elif isinstance(stat, Stat) and stat.mzxid >= self.zxid:
                # An older copy that has replaced the store meanwhile has another version.
                self._store.set(self._path, b"", stat.version, stored)
            else:
                done()

        def created(result: str | StoreError) -> None:
            if isinstance(result, StoreError) and result.kind is not StoreFailure.NODE_EXISTS:
                done()
            else:
                self._store.exists(self._path, found)

        def stored(result: Stat | StoreError) -> None:
            if isinstance(result, Stat):
                self.zxid = max(self.zxid, result.mzxid)
            done()

        self._store.exists(self._path, found)

    def note(self) -> None:
        """Write the transaction of the last mark into the log dirs; OSError if one fails."""
        if self.zxid:
            content = dump_checked({"version": 0, "zxid": self.zxid})
            for log_dir in self._dirs:
                if not log_dir.offline:
                    replace_file(self._files, log_dir.join(FILE_NAME), content)

    def stop(self) -> None:
        """Note no more marks: the last one is noted by the broker that stops."""
        self._stopped = True

    def _marked(self) -> None:
        if self._stopped:
            return  # the threads that write files have ended
        self._off_loop(self.note, self._noted, Lane.FILES)

    def _noted(self, _: object, failure: Exception | None) -> None:
        if failure is not None:
            log.info("the mark of this broker could not be noted in its log dirs: %s", failure)
        self._call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._busy = False
        if self._wanted:
            self.renew()
