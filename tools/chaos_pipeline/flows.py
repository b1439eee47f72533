"""Numbers come in; whole ones go to a table and on to a topic, broken ones to the dead letters."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headwater import pipelines as hw


@hw.table()
@hw.expect_or_drop("is a number", "number IS NOT NULL")
@hw.quarantine(table="refused", topic="chaos.dead")
def numbers() -> DataFrame:
    """What was sent, with its place in the topic."""
    return hw.topic("chaos.in", startingOffsets="earliest").select(
        f.expr("try_cast(CAST(value AS STRING) AS BIGINT)").alias("number"),
        f.col("value").cast("string").alias("body"),
        f.col("topic").alias("_topic"),
        f.col("partition").alias("_partition"),
        f.col("offset").alias("_offset"),
    )


hw.create_sink("echo", "topic:chaos.out")


@hw.append_flow(target="echo")
def repeat() -> DataFrame:
    """The table's rows, back in a topic."""
    return hw.read_stream("numbers").select(f.col("body").cast("binary").alias("value"))
