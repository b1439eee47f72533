"""Registers `format("headwater")`: Spark reads and writes topics without a jar.

Columns, option names and offsets are those of Spark's Kafka connector.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headwater.pipelines.arrow_rows import ddl
from headwater.pipelines.topic_source.options import wants_headers
from headwater.pipelines.topic_source.spark_source import BatchReader, StreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


class HeadwaterDataSource(DataSource):
    """Topics of a Headwater or Kafka cluster."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "headwater"

    def schema(self) -> str:
        """Return the columns of Spark's Kafka source; headers only if includeHeaders is set."""
        return ddl(headers=wants_headers(self.options))

    def reader(self, schema: StructType) -> "DataSourceReader":
        """For `spark.read`."""
        return BatchReader(self.options)

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":  # noqa: N802
        """For `spark.readStream`."""
        return StreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        """For `df.write`."""
        from headwater.pipelines.topic_sink.topic_sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":  # noqa: N802
        """For `df.writeStream`."""
        from headwater.pipelines.topic_sink.topic_sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
