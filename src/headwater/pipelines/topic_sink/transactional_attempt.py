"""One attempt of one task with transactions: its rows and its part entry are visible together, or never.

The transactional id belongs to the task's number, so an attempt fences every earlier one of the same
part, wherever that still runs. The order is what makes it safe: claim the batch, initialize the
producer, check the claim again, read the part entry, write. A run that another one has replaced fails
at one of the checks or is fenced by the producer of the other run.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

import pyarrow

from headwater.client.admin import BlockingAdmin as Admin
from headwater.client.consumer.record import OffsetAndMetadata
from headwater.client.errors import RetriableTransactionError
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.client.producer.blocking import Producer
from headwater.client.producer.bulk import SentMany, table_column
from headwater.client.producer.futures import SendFuture
from headwater.errors import E, KafkaError
from headwater.pipelines.topic_sink.ledger import (
    Ledger,
    QueryFencedError,
    StaleCheckpointError,
    part_group,
    part_place,
)
from headwater.pipelines.topic_sink.origin import (
    FoundRecords,
    PartEntry,
    PriorWrites,
    RecordOrigin,
)
from headwater.pipelines.topic_sink.read_back import read_back
from headwater.pipelines.topic_sink.sink_plan import SinkPlan, TopicWriteError
from headwater.pipelines.topic_sink.task_attempt import FLUSH_S, UNDER_WAY, Written
from headwater.records.codec import sum_rows

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 900_000
"""The transaction.timeout.ms of tasks: the largest that brokers accept by default."""
_TRIES: Final = 5
_LOOK_AGAIN_S: Final = 0.2
_IDLE_TURNS: Final = 50
"""How often to look for another attempt that does not write before it is given up."""
_FENCED: Final = frozenset({E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH})
_ALL_BITS: Final = (1 << 64) - 1


class TopicPart:
    """What a task writes to one topic."""

    def __init__(self, entry: PartEntry | None = None, there: FoundRecords | None = None) -> None:
        self.entry = entry
        """The entry of an earlier run for the same batch."""
        self.there = there or FoundRecords()
        """Records that an earlier run wrote without a transaction."""
        self.rows = self.total = 0

    def add(self, plan: SinkPlan, batch: Any) -> None:
        """Count the rows of an Arrow batch."""
        keys = table_column(batch, "key") if "key" in plan.columns else None
        values = table_column(batch, "value")
        total = sum_rows(keys, values, batch.num_rows)
        if not plan.plain:
            others = [repr(row).encode() for row in plan.others(batch)]
            extra = pyarrow.record_batch([pyarrow.array(others, pyarrow.binary())], ["extra"])
            total += sum_rows(table_column(extra, "extra"), values, batch.num_rows)
        self.rows += batch.num_rows
        self.total = self.total + total & _ALL_BITS

    @property
    def is_same(self) -> bool:
        """Whether the earlier run has written the same rows."""
        return self.entry is not None and self.entry[2:] == (self.rows, self.total)


class TransactionalAttempt:
    """Writes the rows of a task in one transaction; a context manager that leaves none open."""

    def __init__(self, plan: SinkPlan, origin: RecordOrigin, run: str) -> None:
        self._plan = plan
        self._origin = origin
        self._run = run
        self._parts: dict[str, TopicPart | None] = {}
        """What is written to each topic; None if the task has nothing to write there any more."""
        self._finished: set[str] = set()
        """Topics that have the whole batch."""
        self._began = False
        self._done_elsewhere = False
        self._rows = self._found = 0
        self._under_way: deque[list[SendFuture | SentMany]] = deque()
        settings: dict[str, Any] = {"transaction_timeout_ms": TIMEOUT_MS, **plan.producer}
        self._producer = Producer(**settings, transactional_id=part_group(origin))
        self._admin = Admin(**plan.client)
        self._ledger = Ledger(self._admin, origin.query)

    def send(self, batch: Any) -> None:
        """Send the rows of an Arrow batch."""
        self._rows += batch.num_rows
        if not batch.num_rows or self._done_elsewhere:
            return
        try:
            for topic, rows in self._plan.by_topic(batch):
                self._send_to(topic, rows)
            while len(self._under_way) > UNDER_WAY:
                self._await_oldest()
        except KafkaError as problem:
            self._failed(problem)

    def finish(self) -> Written:
        """Commit the transaction."""
        try:
            while self._under_way and not self._done_elsewhere:
                self._await_oldest()
            if not self._done_elsewhere:
                self._end()
        except KafkaError as problem:
            self._failed(problem)
        topics = {self._plan.topic} if self._plan.topic is not None else set(self._parts)
        found = self._rows if self._done_elsewhere else self._found
        return Written(
            tuple(sorted(topics - self._finished)), self._rows, found, self._origin, self._run
        )

    # -- rows

    def _send_to(self, topic: str, batch: Any) -> None:
        if topic not in self._parts:
            self._parts[topic] = self._opened(topic)
        part = self._parts[topic]
        if part is None:
            self._found += batch.num_rows
            return
        part.add(self._plan, batch)
        if self._plan.plain and not part.there:
            key = "key" if "key" in self._plan.columns else None
            table = pyarrow.Table.from_batches([batch])
            self._under_way.append([self._producer.send_table(topic, table, key=key)])
        else:
            self._under_way.append(self._send_rows(topic, batch, part.there))

    def _send_rows(
        self, topic: str, batch: Any, there: FoundRecords
    ) -> list[SendFuture | SentMany]:
        send = self._producer.send
        sent: list[SendFuture | SentMany] = []
        for _, partition, key, value, headers in self._plan.rows(batch):
            if there and there.consume(key, value, headers):
                self._found += 1
            else:
                sent.append(send(topic, value, key, partition, headers))
        return sent

    def _await_oldest(self) -> None:
        for future in self._under_way.popleft():
            future.result()

    # -- the transaction

    def _opened(self, topic: str) -> TopicPart | None:
        """Begin to write to a topic; None if the task has written there already."""
        batch = self._origin.batch
        partitions = self._producer.partitions_for(topic)
        found, starts = self._ledger.claim(topic, partitions, self._origin, self._run)
        if found is PriorWrites.EVERYTHING:
            log.info("batch %d is in %s already", batch, topic)
            self._finished.add(topic)
            return None
        if not self._began:
            _insist(self._producer.init_transactions)
            self._ledger.check_owner(topic, self._run)
            self._producer.begin_transaction()
            self._began = True
        entry = self._ledger.part_entry(self._origin, topic, stable=True)
        if entry is None or entry.batch < batch:
            entry = None
        elif entry.batch > batch or entry.run == self._run:
            return None
        there = None
        if found is PriorWrites.PERHAPS:
            there = read_back(self._plan.client, topic, starts, self._origin)
        return TopicPart(entry, there)

    def _end(self) -> None:
        """Commit, or abort if an earlier run has written the same rows."""
        parts = {topic: part for topic, part in self._parts.items() if part is not None}
        if not parts:
            return
        if all(part.is_same for part in parts.values()):
            _insist(self._producer.abort_transaction)
            self._found = self._rows
            return
        changed = [topic for topic, part in parts.items() if part.entry is not None]
        if changed:
            log.warning(
                "query %s, batch %d, task %d: an earlier run wrote other rows to %s; the rows of this "
                "run are written as well",
                *(*self._origin, ", ".join(changed)),
            )
        batch = self._origin.batch
        entries = {
            part_place(topic): OffsetAndMetadata(
                batch, PartEntry(batch, self._run, part.rows, part.total).text()
            )
            for topic, part in parts.items()
        }
        group = ConsumerGroupMetadata(part_group(self._origin))
        self._producer.send_offsets_to_transaction(entries, group)
        _insist(self._producer.commit_transaction)

    # -- failures

    def _failed(self, problem: KafkaError) -> None:
        """Return if another attempt has done the work; raise an error otherwise."""
        if isinstance(problem, QueryFencedError | StaleCheckpointError | TopicWriteError):
            raise problem
        if _is_fenced(problem) and self._await_other_attempt():
            self._done_elsewhere = True
            return
        topics = ", ".join(self._parts) or self._plan.topic
        hint = ""
        if problem.code is E.INVALID_TRANSACTION_TIMEOUT:
            hint = (
                "; set the option kafka.transaction.timeout.ms to at most the brokers' "
                "transaction.max.timeout.ms"
            )
        raise TopicWriteError(
            f"rows could not be stored in {topics}: {problem}{hint}", problem.code
        ) from problem

    def _await_other_attempt(self) -> bool:
        """Wait for the attempt that has fenced this one; return whether it has written the part.

        An attempt that failed at once would be started again, and fence the other in turn.
        """
        topics = [topic for topic, part in self._parts.items() if part is not None]
        idle = 0
        while idle < _IDLE_TURNS:
            for topic in topics:
                self._ledger.check_owner(topic, self._run)
            if topics and all(self._has_own_entry(topic) for topic in topics):
                return True
            idle = 0 if self._ledger.is_writing(self._origin) else idle + 1
            threading.Event().wait(_LOOK_AGAIN_S)
        return False

    def _has_own_entry(self, topic: str) -> bool:
        entry = self._ledger.part_entry(self._origin, topic, stable=False)
        return entry is not None and (entry.batch, entry.run) == (self._origin.batch, self._run)

    def __enter__(self) -> "TransactionalAttempt":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._producer.close(FLUSH_S if error else None)
        self._admin.close()


def _is_fenced(problem: BaseException | None) -> bool:
    """Return whether a newer producer with the same transactional id is the cause."""
    while problem is not None:
        if isinstance(problem, KafkaError) and problem.code in _FENCED:
            return True
        problem = problem.__cause__
    return False


def _insist(call: Callable[[], None]) -> None:
    """Repeat a call of a transaction that continues in the background."""
    for left in reversed(range(_TRIES)):
        try:
            call()
        except RetriableTransactionError as late:
            if not left:
                raise
            log.warning("%s", late)
        else:
            return
