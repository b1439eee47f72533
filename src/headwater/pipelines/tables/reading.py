"""Tables as DataFrames: the JVM reads the files that the log names at this moment."""

import os
import re
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headwater.pipelines.tables.table import TableError, open_table
from headwater.pipelines.targets import Target

_GLOB: Final = re.compile(r"[\[\]{}*?\\]")
"""What Spark would take for a pattern; a folder may be called so."""


def read_table(spark: SparkSession, target: Target | str) -> DataFrame:
    """The rows of the newest version; later versions do not change what the DataFrame reads.

    Files older than a column hold NULL in it. Folders of partitions are skipped by filters.
    """
    table = open_table(target)
    if not table.exists():
        raise TableError(f"there is no table at {table.target}")
    schema = spark_schema(table.schema())
    paths = [_GLOB.sub(r"\\\g<0>", file.path) for file in table.files()]
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema)
    if not table.keeps_partition_columns:
        reader = reader.option("basePath", os.path.abspath(table.target.place))
    return reader.parquet(*paths).select(*(f"`{name}`" for name in schema.names))


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's words for the columns of a table."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
