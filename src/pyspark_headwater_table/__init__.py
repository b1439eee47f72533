"""Makes `format("headwater-table")` known to Spark, which looks for modules of this name."""

from headwater.pipelines.tables.source import TableDataSource as DefaultSource

__all__ = ["DefaultSource"]
