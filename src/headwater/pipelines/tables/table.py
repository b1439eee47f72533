"""What the three kinds of tables have in common: the face that writing and reading work with.

A table is a folder of Parquet files and a log of versions. Only what the log names is in the table.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.pipelines.targets import Target, parse_target

Partition = tuple[tuple[str, str | None], ...]
"""Partition columns and their values as text, in the table's order; None is SQL's NULL."""

BEFORE_ALL = -1
"""The version of a table, or the batch of an application, before the first one."""


class TableError(Exception):
    """A table refuses what was asked, and says why and what to do."""


class TableConflict(TableError):
    """Another committer was faster every time; nothing was committed."""


class TableReplaced(TableError):
    """Rows that a stream has read were replaced or deleted: it cannot go on by appending."""


class DataFile(NamedTuple):
    """A file of a table: an absolute path and what the log knows of it."""

    path: str
    rows: int
    size: int
    partition: Partition = ()


class StagedFile(NamedTuple):
    """A file that was written into the table's folder and that no log names yet."""

    path: str
    size: int
    partition: Partition
    footer: pq.FileMetaData

    @property
    def rows(self) -> int:
        """How many rows the file has, by its footer."""
        return int(self.footer.num_rows)


@dataclass(frozen=True)
class TableChange:
    """What one batch of an application does to a table."""

    files: Sequence[StagedFile]
    schema: pa.Schema
    """The columns of the batch, as `Table.stored` returns them."""
    app: str
    batch: int
    partition_by: Sequence[str] = ()
    replaces: bool = False
    """Whether the same commit drops all rows and columns of before."""


class Compaction(NamedTuple):
    """What a compaction did: the rows are the same, in fewer files."""

    merged: int
    written: int


class Table(Protocol):
    """A table of any kind. One thread uses it; many processes may commit to the same folder."""

    target: Target
    keeps_partition_columns: bool
    """Whether data files hold the partition columns too, beside the folder's name."""
    widens_columns: bool
    """Whether a column can take a wider number type while older files keep the narrower one."""

    def exists(self) -> bool:
        """Whether there is a table in the folder, empty or not."""

    def version(self) -> int:
        """The newest version, looked up now; BEFORE_ALL where there is no table."""

    def schema(self) -> pa.Schema:
        """All columns in their order, those of partitions included."""

    def partition_by(self) -> tuple[str, ...]:
        """The columns that name folders."""

    def files(self, version: int | None = None) -> list[DataFile]:
        """The files of the newest version, or of an older one that is still kept."""

    def added(self, after: int, upto: int) -> list[tuple[int, list[DataFile]]]:
        """Files with new rows by version, for versions above `after` and up to `upto`.

        Compactions add none. Raises TableReplaced where rows were replaced or deleted.
        """

    def first_version(self) -> int:
        """Where a fresh stream begins: its whole content, then what later versions added."""

    def last_batch(self, app: str) -> int:
        """The highest batch of the application that is in the table; BEFORE_ALL: none."""

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """The schema as this kind of table keeps it; refuses types that it cannot keep."""

    def staging(self, app: str, batch: int) -> str:
        """The folder for the attempts at one batch: each in a folder of its own below."""

    def commit(self, change: TableChange) -> bool:
        """Apply a change in one atomic commit with its batch; create the table and new columns.

        Return False, with nothing changed, if the table has the batch already.
        """

    def drop_leftovers(self, app: str, batch: int, won: str | None = None) -> None:
        """Removes what attempts at a batch left, once the batch is in the table.

        `won` is the attempt that was taken; the log is asked where that is not known.
        """

    def compact(self, target_bytes: int) -> Compaction:
        """Merges small files towards `target_bytes`; readers see the same rows all the time."""

    def expire(self, hours: int) -> int:
        """Removes versions older than `hours` and the files that only they name; how many files."""


_MISREAD: Final = {
    "delta": re.compile(r"%[0-9A-Fa-f]{2}|\\"),
    "iceberg": re.compile(r"%[0-9A-Fa-f]{2}|\?"),
}
"""What the libraries take for something else in the path of a folder."""


def open_table(target: Target | str) -> Table:
    """The table at the target, which need not exist yet."""
    target = parse_target(target) if isinstance(target, str) else target
    misread = _MISREAD.get(target.kind)
    if misread and (found := misread.search(target.place)):
        raise TableError(
            f"{target}: the {target.kind} library misreads {found[0]!r} in a path; use another folder"
        )
    match target.kind:
        case "delta":
            from headwater.pipelines.tables.delta import DeltaBackend

            return DeltaBackend(target)
        case "iceberg":
            from headwater.pipelines.tables.iceberg import IcebergBackend

            return IcebergBackend(target)
        case "parquet":
            from headwater.pipelines.tables.parquet import ParquetBackend

            return ParquetBackend(target)
        case "topic":
            raise TableError(f"{target} is a topic, not a table")
