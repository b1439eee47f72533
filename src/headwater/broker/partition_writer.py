"""Writes and reads the internal topic of a coordinator on this broker."""

from collections.abc import Callable
from typing import TypeAlias, cast

from headwater.coordination.shard import TransactionalProducer
from headwater.errors import E, KafkaError
from headwater.model import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from headwater.records.builder import build_batch
from headwater.records.control import Marker, build_marker
from headwater.records.record import Record
from headwater.replication.replica import Replica
from headwater.replication.replicas import Replicas
from headwater.seams.files import Buffer

OffLoop: TypeAlias = Callable[
    [Callable[[], object], Callable[[object, Exception | None], None]], None
]


class PartitionWriter:
    """The log of one internal topic, for its coordinator."""

    def __init__(
        self,
        topic: str,
        replicas: Replicas,
        append_failed: Callable[[TopicPartition], None],
        off_loop: OffLoop,
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._off_loop = off_loop
        self._append_failed = append_failed

    def stage(
        self,
        partition: int,
        records: list[tuple[bytes, bytes | None]],
        now_ms: int,
        producer: TransactionalProducer | None = None,
    ) -> int:
        """Append one batch and return the offset after it; KafkaError if the log refuses it."""
        replica = self._replicas.leader(self._topic, partition)
        batch = build_batch(
            [Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(records)],
            now=now_ms,
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_EPOCH if producer is None else producer.epoch,
            transactional=producer is not None,
        )
        pending = self._pending(partition)
        replica.built.append(batch, pending)
        return pending.last_offset + 1

    def largest_batch(self, partition: int) -> int:
        """Bytes of the largest batch that requests may cause."""
        return self._leader(partition).policy.rules.largest

    def stage_marker(
        self, partition: int, marker: Marker, now_ms: int, transaction_version: int
    ) -> int:
        """Append the end of a transaction and return the offset after it."""
        replica = self._replicas.leader(self._topic, partition)
        pending = self._pending(partition)
        replica.built.append_marker(build_marker(marker, now_ms), pending, transaction_version)
        return pending.last_offset + 1

    def _pending(self, partition: int) -> "_Staged":
        return _Staged(TopicPartition(self._topic, partition), self._append_failed)

    def read(
        self,
        partition: int,
        offset: int,
        max_bytes: int,
        done: Callable[[Buffer | KafkaError], None],
    ) -> None:
        """Pass whole batches, from the first that ends after `offset`, to `done`; empty at the log end.

        What the page cache lacks is read on a file thread, and `done` is called after that.
        """
        try:
            replica = self._leader(partition)
            start = max(offset, replica.log_start_offset)
            found = replica.read_own(start, max_bytes)
            data = b"" if found is None else found.load_now()
        except KafkaError as refused:
            done(refused)
            return
        except OSError as failure:
            done(_unreadable(failure))
            return
        if found is None or data is not None:
            done(data or b"")
            return

        def ended(result: object, failure: Exception | None) -> None:
            if failure is None:
                done(cast("Buffer", result))
            else:
                done(failure if isinstance(failure, KafkaError) else _unreadable(failure))

        self._off_loop(found.load, ended)

    def end(self, partition: int) -> int:
        """The log end offset."""
        return self._leader(partition).log_end_offset

    def high_watermark(self, partition: int) -> int:
        """Return the high watermark."""
        return self._leader(partition).high_watermark

    def _leader(self, partition: int) -> Replica:
        return self._replicas.leader(self._topic, partition)


def _unreadable(failure: Exception) -> KafkaError:
    return KafkaError(E.KAFKA_STORAGE_ERROR, str(failure))


class _Staged:
    """A coordinator's pending batch: the high watermark reports its success, `fail` its failure."""

    __slots__ = (
        "_append_failed",
        "_at",
        "append_time",
        "base_offset",
        "last_offset",
        "parked",
    )
    transaction = None

    def __init__(self, at: TopicPartition, append_failed: Callable[[TopicPartition], None]) -> None:
        self._at = at
        self._append_failed = append_failed
        self.base_offset = self.last_offset = self.append_time = -1
        self.parked = False

    def park(self) -> None:
        """Do nothing: a coordinator waits without a deadline."""
        self.parked = True

    def holding(self, size: int) -> None:
        """Never called: a batch that the broker builds is staged at once."""

    def complete(self) -> None:
        """Do nothing: the high watermark reports success."""

    def fail(self, failure: KafkaError) -> None:
        """Report the failure to the coordinator, whose state is ahead of the log."""
        self._append_failed(self._at)
