"""The interface of tables, which Delta, Iceberg and Parquet implement.

A table is a folder of Parquet files and a log of versions. Only files in the log are in the table.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.pipelines.targets import Target, parse_target

Partition = tuple[tuple[str, str | None], ...]
"""Partition columns and their values as text, in the table's order; None is NULL."""

BEFORE_ALL = -1
"""The version of a table, or the batch of an application, before the first one."""


class TableError(Exception):
    """A table refuses an operation; the message says why and what to do."""


class TableConflict(TableError):
    """Other committers won every race; nothing was committed."""


class TableReplaced(TableError):
    """Rows that a stream has read were replaced or deleted, so it cannot continue."""


class DataFile(NamedTuple):
    """A file of a table: an absolute path and its facts in the log."""

    path: str
    rows: int
    size: int
    partition: Partition = ()


class StagedFile(NamedTuple):
    """A written file that is not in the log yet."""

    path: str
    size: int
    partition: Partition
    footer: pq.FileMetaData

    @property
    def rows(self) -> int:
        """The number of rows, from the footer."""
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
    """How many files a compaction merged and wrote."""

    merged: int
    written: int


class Table(Protocol):
    """A table of any format. One thread uses it; many processes may commit to the same folder."""

    target: Target
    keeps_partition_columns: bool
    """Whether data files hold the partition columns too, beside the folder's name."""
    widens_columns: bool
    """Whether a column can take a wider number type while older files keep the narrower one."""

    def exists(self) -> bool:
        """Whether the table exists, empty or not."""

    def version(self) -> int:
        """Look up the newest version; BEFORE_ALL if there is no table."""

    def schema(self) -> pa.Schema:
        """Return all columns in order, including partition columns."""

    def partition_by(self) -> tuple[str, ...]:
        """Return the partition columns, which name folders."""

    def files(self, version: int | None = None) -> list[DataFile]:
        """Return the files of the newest version, or of an older one that has not expired."""

    def added(self, after: int, upto: int) -> list[tuple[int, list[DataFile]]]:
        """Return files with new rows by version, for versions above `after` up to `upto`.

        Compactions add none. Raises TableReplaced if rows were replaced or deleted.
        """

    def first_version(self) -> int:
        """Return where a new stream begins: with all rows of this version, then what was added."""

    def last_batch(self, app: str) -> int:
        """Return the highest batch of the application in the table; BEFORE_ALL if none."""

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema as this format stores it; refuse types that it cannot store."""

    def staging(self, app: str, batch: int) -> str:
        """Return the folder for attempts at one batch; each has its own folder below."""

    def commit(self, change: TableChange) -> bool:
        """Apply a change in one atomic commit with its batch; create the table and new columns.

        Return False, with nothing changed, if the table has the batch already.
        """

    def drop_leftovers(self, app: str, batch: int, won: str | None = None) -> None:
        """Remove what attempts at a batch left, once the batch is in the table.

        `won` is the committed attempt; if it is not known, the log is read.
        """

    def compact(self, target_bytes: int) -> Compaction:
        """Merge small files into files of about `target_bytes`; readers always see the same rows."""

    def expire(self, hours: int) -> int:
        """Remove versions older than `hours` and files that only they name; return how many files."""


_MISREAD: Final = {
    "delta": re.compile(r"%[0-9A-Fa-f]{2}|\\"),
    "iceberg": re.compile(r"%[0-9A-Fa-f]{2}|\?"),
}
"""Parts of a path that the libraries decode or split."""


def open_table(target: Target | str) -> Table:
    """Open the table at the target, which need not exist yet."""
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
