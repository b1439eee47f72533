"""How coordinators write to and read from their internal topic on this broker."""

from collections.abc import Callable

from headwater.errors import KafkaError
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.replication.replica import Replica
from headwater.replication.replicas import Replicas
from headwater.seams.files import Buffer


class PartitionWriter:
    """One internal topic, as its coordinator sees it."""

    def __init__(
        self, topic: str, replicas: Replicas, append_failed: Callable[[int], None]
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._append_failed = append_failed

    def stage(self, partition: int, records: list[tuple[bytes, bytes | None]], now_ms: int) -> int:
        """Append one batch; the offset after it. KafkaError when it cannot be."""
        replica = self._replicas.leader(self._topic, partition)
        batch = build_batch(
            [Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(records)],
            now=now_ms,
        )
        pending = _Staged(partition, self._append_failed)
        replica.append_built(batch, pending)
        return pending.last_offset + 1

    def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Whole batches from the first one that ends after `offset`; empty at the log end."""
        log = self._leader(partition).log
        found = log.read(
            max(offset, log.log_start_offset), log.log_end_offset, max_bytes, at_least_one=True
        )
        return b"" if found is None else found.load()

    def end(self, partition: int) -> int:
        """The log end offset."""
        return self._leader(partition).log.log_end_offset

    def high_watermark(self, partition: int) -> int:
        """Up to where the log is committed."""
        return self._leader(partition).partition.high_watermark

    def _leader(self, partition: int) -> Replica:
        return self._replicas.leader(self._topic, partition)


class _Staged:
    """A coordinator's batch: its success shows in the high watermark, its failure must be told."""

    __slots__ = (
        "_append_failed",
        "_partition",
        "append_time",
        "base_offset",
        "last_offset",
        "parked",
    )

    def __init__(self, partition: int, append_failed: Callable[[int], None]) -> None:
        self._partition = partition
        self._append_failed = append_failed
        self.base_offset = self.last_offset = self.append_time = -1
        self.parked = False

    def park(self) -> None:
        """A coordinator waits for as long as it takes."""
        self.parked = True

    def complete(self) -> None:
        """The high watermark tells."""

    def fail(self, failure: KafkaError) -> None:
        """What the coordinator believes to have written is not there."""
        self._append_failed(self._partition)
