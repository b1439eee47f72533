"""Batches for tables without Spark: files as an attempt would leave them in staging."""

import os

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from headwater.pipelines.tables.staging import new_attempt, staged_files
from headwater.pipelines.tables.table import TableChange, open_table

KINDS = ("delta", "iceberg", "parquet")


def rows(*ids, **columns):
    """A batch of ids and what else is said, by column."""
    more = {name: pa.array(values) for name, values in columns.items()}
    return pa.table({"id": pa.array(ids, pa.int64()), **more})


def stage(table, batch, app, number, partition_by=(), attempt=None):
    """Writes the files of one attempt; gives them and the attempt's folder."""
    attempt = attempt or new_attempt(table.staging(app, number))
    folders = batch
    names = list(partition_by)
    if table.keeps_partition_columns:
        names = [f"{name}__folder" for name in partition_by]
        for copy, name in zip(names, partition_by, strict=True):
            folders = folders.append_column(copy, batch.column(name))
    os.makedirs(attempt, exist_ok=True)
    if names:
        kept = pa.schema([folders.schema.field(name) for name in names])
        ds.write_dataset(
            folders, attempt, format="parquet", partitioning=ds.partitioning(kept, flavor="hive")
        )
    else:
        pq.write_table(batch, os.path.join(attempt, "rows.parquet"))
    return staged_files(attempt, partition_by), attempt


def append(target, batch, number, app="app", partition_by=()):
    table = open_table(target)
    files, attempt = stage(table, batch, app, number, partition_by)
    done = table.commit(TableChange(files, table.stored(batch.schema), app, number, partition_by))
    table.drop_leftovers(app, number, os.path.basename(attempt) if done else None)
    return done


def replace(target, batch, number, app="replacer", partition_by=()):
    table = open_table(target)
    files, attempt = stage(table, batch, app, number, partition_by)
    columns = table.stored(batch.schema)
    done = table.commit(TableChange(files, columns, app, number, partition_by, replaces=True))
    table.drop_leftovers(app, number, os.path.basename(attempt) if done else None)
    return done


def ids(files):
    """The ids in files, sorted."""
    found = [
        pq.ParquetFile(file.path).read(columns=["id"]).column("id").to_pylist() for file in files
    ]
    return sorted(one for some in found for one in some)


def data_files_on_disk(target):
    """Every Parquet file that a reader who lists the folder could take for rows."""
    folder = target.partition(":")[2]
    return {
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(".parquet") and "/_" not in where[len(folder) :]
    }
