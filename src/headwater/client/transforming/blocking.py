"""The blocking face of `transform`.

Derived from `transform.py` by `python -m tools.blocking_faces`; do not edit.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwater.client.consumer.blocking import Consumer
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.consumer.record import ConsumerRecord, OffsetAndMetadata, Records
from headwater.client.errors import (
    AbortableTransactionError,
    CommitFailedError,
    RetriableTransactionError,
)
from headwater.client.producer.blocking import Producer
from headwater.client.transforming.options import (
    TransformOptions,
    check_function,
    outputs,
    transform_options,
)
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from headwater.seams.clock import Clock, SystemClock

log = logging.getLogger(__name__)

Function = Callable[[ConsumerRecord[Any, Any]], object]

_POLL_MS = 200
"""How often `stop` is asked while no records come."""
_ATTEMPTS = 5
"""How often in a row a transaction may fail for another reason than a rebalance."""


def transform(
    source: str | Sequence[str],
    target: str,
    function: Function,
    *,
    bootstrap_servers: str | Sequence[str],
    group_id: str,
    transactional_id: str,
    max_records: int = 1000,
    max_wait_s: float = 0.1,
    idle_timeout_s: float | None = None,
    stop: Callable[[], bool] | None = None,
    consumer: Mapping[str, Any] | None = None,
    producer: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
) -> int:
    """Write what `function` makes of each record of `source` to `target`, exactly once.

    Records, results and offsets are one transaction after the other: after a crash or a rebalance,
    what was not committed is done again, and readers with `isolation_level="read_committed"` see
    each result once. Runs until `stop` returns True, `idle_timeout_s` is over, or an error; returns
    the number of committed records.

    Args:
        source: The topic to read, or several.
        target: The topic for the results.
        function: Gets a record; returns a value for `target`, which keeps the record's key, a
            ProducerRecord, a list of these, or None for nothing.
        bootstrap_servers: One or more HOST:PORT of brokers.
        group_id: The consumer group; more processes with the same group share the partitions.
        transactional_id: A name of this process that outlives it; two processes must not share it.
        max_records: The most records of one transaction.
        max_wait_s: How long a transaction waits for more records.
        idle_timeout_s: Return once everything is read and this many seconds brought nothing new.
        stop: Asked between polls; True ends the run after a commit.
        consumer: Further settings and deserializers of the consumer.
        producer: Further settings and serializers of the producer.
        clock: For tests.

    Raises ProducerFencedError if another process with the same transactional id has begun, and what
    `function` raises, after the open transaction is aborted.
    """
    check_function(function, awaited=False)
    options = transform_options(
        source,
        target,
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        transactional_id=transactional_id,
        max_records=max_records,
        max_wait_s=max_wait_s,
        idle_timeout_s=idle_timeout_s,
        consumer=consumer,
        producer=producer,
        stop=stop,
    )
    with Producer(**options.producer) as writer, Consumer(**options.consumer) as reader:
        run = TransformRun(options, function, reader, writer, clock or SystemClock())
        return run.run()


class TransformRun:
    """One run of `transform`: at most one transaction is open."""

    def __init__(
        self,
        options: TransformOptions,
        function: Function,
        consumer: Consumer[Any, Any],
        producer: Producer,
        clock: Clock,
    ) -> None:
        self._options = options
        self._function = function
        self._consumer = consumer
        self._producer = producer
        self._now_ms = clock.monotonic_ms
        self._begun: dict[TopicPartition, int] = {}
        """The first offset of each partition in the open transaction."""
        self._records = 0
        self._deadline_ms = 0
        self._idle_since_ms: int | None = None
        self.joined = False
        """Whether the group has assigned partitions, maybe none."""
        self._done = 0
        self._failures = 0

    def run(self) -> int:
        """Work until the end; return the number of committed records."""
        # Before offsets are read: a predecessor may have left some pending.
        self._insist(self._producer.init_transactions)
        self._consumer.subscribe(self._options.topics, listener=_EndingListener(self))
        try:
            self._run()
        except BaseException:
            self._abandon()
            raise
        return self._done

    def _run(self) -> None:
        while not self._options.stop():
            records = self._poll()
            if records:
                self._work(records)
            elif self._is_idle():
                break
            if self._begun and self._is_due():
                self.commit()
        self.commit()

    def _abandon(self) -> None:
        """Abort after an error, before the consumer leaves its group."""
        try:
            if self._begun:
                self._producer.abort_transaction()
        except KafkaError as problem:
            log.warning("transform() did not abort its transaction: %s", problem)
        finally:
            self._forget()

    def _poll(self) -> Records[Any, Any]:
        wait_ms = min(self._deadline_ms - self._now_ms(), _POLL_MS) if self._begun else _POLL_MS
        room = self._options.max_records - self._records
        return self._consumer.poll(max(wait_ms, 0) / 1000, room)

    def _is_due(self) -> bool:
        return self._records >= self._options.max_records or self._now_ms() >= self._deadline_ms

    def _is_idle(self) -> bool:
        """Return whether nothing has been left to read for idle_timeout_s."""
        limit_ms, now = self._options.idle_ms, self._now_ms()
        if limit_ms is None or not self.joined:
            return False
        if any(self._consumer.lag(partition) != 0 for partition in self._consumer.assignment()):
            self._idle_since_ms = None
        elif self._idle_since_ms is None:
            self._idle_since_ms = now
        return self._idle_since_ms is not None and now - self._idle_since_ms >= limit_ms

    # -- one transaction

    def _work(self, records: Records[Any, Any]) -> None:
        """Process records in the open transaction, or in a new one."""
        self._idle_since_ms = None
        try:
            if not self._begun:
                self._producer.begin_transaction()
                self._deadline_ms = self._now_ms() + self._options.max_wait_ms
            for partition, rows in records.by_partition().items():
                self._begun.setdefault(partition, rows[0].offset)
            for record in records:
                self._send(self._function(record), record)
            self._records += len(records)
        except AbortableTransactionError as problem:
            self._give_up(problem)

    def _send(self, result: object, record: ConsumerRecord[Any, Any]) -> None:
        for made in outputs(result, record, self._options.target):
            self._producer.send(*made)

    def commit(self) -> None:
        """Commit the open transaction with its offsets, if there is one."""
        if not self._begun:
            return
        offsets = self._positions()
        try:
            self._insist(
                lambda: self._producer.send_offsets_to_transaction(
                    offsets, self._consumer.group_metadata()
                )
            )
            self._insist(self._producer.commit_transaction)
        except AbortableTransactionError as problem:
            self._give_up(problem)
        else:
            self._done += self._records
            self._failures = 0
            self._forget()

    def abort(self) -> None:
        """Abort the open transaction, and read its records again."""
        if not self._begun:
            return
        self._insist(self._producer.abort_transaction)
        mine = self._consumer.assignment()
        for partition, offset in self._begun.items():
            if partition in mine:
                self._consumer.seek(partition, offset)
        self._forget()

    def _give_up(self, problem: AbortableTransactionError) -> None:
        """Abort; raise `problem` if attempts fail again and again."""
        self.abort()
        if isinstance(problem.__cause__, CommitFailedError):
            log.info("transform() repeats records after a rebalance: %s", problem)
            return
        self._failures += 1
        if self._failures >= _ATTEMPTS:
            raise problem
        log.warning("transform() repeats records of an aborted transaction: %s", problem)

    def _positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return where to continue after the open transaction."""
        partitions = self._consumer._core.subscription.partitions
        return {
            name: OffsetAndMetadata(state.position, "", state.epoch)
            for name in self._begun
            if (state := partitions.get(name)) is not None and state.position is not None
        }

    def _forget(self) -> None:
        self._begun.clear()
        self._records = 0

    def _insist(self, call: Callable[[], None]) -> None:
        """Repeat a call that did not finish in its time."""
        while True:
            try:
                return call()
            except RetriableTransactionError as late:
                log.warning("transform() waits: %s", late)


class _EndingListener(RebalanceListener):
    """Ends the open transaction before partitions go to other members."""

    def __init__(self, run: TransformRun) -> None:
        self._run = run

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        self._run.joined = True

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        self._run.commit()

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        self._run.abort()
