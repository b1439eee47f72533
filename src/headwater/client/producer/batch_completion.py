"""Completes batches that were sent: stored, retried, split, or failed.

Every batch is completed here, exactly once. Runs on the loop's thread, and takes the producer's
lock to use the accumulator.
"""

from collections.abc import Callable, Sequence
from functools import partial

from headwater.client.cluster import Cluster
from headwater.client.errors import (
    AbortableTransactionError,
    ClosedError,
    TransactionAbortedError,
    failure,
)
from headwater.client.metrics import ProducerMetrics
from headwater.client.producer.accumulator import Accumulator, ProducerBatch
from headwater.client.producer.futures import OnDelivery, RecordMetadata
from headwater.client.producer.locking import Lock
from headwater.client.producer.losses import Losses, Unheard
from headwater.client.producer.sequences import LOST, Sequences
from headwater.client.topology import Node
from headwater.client.waits import call_guarded
from headwater.config.client import ProducerSettings
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_OFFSET
from headwater.seams.clock import Clock
from headwater.seams.randomness import Randomness
from headwater.wire.messages.produce import ProduceResponse

_NOT_APPENDED = frozenset(
    {
        E.NOT_LEADER_OR_FOLLOWER,
        E.LEADER_NOT_AVAILABLE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_ID,
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.NOT_ENOUGH_REPLICAS,
        E.CORRUPT_MESSAGE,
        E.THROTTLING_QUOTA_EXCEEDED,
        E.CONCURRENT_TRANSACTIONS,
    }
)
"""Retriable errors of attempts that stored nothing; earlier attempts may have."""
_CONCURRENT_REST_MS = 5
"""The first rest while the coordinator completes the transaction before."""


_EXPECTED = (ClosedError, TransactionAbortedError)
"""Errors of records that the application gave up itself: nobody has to look at them."""
BatchFailed = Callable[[ProducerBatch, KafkaError], None]


