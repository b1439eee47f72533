"""Queries into tables of all kinds, in a process that dies at a chosen step of a chosen batch.

Run as: python -m tests.pipelines.table_victim FOLDER STEP BATCH
The steps are cut in from here: the product knows nothing of them. The process dies when all
queries have come to the step, so one start of Spark serves all kinds.
"""

import os
import signal
import sys
import threading

from headwater.pipelines.session import spark_session
from headwater.pipelines.tables.writing import TableSink, write_stream

KINDS = ("delta", "iceberg", "parquet")
_all_are_there = threading.Barrier(len(KINDS))


def die(*_args, **_named):
    _all_are_there.wait()
    os.kill(os.getpid(), signal.SIGKILL)


def cut_in(step: str, last_batch: int) -> None:
    """Makes this batch of every query end where the step says."""
    call = TableSink.__call__

    def dying(sink, batch, batch_id):
        if batch_id == last_batch:
            match step:
                case "before the files":
                    sink._table.staging = die
                case "after the files":
                    sink._table.commit = die
                case "after the commit":
                    sink._table.drop_leftovers = die
        call(sink, batch, batch_id)

    TableSink.__call__ = dying


def start(spark, folder: str, kind: str):
    """The query that the test resumes: each file of the folder is a batch."""
    reader = spark.readStream.schema("id long, day string").option("maxFilesPerTrigger", 1)
    return write_stream(
        reader.json(f"{folder}/in"),
        f"{kind}:{folder}/{kind}",
        checkpoint=f"{folder}/checkpoint-{kind}",
        trigger={"availableNow": True},
        partition_by=["day"],
    )


def main(folder: str, step: str, last_batch: str) -> None:
    cut_in(step, int(last_batch))
    spark = spark_session("victim", master="local[2]")
    for query in [start(spark, folder, kind) for kind in KINDS]:
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
