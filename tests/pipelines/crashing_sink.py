"""A driver that dies where it hurts: `python -m tests.pipelines.crashing_sink DIE ...`.

It copies a topic to another through the real sink. "write" kills the processes of all tasks in the
middle of their first attempt, and its whole process group when the second attempt of one task has
committed and that of the other has not. "commit" kills it between the sink's commit and Spark's own.
"""

import os
import signal
import sys
from itertools import islice

import headwater
from headwater.pipelines.datasource import HeadwaterDataSource
from headwater.pipelines.session import spark_session
from headwater.pipelines.topic_sink.ledger import Ledger
from headwater.pipelines.topic_sink.origin import RecordOrigin
from headwater.pipelines.topic_sink.topic_sink import TopicStreamWriter

DRIVER = os.getpid()


def die() -> None:
    os.killpg(os.getpgid(DRIVER), signal.SIGKILL)
    os._exit(1)  # workers have a group of their own


def until_stored(bootstrap: str, topic: str, isolation: str) -> None:
    with headwater.Consumer(bootstrap_servers=bootstrap, isolation_level=isolation) as consumer:
        places = [(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        while not consumer.poll(5):
            pass


class DiesWriting(TopicStreamWriter):
    """Tasks are killed with their process, then the driver between the commits of two tasks."""

    def write(self, iterator):
        from pyspark import TaskContext

        context = TaskContext.get()
        if not context.attemptNumber():
            return super().write(self.killed(iterator))
        if context.partitionId() == 0:
            return super().write(iterator)
        return super().write(
            self.left_open(iterator, context.getLocalProperty("sql.streaming.queryId"))
        )

    def killed(self, iterator):
        yield from islice(iterator, 2)
        until_stored(*self._place, "read_uncommitted")
        os.kill(os.getpid(), signal.SIGKILL)

    def left_open(self, iterator, query):
        """Write only after the other task has committed: its rows would be behind an open transaction."""
        bootstrap, topic = self._place
        with headwater.Admin(bootstrap_servers=bootstrap) as admin:
            ledger = Ledger(admin, query)
            while ledger.part_entry(RecordOrigin(query, 0, 0), topic, stable=False) is None:
                pass
            yield from islice(iterator, 2)
            while not ledger.is_writing(RecordOrigin(query, 0, 1)):
                pass
        until_stored(bootstrap, topic, "read_committed")
        die()

    @property
    def _place(self):
        return self._plan.client["bootstrap_servers"], self._plan.topic


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
