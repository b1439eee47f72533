"""Spark looks for modules named `pyspark_*`: this one makes `format("headwater-segments")` known."""

from headwater.pipelines.segments.source import SegmentsDataSource as DefaultSource

__all__ = ["DefaultSource"]