class BatchCompletion:
    """Completes the batches of one producer."""

    def __init__(
        self,
        settings: ProducerSettings,
        cluster: Cluster,
        accumulator: Accumulator,
        sequences: Sequences | None,
        lock: Lock,
        *,
        metrics: ProducerMetrics,
        clock: Clock,
        randomness: Randomness,
        room_freed: Callable[[], None],
        batch_failed: BatchFailed | None = None,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._accumulator = accumulator
        self._sequences = sequences
        self._lock = lock
        self._metrics = metrics
        self._clock = clock
        self._randomness = randomness
        self._room_freed = room_freed
        self._batch_failed = batch_failed
        self.losses = Losses(settings.client_id, clock)

    def handle_response(
        self,
        batch: ProducerBatch,
        row: ProduceResponse.PartitionProduceResponse | None,
        now: int,
        endpoints: Sequence[ProduceResponse.NodeEndpoint] = (),
    ) -> None:
        """Apply a response to a batch; `row` is None if the response lacks the batch."""
        if row is None:
            batch.uncertain = True
            self.retry(batch, _unanswered(batch), now)
            return
        code = error_of(row.error_code)
        if row.error_code == 0 or code == E.DUPLICATE_SEQUENCE_NUMBER:
            self.succeed(batch, row.base_offset, row.log_append_time_ms)
            return
        if code == E.MESSAGE_TOO_LARGE and self._can_split(batch):
            self._split(batch, now)
        elif code in LOST and self._sequences is not None:
            self._misnumbered(batch, failure(code, row.error_message), now)
        elif code == E.CONCURRENT_TRANSACTIONS:
            problem = failure(code, row.error_message)
            self.retry(batch, problem, now, first_rest_ms=_CONCURRENT_REST_MS)
        elif code.retriable:
            if code not in _NOT_APPENDED:
                batch.uncertain = True
            self._follow_leader(batch, row.current_leader, endpoints)
            self._cluster.suspect()
            # A new leader is often asked before it knows that it leads.
            behind = 0 <= row.current_leader.leader_epoch < batch.leader_epoch
            rest_ms = self._settings.retry_backoff_ms // (4 if behind else 1)
            self.retry(batch, failure(code, row.error_message), now, first_rest_ms=rest_ms)
        else:
            self.fail(batch, _explained(batch, row, code))

    def _follow_leader(
        self,
        batch: ProducerBatch,
        leader: ProduceResponse.LeaderIdAndEpoch,
        endpoints: Sequence[ProduceResponse.NodeEndpoint],
    ) -> None:
        """Note the newer leader that a refusal names (KIP-951): waiting batches go there at once."""
        if leader.leader_id >= 0:
            nodes = [Node(row.node_id, row.host, row.port, row.rack) for row in endpoints]
            self._cluster.leader_moved(
                batch.queue.key, leader.leader_id, leader.leader_epoch, nodes
            )

    def _misnumbered(self, batch: ProducerBatch, problem: KafkaError, now: int) -> None:
        """Handle a refused sequence number."""
        assert self._sequences is not None
        if self._sequences.proves_stored(batch):
            self.succeed(batch, NO_OFFSET, -1)
        elif self._sequences.refused(batch, problem.code):
            self.retry(batch, problem, now)
        elif self._batch_failed is not None:
            text = f"{batch.queue.key}: {problem}"
            self.fail(batch, AbortableTransactionError(text, problem.code))
        else:
            self.fail(batch, _unknowable(batch, problem))

    def retry(
        self,
        batch: ProducerBatch,
        problem: KafkaError,
        now: int,
        *,
        first_rest_ms: int | None = None,
    ) -> None:
        """Send the batch again, unless its retries are used up.

        It waits before that, retry.backoff.ms at first by default, but only until a newer leader is
        known.
        """
        if batch.future.done:
            batch.in_flight = False
            self._end_reset(batch)
            return
        if batch.attempts > self._settings.retries:
            self.fail(batch, problem)
            return
        self._metrics.retries.add(now, batch.count)
        batch.problem = problem
        with self._lock:
            rest_ms = self._rest_ms(batch.attempts_at_leader, first_rest_ms)
            self._accumulator.put_back(batch, now + rest_ms)
        self._end_reset(batch)

    def _rest_ms(self, attempts: int, first_ms: int | None) -> int:
        settings = self._settings
        first = settings.retry_backoff_ms if first_ms is None else first_ms
        longest = max(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        rest = min(first << min(attempts - 1, 16), longest)
        return rest * (80 + self._randomness.below(41)) // 100

    def _end_reset(self, batch: ProducerBatch) -> None:
        if self._sequences is not None:
            self._sequences.end_reset_if_due(batch)

    def _can_split(self, batch: ProducerBatch) -> bool:
        """Return False after an attempt that may have stored the batch: parts may be duplicates."""
        return batch.count > 1 and not batch.future.done and not batch.uncertain

    def _split(self, batch: ProducerBatch, now: int) -> None:
        batch.in_flight = False
        self._metrics.splits.add(now)
        with self._lock:
            parts = self._accumulator.split(batch, max(batch.size // 2, 1))
        if self._sequences is not None:
            self._sequences.split(batch, parts)

    def succeed(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        """Complete a batch that the broker has stored."""
        batch.in_flight = batch.uncertain = False
        if self._sequences is not None:
            self._sequences.acknowledged(batch)
            self._sequences.end_reset_if_due(batch)
        if batch.future.done:
            return
        batch.queue.stored_ms = now = self._clock.monotonic_ms()
        self._metrics.sent.add(now, batch.count)
        batch.future.succeed(base_offset, log_append_time, partial(self._finish, batch))

    def fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail the batch, unless it is known to be stored."""
        if self._sequences is not None and self._sequences.proves_stored(batch):
            self.succeed(batch, NO_OFFSET, -1)
            return
        batch.in_flight = batch.uncertain = False
        if self._sequences is not None:
            self._sequences.given_up(batch)
        if batch.future.done:
            return
        if self._batch_failed is not None:
            self._batch_failed(batch, error)
        self._metrics.errors.add(self._clock.monotonic_ms(), batch.count)
        if not batch.callbacks and not isinstance(error, _EXPECTED):
            batch.future.unheard = Unheard(self.losses, batch.count, str(batch.queue.key), error)
        batch.future.fail(error, partial(self._finish, batch))

    def _finish(self, batch: ProducerBatch) -> None:
        batch.finish(_call_on_delivery)
        with self._lock:
            self._accumulator.complete(batch)
        self._room_freed()


def _call_on_delivery(
    call: OnDelivery, metadata: RecordMetadata | None, error: KafkaError | None
) -> None:
    call_guarded("an on_delivery callback", call, metadata, error)


def _unanswered(batch: ProducerBatch) -> KafkaError:
    return failure(E.NETWORK_EXCEPTION, f"the broker's answer leaves out {batch.queue.key}")


def _unknowable(batch: ProducerBatch, problem: KafkaError) -> KafkaError:
    return failure(
        problem.code,
        f"{batch.queue.key}: {problem}; an earlier attempt to send these {batch.count} records was "
        f"not answered, so they may or may not be stored: check before you send them again",
    )


def _explained(
    batch: ProducerBatch, row: ProduceResponse.PartitionProduceResponse, code: E
) -> KafkaError:
    said = row.error_message or code.text
    wrong = [
        f"record {item.batch_index}: {item.batch_index_error_message}"
        for item in row.record_errors[:3]
    ]
    return failure(code, f"{batch.queue.key}: {said}" + "".join(f"; {text}" for text in wrong))
