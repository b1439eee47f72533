"""Events as they came, and then typed, checked and counted once."""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headwater import pipelines as hw

EVENT = (
    "event_id STRING, user_id STRING, behavior STRING, item_id STRING, category STRING,"
    " price DOUBLE, device STRING, time TIMESTAMP, broken STRING"
)
BEHAVIORS = ("browse", "like", "favourite", "comment", "cart", "buy")
PER_BEHAVIOR = os.environ.get("BEHAVIOR_TOPICS") == "per-behavior"
TOPICS = tuple(f"behavior.{name}" for name in BEHAVIORS) if PER_BEHAVIOR else ("behavior",)
"""One topic for all behaviors, or one for each; the rest of the pipeline is the same."""
JSON = {"columnNameOfCorruptRecord": "broken"}


@hw.table(comment="Every record of the topics as it came, with its place there.")
def bronze() -> DataFrame:
    """Nothing is judged here, so that silver can be built again from it."""
    return hw.topics(*TOPICS, startingOffsets="earliest").select(
        f.col("value").cast("string").alias("body"),
        f.col("topic").alias("_topic"),
        f.col("partition").alias("_partition"),
        f.col("offset").alias("_offset"),
        f.col("timestamp").alias("arrived"),
    )


@hw.table(comment="Events that can be believed, each once.")
@hw.expect_or_drop("is whole", "whole")
@hw.expect_or_drop("has a user", "user_id IS NOT NULL")
@hw.expect_or_drop(
    "is a known behavior",
    "behavior IN ('browse', 'like', 'favourite', 'comment', 'cart', 'buy')",
)
@hw.expect_or_drop("has a price", "price > 0")
@hw.expect_or_drop(
    "came in time",
    "time BETWEEN arrived - INTERVAL 30 MINUTES AND arrived + INTERVAL 1 MINUTE",
)
@hw.quarantine(table="quarantine", topic="behavior.dead")
def silver() -> DataFrame:
    """Repeats are dropped by the event's id within an hour of arrival.

    The watermark follows the broker's clock: one device with a wrong date must not make everyone
    else late. A record without an id is its own place, so that two broken ones are not one.
    """
    place = f.concat_ws("-", "_topic", "_partition", "_offset")
    return (
        hw.read_stream("bronze")
        .select("*", f.from_json("body", EVENT, JSON).alias("event"))
        .select(
            "event.*",
            f.col("event.broken").isNull().alias("whole"),
            "arrived",
            "_topic",
            "_partition",
            "_offset",
            "body",
            f.coalesce("event.event_id", place).alias("identity"),
        )
        .drop("broken")
        .withWatermark("arrived", "1 hour")
        .dropDuplicatesWithinWatermark(["identity"])
    )


hw.create_sink("purchases", "topic:behavior-purchases")


@hw.append_flow(target="purchases")
def announce_purchases() -> DataFrame:
    """What was bought goes back to a topic, for the warehouse and the mailer."""
    return (
        hw.read_stream("silver")
        .where("behavior = 'buy'")
        .select(
            f.col("user_id").cast("binary").alias("key"),
            f.to_json(f.struct("event_id", "user_id", "item_id", "price", "time"))
            .cast("binary")
            .alias("value"),
        )
    )


@hw.temporary_view(comment="The newest profile of each person; a deleted one is gone.")
def profiles() -> DataFrame:
    """The compacted topic as a table: last value by key."""
    return (
        hw.topic_snapshot("user-profile")
        .groupBy("key")
        .agg(f.max_by("value", "offset").alias("value"))
        .where("value IS NOT NULL")
        .select(
            f.from_json(
                f.col("value").cast("string"), "user_id STRING, level STRING, city STRING"
            ).alias("profile")
        )
        .select("profile.*")
    )
