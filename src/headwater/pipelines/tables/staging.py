"""Staged files, which are written but not in a table yet: where attempts write, what they leave.

Each attempt at a batch has its own folder, so attempts never mix and no reader looks there. The
files of an attempt are removed only when no commit can name them any more.
"""

import glob
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from urllib.parse import unquote

import pyarrow.parquet as pq

from headwater.pipelines.tables.table import DataFile, Partition, StagedFile, TableError

Files = Callable[[], Iterable[DataFile]]
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
COPY_SUFFIX = "__folder"
"""Of columns that name folders where the files hold the partition columns as well."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")


def folder_of(app: str) -> str:
    """Return a folder name for an application: its name if it is plain, else a digest."""
    return app if _PLAIN_NAME.fullmatch(app) else hashlib.sha256(app.encode()).hexdigest()[:40]


def staging_folder(folder: str, app: str, batch: int) -> str:
    """Return the folder for attempts at a batch: below an underscore, where no reader looks."""
    return os.path.join(folder, "_headwater", "staging", folder_of(app), str(batch))


def new_attempt(base: str) -> str:
    """Return the path of a new attempt's folder below the base; it is not created."""
    return os.path.join(base, uuid.uuid4().hex)


def staged_files(attempt: str, partition_by: Sequence[str]) -> list[StagedFile]:
    """Return the files that Spark wrote for an attempt, with footers; empty files are left out."""
    found = (_staged(path, attempt, partition_by) for path in sorted(_parquet_files(attempt)))
    return [file for file in found if file.rows]


def _parquet_files(folder: str) -> Iterator[str]:
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".parquet") and name[0] not in "._":
                yield os.path.join(where, name)


def _staged(path: str, attempt: str, partition_by: Sequence[str]) -> StagedFile:
    values = folder_values(os.path.relpath(os.path.dirname(path), attempt))
    if len(values) != len(partition_by):
        raise TableError(f"{path} is not in a folder of the partitions {', '.join(partition_by)}")
    partition = tuple((name, value) for name, (_, value) in zip(partition_by, values, strict=True))
    return StagedFile(path, os.path.getsize(path), partition, pq.read_metadata(path))


def folder_values(folder: str) -> Partition:
    """Return the columns and values in a folder's name, as Spark and Hive write them."""
    steps = (step.partition("=") for step in folder.split("/") if "=" in step)
    return tuple(
        (unquote(name), None if value == NULL_FOLDER else unquote(value))
        for name, _, value in steps
    )


def partition_folder(folder: str) -> str:
    """Return the folder of a placed file: copies of partition columns lose their suffix."""
    return folder.replace(f"{COPY_SUFFIX}=", "=")


def place(files: Sequence[StagedFile], base: str, root: str) -> list[StagedFile]:
    """Move files from attempts below `base` to the table's files below `root`.

    File names contain the attempt; the folders of the attempt remain, to find its files again.
    """
    placed = []
    for number, file in enumerate(files):
        attempt, _, inside = os.path.relpath(file.path, base).partition(os.sep)
        folder = partition_folder(os.path.dirname(inside))
        name = os.path.join(root, folder, f"part-{attempt}-{number:05}.parquet")
        os.makedirs(os.path.dirname(name), exist_ok=True)
        os.rename(file.path, name)
        placed.append(file._replace(path=name))
    return placed


def attempt_of(path: str) -> str:
    """Return the attempt in the name of a placed file; any text for files of other writers."""
    return os.path.basename(path).removeprefix("part-").partition("-")[0]


def drop_attempts(base: str, root: str, taken: Collection[str]) -> None:
    """Remove the folders of attempts below `base`, and the placed files of those not `taken`.

    Call it when the batch is in the table: then no other attempt can be committed.
    """
    for attempt in _subfolders(base):
        drop_attempt(base, os.path.join(base, attempt), None if attempt in taken else root)
    shutil.rmtree(base, ignore_errors=True)


def drop_attempt(base: str, tree: str, placed_in: str | None = None) -> None:
    """Remove one attempt's folder below `base`, and its placed files below `placed_in`.

    For compactions: other attempts may be active below the same base, or may have just won.
    """
    if placed_in is not None:
        for file in list(_placed(tree, placed_in, os.path.basename(tree))):
            os.remove(file)
    shutil.rmtree(tree, ignore_errors=True)
    with suppress(OSError):  # it has another attempt
        os.rmdir(base)


def drop_losers(base: str, root: str, won: str | None, in_table: Files) -> None:
    """Like drop_attempts; `won` is in the table, or the table's files show which attempt is.

    If they show none (a compaction replaced them), older versions may still need one, so all
    are left to vacuum.
    """
    attempts = _subfolders(base)
    if not attempts:
        return
    taken = {won} if won else attempts & {attempt_of(file.path) for file in in_table()}
    if taken:
        drop_attempts(base, root, taken)


def _placed(tree: str, root: str, attempt: str) -> Iterator[str]:
    for where, _, _ in os.walk(tree):
        below = partition_folder(os.path.relpath(where, tree))
        folder = os.path.normpath(os.path.join(root, below))
        yield from glob.iglob(os.path.join(glob.escape(folder), f"part-{attempt}-*.parquet"))


def _subfolders(folder: str) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder) if entry.is_dir()}
    except FileNotFoundError:
        return set()
