"""Every event of the topic `events`, as text, with its place; Spark fills in `spark`."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql.functions import col


@dp.table(comment="What was sent to the topic events")
def events() -> DataFrame:
    """One row per event."""
    return (
        spark.readStream.format("headwater")  # noqa: F821
        .option("kafka.bootstrap.servers", os.environ.get("HEADWATER_BOOTSTRAP", "127.0.0.1:9092"))
        .option("subscribe", "events")
        .option("startingOffsets", "earliest")
        .load()
        .select(
            col("key").cast("string").alias("key"),
            col("value").cast("string").alias("event"),
            "partition",
            "offset",
            "timestamp",
        )
    )
