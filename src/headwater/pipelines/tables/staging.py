"""Files that were written and are not in a table yet: where attempts write, and what they left.

Each attempt at a batch has a folder of its own, so two attempts never mix and no reader looks in.
A folder is removed only when the log can no longer come to name it.
"""

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import unquote

import pyarrow.parquet as pq

from headwater.pipelines.tables.table import DataFile, Partition, StagedFile, Table, TableError

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")


def folder_of(app: str) -> str:
    """A folder name for an application: its own where that is a plain word, else a digest."""
    return app if _PLAIN_NAME.fullmatch(app) else hashlib.sha256(app.encode()).hexdigest()[:40]


def new_attempt(table: Table, app: str, batch: int) -> str:
    """A folder that nobody wrote to before; it is not made."""
    return os.path.join(table.staging(app, batch), uuid.uuid4().hex)


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


def drop_attempt(attempt: str) -> None:
    """Removes an attempt whose files were never offered to the log."""
    shutil.rmtree(attempt, ignore_errors=True)


def drop_losers(base: str, in_table: Callable[[], Iterable[DataFile]]) -> None:
    """Removes the attempts below `base` that the log did not take; `in_table` are its files.

    Call it when the batch is in the table: then no other attempt can be committed any more. Where
    the log names none of the attempts (a compaction took their place), older versions may still
    need one, so all stay for vacuum to judge.
    """
    attempts = _subfolders(base)
    if len(attempts) < 2:
        return
    taken = _first_steps(base, (file.path for file in in_table()))
    if taken:
        for attempt in attempts - taken:
            drop_attempt(os.path.join(base, attempt))


def _subfolders(folder: str) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder) if entry.is_dir()}
    except FileNotFoundError:
        return set()


def _first_steps(base: str, paths: Iterable[str]) -> set[str]:
    prefix = base + os.sep
    return {path[len(prefix) :].partition(os.sep)[0] for path in paths if path.startswith(prefix)}
