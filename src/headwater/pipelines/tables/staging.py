"""Files that were written and are not in a table yet: where attempts write, and what they left.

Each attempt at a batch has a folder of its own, so two attempts never mix and no reader looks in.
What an attempt wrote is removed only when the log can no longer come to name it.
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
    """A folder name for an application: its own where that is a plain word, else a digest."""
    return app if _PLAIN_NAME.fullmatch(app) else hashlib.sha256(app.encode()).hexdigest()[:40]


def staging_folder(folder: str, app: str, batch: int) -> str:
    """Where the attempts at a batch write: below an underscore, where no reader looks."""
    return os.path.join(folder, "_headwater", "staging", folder_of(app), str(batch))


def new_attempt(base: str) -> str:
    """A folder below the base that nobody wrote to before; it is not made."""
    return os.path.join(base, uuid.uuid4().hex)


def staged_files(attempt: str, partition_by: Sequence[str]) -> list[StagedFile]:
    """What Spark wrote into the attempt's folder, with footers; files of no rows are left out."""
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
    """The columns and values in a folder's name, as Spark and Hive write them."""
    steps = (step.partition("=") for step in folder.split("/") if "=" in step)
    return tuple(
        (unquote(name), None if value == NULL_FOLDER else unquote(value))
        for name, _, value in steps
    )


def partition_folder(folder: str) -> str:
    """The folder of a placed file by that of the attempt: copies of columns lose their suffix."""
    return folder.replace(f"{COPY_SUFFIX}=", "=")


def place(files: Sequence[StagedFile], base: str, root: str) -> list[StagedFile]:
    """Moves files from the attempts below `base` to where the table has its files, below `root`.

    A name tells the attempt; the folders of the attempt stay, and tell where its files went.
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
    """The attempt in the name of a placed file; some word for files of other writers."""
    return os.path.basename(path).removeprefix("part-").partition("-")[0]


def drop_attempts(base: str, root: str, taken: Collection[str]) -> None:
    """Removes the folders of the attempts below `base`, and the placed files of all not taken.

    Call it when the batch is in the table: then no other attempt can be committed any more.
    """
    for attempt in _subfolders(base):
        drop_attempt(base, os.path.join(base, attempt), None if attempt in taken else root)
    shutil.rmtree(base, ignore_errors=True)


def drop_attempt(base: str, tree: str, placed_in: str | None = None) -> None:
    """Removes one attempt's folder below `base`, and its placed files where their place is given.

    For compactions: others may be at work below the same base, or have just won.
    """
    if placed_in is not None:
        for file in list(_placed(tree, placed_in, os.path.basename(tree))):
            os.remove(file)
    shutil.rmtree(tree, ignore_errors=True)
    with suppress(OSError):  # somebody else's attempt is there
        os.rmdir(base)


def drop_losers(base: str, root: str, won: str | None, in_table: Files) -> None:
    """Like drop_attempts; `won` is in the table, or the table's files tell which attempt is.

    Where they tell of none (a compaction took their place), older versions may still need one,
    so all stay for vacuum to judge.
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
