"""One attempt of one task without transactions: writes its rows, except those that are there already.

A failing attempt waits for its requests in flight before it reports: the next attempt reads the tail
and must find their records.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import pyarrow
from pyspark.sql.datasource import WriterCommitMessage

from headwater.client.admin import BlockingAdmin as Admin
from headwater.client.producer.blocking import Producer
from headwater.client.producer.bulk import SentMany
from headwater.client.producer.futures import SendFuture
from headwater.errors import KafkaError
from headwater.pipelines.topic_sink.ledger import Ledger
from headwater.pipelines.topic_sink.origin import (
    HEADER,
    FoundRecords,
    Pairs,
    PriorWrites,
    RecordOrigin,
)
from headwater.pipelines.topic_sink.read_back import read_back
from headwater.pipelines.topic_sink.sink_plan import SinkPlan, TopicWriteError

log = logging.getLogger(__name__)

UNDER_WAY: Final = 8
"""How many Arrow batches may wait for their acknowledgement."""
LATE_WRITE_S: Final = 0.5
"""The last request of a task that was killed may reach the log after the task is gone."""
FLUSH_S: Final = 5.0


@dataclass
class Written(WriterCommitMessage):
    """What a task did."""

    topics: tuple[str, ...]
    """The topics that it wrote to; not those where its batch was finished before."""
    rows: int
    found: int
    """Rows that were in the topic already."""
    origin: RecordOrigin | None
    run: str | None = None
    """The run of the query, if the task wrote a transaction."""


class TaskAttempt:
    """Writes the rows of a task; a context manager that leaves nothing in flight."""

    def __init__(self, plan: SinkPlan, origin: RecordOrigin | None, run: str, number: int) -> None:
        self._plan = plan
        self._origin = origin
        self._stem = b"" if origin is None else origin.stem
        self._run = run
        self._number = number
        self._recalled: dict[str, FoundRecords | None] = {}
        """The records found in each topic; None if the batch is finished there."""
        self._under_way: deque[Sequence[SendFuture | SentMany]] = deque()
        self._index = self._rows = self._found = 0
        self._producer = Producer(**plan.producer)
        self._admin = Admin(**plan.client) if origin else None

    def send(self, batch: Any) -> None:
        """Send the rows of an Arrow batch."""
        topic = self._plan.topic
        self._rows += batch.num_rows
        if topic is None:
            sent: Sequence[SendFuture | SentMany] = self._send_rows(batch)
        elif (there := self._records_there(topic)) is None:
            self._found += batch.num_rows
            return
        elif self._origin is None and self._plan.plain:
            sent = [self._send_columns(topic, batch)]
        elif there:
            sent = self._send_rows(batch)
        else:
            sent = self._send_new(topic, batch)
        self._under_way.append(sent)
        while len(self._under_way) > UNDER_WAY:
            self._await_oldest()

    def finish(self) -> Written:
        """Wait until every row is stored."""
        if self._plan.topic is not None and self._origin is not None:
            self._records_there(self._plan.topic)  # a task without rows opens its topic as well
        while self._under_way:
            self._await_oldest()
        return Written(self._begun(), self._rows, self._found, self._origin)

    def _send_columns(self, topic: str, batch: Any) -> SentMany:
        key = "key" if "key" in self._plan.columns else None
        return self._producer.send_table(topic, pyarrow.Table.from_batches([batch]), key=key)

    def _send_new(self, topic: str, batch: Any) -> list[SendFuture]:
        """Send rows that are all new, the usual case, in a tight loop."""
        send, origin, first = self._producer.send, self._origin_of, self._index
        self._index += batch.num_rows
        return [
            send(topic, value, key, partition, (*headers, *origin(index)))
            for index, (_, partition, key, value, headers) in enumerate(
                self._plan.rows(batch), first
            )
        ]

    def _send_rows(self, batch: Any) -> list[SendFuture]:
        """Send rows one by one, except those found in their topic."""
        sent = []
        for topic, partition, key, value, headers in self._plan.rows(batch):
            if topic is None:
                raise TopicWriteError(
                    "the column topic of a row is null: name a topic for every row"
                )
            there = self._records_there(topic)
            if there is None or (there and there.consume(key, value, headers)):
                self._found += 1
                continue
            origin = self._origin_of(self._index)
            self._index += 1
            sent.append(self._producer.send(topic, value, key, partition, (*headers, *origin)))
        return sent

    def _origin_of(self, index: int) -> Pairs:
        return () if self._origin is None else ((HEADER, b"%b%d" % (self._stem, index)),)

    def _records_there(self, topic: str) -> FoundRecords | None:
        try:
            return self._recalled[topic]
        except KeyError:
            there = self._recalled[topic] = self._opened(topic)
            if there is not None:
                self._index = max(self._index, there.next_index)
            return there

    def _opened(self, topic: str) -> FoundRecords | None:
        """Return this task's records in the topic; None if the batch is finished there."""
        if self._admin is None or self._origin is None:
            return FoundRecords()
        ledger = Ledger(self._admin, self._origin.query)
        partitions = self._producer.partitions_for(topic)
        found, starts = ledger.open(topic, partitions, self._origin, self._run, self._number)
        match found:
            case PriorWrites.NOTHING:
                return FoundRecords()
            case PriorWrites.EVERYTHING:
                log.info("batch %d is in %s already", self._origin.batch, topic)
                return None
            case PriorWrites.PERHAPS:
                if self._number:
                    threading.Event().wait(LATE_WRITE_S)
                return read_back(self._plan.client, topic, starts, self._origin)

    def _begun(self) -> tuple[str, ...]:
        return tuple(topic for topic, there in self._recalled.items() if there is not None)

    def _torn(self) -> tuple[str, ...]:
        """Return the topics to mark as torn, even if the attempt failed before its first row.

        The previous attempt may have been killed with its executor without leaving a mark.
        """
        topic = self._plan.topic
        unopened = topic is not None and topic not in self._recalled
        return (topic,) if unopened and topic else self._begun()

    def _await_oldest(self) -> None:
        for future in self._under_way.popleft():
            try:
                future.result()
            except KafkaError as problem:
                topics = ", ".join(self._recalled)
                raise TopicWriteError(
                    f"rows could not be stored in {topics}: {problem}", problem.code
                ) from problem

    def __enter__(self) -> "TaskAttempt":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._producer.close(FLUSH_S if error else None)
        if self._admin is not None and self._origin is not None:
            if error is not None:
                Ledger(self._admin, self._origin.query).tear(self._torn(), self._origin.batch)
            self._admin.close()
