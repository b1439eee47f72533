"""Finds out whether a table holds a value, mostly from the footers of its files."""

import pyarrow.dataset as ds

from headwater.pipelines.tables.table import DataFile, Table


def holds_value(table: Table, column: str, value: str) -> bool:
    """Whether a row of the table has this text in the column; False if there is no such column."""
    if not table.exists() or column not in table.schema().names:
        return False
    return any(_file_holds(file, column, value) for file in table.files() if file.rows)


def _file_holds(file: DataFile, column: str, value: str) -> bool:
    folders = dict(file.partition)
    if column in folders:
        return folders[column] == value
    rows = ds.dataset(file.path, format="parquet")
    return column in rows.schema.names and rows.count_rows(filter=ds.field(column) == value) > 0
