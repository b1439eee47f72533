"""Writes rows to topics: `df.write.format("headwater")` and `df.writeStream.format("headwater")`.

A stream is written exactly once if a repeated batch has the same rows in the same tasks, and at
least once otherwise. Each task commits a transaction of its own, if the brokers have them. Written
records are never deleted, not even in `abort`, which Spark also calls after a commit that took effect
and then failed.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headwater.client.admin import BlockingAdmin as Admin
from headwater.pipelines.topic_sink.ledger import Ledger
from headwater.pipelines.topic_sink.origin import RecordOrigin
from headwater.pipelines.topic_sink.sink_plan import (
    BATCH,
    QUERY,
    SERVERS,
    SinkError,
    SinkPlan,
    plan_sink,
)
from headwater.pipelines.topic_sink.task_attempt import TaskAttempt, Written
from headwater.pipelines.topic_sink.transactional_attempt import TransactionalAttempt
from headwater.seams.randomness import SystemRandomness

log = logging.getLogger(__name__)

Messages = list[WriterCommitMessage | None]

_QUERY_PROPERTY = "sql.streaming.queryId"
_BATCH_PROPERTY = "streaming.sql.batchId"
_GROUP_PROPERTY = "spark.jobGroup.id"
_TASK_DDL = "topics ARRAY<STRING>, run STRING, rows BIGINT, found BIGINT"
_TOPICS_TYPE = pyarrow.list_(pyarrow.string())
_transactional: set[str] = set()
"""Clusters that have transactions."""


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool = False
) -> "TopicStreamWriter":
    """Return the sink of a streaming query; every output mode appends its rows."""
    asked = plan_sink(options, schema)
    if asked.query is not None:
        raise SinkError(f"{QUERY} and {BATCH} are for batch writes: remove them for a stream")
    return TopicStreamWriter(_as_supported(asked))


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool = False
) -> "TopicBatchWriter":
    """Return the sink of `df.write`."""
    if overwrite:
        raise SinkError("a topic cannot be overwritten: use mode('append')")
    asked = plan_sink(options, schema)
    return TopicBatchWriter(asked if asked.query is None else _as_supported(asked))


class BatchCounts(NamedTuple):
    """How many rows of a batch were written, and how many were there already."""

    written: int
    present: int


def write_batch(
    df: DataFrame,
    *,
    bootstrap_servers: str,
    topic: str | None,
    query: str,
    batch_id: int,
    options: Mapping[str, str] | None = None,
) -> BatchCounts:
    """Write one batch of a stream within `foreachBatch`, exactly once even if it is repeated.

    Returns how many rows it wrote, and how many were in the topic already.

    It does what `df.write.format("headwater")` with an origin does, as a plain job: for each write
    of a Python data source Spark starts two Python processes, for this one none.

    Args:
        df: Rows with the columns of the sink.
        bootstrap_servers: One or more HOST:PORT.
        topic: The topic; None if a column names it.
        query: The id of the streaming query, which a new checkpoint changes. A second write of the
            same batch to the same topic needs another name, such as `f"{query}.late"`: under the
            same name it would be skipped as a repetition.
        batch_id: The batch id that `foreachBatch` passes.
        options: Further options of the sink.
    """
    chosen = {**(options or {}), SERVERS: bootstrap_servers, QUERY: query, BATCH: str(batch_id)}
    if topic is not None:
        chosen["topic"] = topic
    asked = _as_supported(plan_sink(chosen, df.schema))
    rows = df.mapInArrow(partial(_run_task, asked, _new_run()), _TASK_DDL).collect()
    topics = {name for row in rows for name in row["topics"]}
    _mark_done(asked, query, batch_id, topics, next((row["run"] for row in rows), None))
    found = sum(row["found"] for row in rows)
    return BatchCounts(sum(row["rows"] for row in rows) - found, found)


class TopicBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame to topics."""

    def __init__(self, asked: SinkPlan) -> None:
        self._plan = asked
        self._run = _new_run()

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of one task."""
        query, batch = self._plan.query, self._plan.batch
        return _write(self._plan, iterator, query, batch, self._run)

    def commit(self, messages: Messages) -> None:
        """Mark the batch as done after all tasks."""
        if self._plan.batch is not None:
            _finish(self._plan, messages, self._plan.batch)

    def abort(self, messages: Messages) -> None:
        """Do nothing: a repetition finds what was written."""


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream to topics."""

    def __init__(self, asked: SinkPlan) -> None:
        self._plan = asked
        self._run = _new_run()

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of one task of a batch."""
        context = _context()
        query, batch = (
            context.getLocalProperty(name) for name in (_QUERY_PROPERTY, _BATCH_PROPERTY)
        )
        if query is None or batch is None:
            raise SinkError("Spark did not pass the ids of the query and the batch to the task")
        return _write(self._plan, iterator, query, int(batch), self._run)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Mark a batch as done after all its tasks."""
        _finish(self._plan, messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: a repetition finds what was written."""


def _write(
    asked: SinkPlan, iterator: Iterator[Any], query: str | None, batch: int | None, run: str
) -> Written:
    context = _context()
    origin = None
    if query is not None and batch is not None:
        origin = RecordOrigin(query, batch, context.partitionId())
    group = context.getLocalProperty(_GROUP_PROPERTY)
    if group and context.getLocalProperty(_QUERY_PROPERTY):
        run = sha256(group.encode()).hexdigest()[:12]  # Spark's id of this run of the query
    attempt: TaskAttempt | TransactionalAttempt
    if origin is not None and asked.transactional:
        attempt = TransactionalAttempt(asked, origin, run)
    else:
        attempt = TaskAttempt(asked, origin, run, context.attemptNumber())
    with attempt:
        for rows in iterator:
            attempt.send(rows)
        return attempt.finish()


def _run_task(asked: SinkPlan, run: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Write the rows of one task of `write_batch`; yield the names of its topics and its counts."""
    written = _write(asked, batches, asked.query, asked.batch, run)
    columns = [
        pyarrow.array([written.topics], _TOPICS_TYPE),
        pyarrow.array([written.run], "string"),
        pyarrow.array([written.rows]),
        pyarrow.array([written.found]),
    ]
    yield pyarrow.record_batch(columns, names=["topics", "run", "rows", "found"])


def _finish(asked: SinkPlan, messages: Messages, batch: int) -> None:
    done = [message for message in messages if isinstance(message, Written)]
    first = next((message for message in done if message.origin), None)
    if first is not None and first.origin is not None:
        topics = {topic for message in done for topic in message.topics}
        _mark_done(asked, first.origin.query, batch, topics, first.run)


def _mark_done(
    asked: SinkPlan, query: str, batch: int, topics: Collection[str], run: str | None
) -> None:
    if topics:
        with Admin(**asked.client) as admin:
            Ledger(admin, query).finish(sorted(topics), batch, run)


def _as_supported(asked: SinkPlan) -> SinkPlan:
    """Return the plan with transactions only if all brokers have them; on the driver."""
    servers = str(asked.client.get("bootstrap_servers"))
    if asked.transactional and servers not in _transactional:
        with Admin(**asked.client) as admin:
            if not admin.supports_transactions():
                log.warning(
                    "a broker of %s has no transactions: the topic sink writes without them, and a "
                    "repeated batch reads its rows back",
                    servers,
                )
                return replace(asked, transactional=False)
        _transactional.add(servers)
    return asked


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkError("topics can only be written in a task of Spark")
    return context


def _new_run() -> str:
    return SystemRandomness().uuid().hex()[:12]
