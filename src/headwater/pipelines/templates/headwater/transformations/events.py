"""The topic `events` as a table; what cannot be read is kept apart with the reason."""

from pyspark.sql.functions import col, from_json

from headwater import pipelines as hw

SHAPE = "user_id STRING, action STRING, item STRING"


@hw.table(comment="Events as they came, typed")
@hw.expect_or_drop("has a user", "user_id IS NOT NULL")
@hw.quarantine(table="bad_events")
def events():
    """One row per event that could be read."""
    sent = hw.topic("events", startingOffsets="earliest")
    parsed = from_json(col("value").cast("string"), SHAPE)
    return sent.select(parsed.alias("event"), "timestamp").select("event.*", "timestamp")
