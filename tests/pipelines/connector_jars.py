"""The jars of Spark's own Kafka connector, for the one session of the suite."""

from functools import cache

from tools.jars import JarsUnavailable, jars

SET = "spark-kafka-4.2.0"


@cache
def official_connector() -> tuple[list[str], str]:
    """Paths of the jars, or none and the reason why."""
    try:
        return sorted(map(str, jars(SET).glob("*.jar"))), ""
    except JarsUnavailable as missing:
        return [], str(missing)


def official_connector_jars() -> list[str]:
    """For `spark.jars`, which counts only before the JVM starts; empty where they cannot be had."""
    return official_connector()[0]
