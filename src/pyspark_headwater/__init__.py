"""Spark looks for modules named `pyspark_*` and registers their DefaultSource: `format("headwater")`."""

from headwater.pipelines.datasource import HeadwaterDataSource as DefaultSource

__all__ = ["DefaultSource"]
