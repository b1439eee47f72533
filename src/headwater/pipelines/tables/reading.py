"""Reads tables as DataFrames: the JVM reads the files that the log names."""

import os
import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headwater.pipelines.tables.staging import folder_values
from headwater.pipelines.tables.table import DataFile, Table, TableError, open_table
from headwater.pipelines.targets import Target

_GLOB: Final = re.compile(r"[\[\]{}*?\\]")
"""Characters of paths that Spark would take for a glob pattern."""


def read_table(spark: SparkSession, target: Target | str) -> DataFrame:
    """Return the rows of the newest version; later versions do not change the DataFrame.

    A column is NULL in files that are older than it. Filters skip folders of partitions.
    """
    table = open_table(target)
    if not table.exists():
        raise TableError(f"there is no table at {table.target}")
    schema, files = spark_schema(table.schema()), table.files()
    if not files:
        return spark.createDataFrame([], schema)
    paths = [_GLOB.sub(r"\\\g<0>", file.path) for file in files]
    reader = spark.read.schema(schema)
    root = _partition_root(table, files)
    if root is not None:
        reader = reader.option("basePath", root)
    return reader.parquet(*paths).select(*(f"`{name}`" for name in schema.names))


def _partition_root(table: Table, files: Sequence[DataFile]) -> str | None:
    """Return the folder below which Spark may read partition values from folder names.

    None if the files hold the partition columns and a folder differs: older folders have other
    names, and an empty string becomes NULL in a folder name.
    """
    folder = os.path.abspath(table.target.place)
    if not table.keeps_partition_columns:
        return folder
    data = os.path.join(folder, "data")
    below = (os.path.dirname(os.path.relpath(file.path, data)) for file in files)
    named = all(
        folder_values(where) == file.partition for where, file in zip(below, files, strict=True)
    )
    return data if named else None


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the columns of a table as Spark types."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
