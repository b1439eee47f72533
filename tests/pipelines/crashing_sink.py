"""A driver that dies where it hurts: `python -m tests.pipelines.crashing_sink DIE ...`.

It copies a topic to another through the real sink and kills its whole process group either in the
middle of a write ("write"; the first attempt of every task fails half way before that) or between
the sink's commit and Spark's own ("commit").
"""

import os
import signal
import sys
from itertools import islice

from headwater.pipelines.datasource import HeadwaterDataSource
from headwater.pipelines.session import spark_session
from headwater.pipelines.topic_sink.topic_sink import TopicStreamWriter

DRIVER = os.getpid()


def die() -> None:
    os.killpg(os.getpgid(DRIVER), signal.SIGKILL)
    os._exit(1)  # workers have a group of their own


class DiesWriting(TopicStreamWriter):
    """Half of a task's rows are stored by an attempt that fails, more by one that is killed."""

    def write(self, iterator):
        from pyspark import TaskContext

        if TaskContext.get().attemptNumber() == 0:
            super().write(islice(iterator, 1))
            raise RuntimeError("the first attempt fails on purpose")
        super().write(islice(iterator, 2))
        return die()


class DiesCommitting(TopicStreamWriter):
    """The topic and the group have the batch; Spark's commit log never hears of it."""

    def commit(self, messages, batchId):  # noqa: N803 - Spark's name
        super().commit(messages, batchId)
        die()


def dying_source(kind):
    class Dying(HeadwaterDataSource):
        @classmethod
        def name(cls):
            return "dying"

        def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
            return kind(super().streamWriter(schema, overwrite)._plan)

    return Dying


def main(kind: str, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    spark = spark_session(
        "crashing",
        master="local[2,2]",
        settings={"spark.sql.execution.arrow.maxRecordsPerBatch": "20"},
    )
    spark.dataSource.register(dying_source({"write": DiesWriting, "commit": DiesCommitting}[kind]))
    query = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "200")
        .load()
        .select("key", "value")
        .writeStream.format("dying")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":  # where Spark takes these classes by value, and DRIVER with them
    main(*sys.argv[1:])
