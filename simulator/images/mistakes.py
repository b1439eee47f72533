"""Planted mistakes of the storage code: the crash images must show each of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from headwater.log.flushing import FlushWork
from headwater.log.future_logs import FutureLog
from headwater.log.loading import LogLoader
from headwater.log.log_dir import LogDir
from headwater.log.partition_log import PartitionLog
from headwater.log.truncation_note import write_start_note
from headwater.replication.cleaning import ReplicaCleaning
from headwater.seams.files import Files, replace_file


def _pages_believed() -> AbstractContextManager[Any]:
    """What a failed sync lost is not written again."""
    return patch.object(LogLoader, "_write_again", lambda *_: None)


def _start_acknowledged_early() -> AbstractContextManager[Any]:
    """DeleteRecords is acknowledged before the start is on the disk."""
    return patch.object(PartitionLog, "durable_start", property(lambda log: log.log_start_offset))


def _start_forgotten_by_a_move() -> AbstractContextManager[Any]:
    """A moved log forgets where it starts, until the next checkpoint."""

    def zero(files: Files, directory: str, _: int) -> None:
        write_start_note(files, directory, 0)

    return patch("headwater.log.future_logs.write_start_note", zero)


def _copy_marked_before_it_is_flushed() -> AbstractContextManager[Any]:
    """A copy counts as complete although the disk does not have it."""
    return patch.object(FutureLog, "flush", lambda _: None)


def _folder_not_synced() -> AbstractContextManager[Any]:
    """A flush syncs bytes, but not the names of new segments."""

    def without_folders(work: FlushWork) -> None:
        work._folders = []
        run(work)

    run = FlushWork.run
    return patch.object(FlushWork, "run", without_folders)


def _name_free_before_the_rename_is_synced() -> AbstractContextManager[Any]:
    """A new topic takes the name of one whose deletion a power cut undoes."""
    return patch.object(LogDir, "sync_renames", lambda _: None)


@contextmanager
def _renamed_before_synced() -> Iterator[None]:
    """Small files get their names before their bytes are on the disk."""

    def hasty(files: Files, path: str, content: bytes, *, sync: bool = True) -> None:
        replace_file(files, path, content, sync=False)

    with (
        patch("headwater.log.checkpoints.replace_file", hasty),
        patch("headwater.log.log_dir.replace_file", hasty),
        patch("headwater.log.truncation_note.replace_file", hasty),
    ):
        yield


def _point_ahead_of_the_flush() -> AbstractContextManager[Any]:
    """The recovery point moves when a flush begins."""

    def early(work: FlushWork, log: PartitionLog) -> None:
        begin(work, log)
        log.recovery_point = log.log_end_offset

    begin = FlushWork.__init__
    return patch.object(FlushWork, "__init__", early)


def _swaps_not_synced() -> AbstractContextManager[Any]:
    """The cleaned end is stored while a power cut can still undo the swaps below it."""
    return patch.object(ReplicaCleaning, "sync", lambda _: None)


class Mistake(NamedTuple):
    """A mistake, and the steps of a play that bring it to light soonest."""

    plant: Callable[[], AbstractContextManager[Any]]
    often: Sequence[str]
    first: int = 0
    """The first seed that is tried: those before it do not find it."""
    topic: str = "plain"
    """The topic that most steps are about."""


MISTAKES: Mapping[str, Mistake] = {
    "pages-believed": Mistake(_pages_believed, ("append", "flush"), first=12),
    "start-acknowledged-early": Mistake(_start_acknowledged_early, ("delete_records",)),
    "start-forgotten-by-a-move": Mistake(
        _start_forgotten_by_a_move, ("delete_records", "move", "checkpoint", "flush"), first=25
    ),
    "copy-marked-early": Mistake(_copy_marked_before_it_is_flushed, ("append", "flush", "move")),
    "folder-not-synced": Mistake(_folder_not_synced, ("flush",)),
    "name-free-early": Mistake(
        _name_free_before_the_rename_is_synced, ("delete_topic", "create_topic", "flush"), first=4
    ),
    "renamed-before-synced": Mistake(_renamed_before_synced, ("checkpoint",)),
    "point-ahead-of-the-flush": Mistake(
        _point_ahead_of_the_flush, ("flush", "checkpoint"), first=10
    ),
    "swaps-not-synced": Mistake(
        _swaps_not_synced, ("compact", "checkpoint", "append"), first=1, topic="compacted"
    ),
}
