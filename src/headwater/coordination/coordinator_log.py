"""The log of a coordinator: the partitions of its topic that this broker leads."""

from collections.abc import Callable
from typing import Protocol

from headwater.coordination.shard import TransactionalProducer
from headwater.errors import KafkaError
from headwater.records.batch import Buffer
from headwater.records.control import Marker


class CoordinatorLog(Protocol):
    """The coordinator's topic on this broker, partition by partition."""

    def stage(
        self,
        partition: int,
        records: list[tuple[bytes, bytes | None]],
        now_ms: int,
        producer: TransactionalProducer | None = None,
    ) -> int:
        """Append one batch and return the offset after it; KafkaError if the log refuses it."""

    def largest_batch(self, partition: int) -> int:
        """Bytes of the largest batch that requests may cause."""

    def stage_marker(
        self, partition: int, marker: Marker, now_ms: int, transaction_version: int
    ) -> int:
        """Append the end of a transaction and return the offset after it."""

    def read(
        self,
        partition: int,
        offset: int,
        max_bytes: int,
        done: Callable[[Buffer | KafkaError], None],
    ) -> None:
        """Read whole batches from the first one that ends after `offset`; empty at the log end.

        `done` is called now, or later if the disk has to be read.
        """

    def end(self, partition: int) -> int:
        """The log end offset."""

    def high_watermark(self, partition: int) -> int:
        """Return the high watermark; `high_watermark_advanced` reports later moves."""
