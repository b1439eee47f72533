"""Data pipelines on Spark: from topics to tables and back, exactly once."""
