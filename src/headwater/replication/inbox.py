"""The inbox of a replica: batches keep their order while one of them is prepared off the loop.

A batch that must be recompressed or checked record by record is prepared on a codec thread, and the
first batches of an epoch wait until the file of epochs has it. The batches that follow wait behind
them, each with its bytes copied, because the receive buffer is reused after the tick. An empty inbox
costs one `if`.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import cast

from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.records.batch import TRANSACTIONAL, RawHeader
from headwater.records.header_fields import ATTRIBUTES, PRODUCER_EPOCH, PRODUCER_ID
from headwater.records.rewrite import prepare
from headwater.records.rules import BatchRules
from headwater.replication.replica_host import Pending, ReplicaHost
from headwater.seams.tasks import Lane

log = logging.getLogger("headwater.server")


class HeldBatch:
    """A batch in the inbox."""

    __slots__ = ("_size", "acks", "batch", "failure", "header", "pending", "ready")

    def __init__(self, batch: memoryview, header: RawHeader, pending: Pending, acks: int) -> None:
        self.batch = memoryview(bytearray(batch))
        self._size = len(batch)
        pending.holding(self._size)
        self.header = header
        self.pending = pending
        self.acks = acks
        self.ready = True
        # Why the batch is refused, once a thread has prepared it.
        self.failure: KafkaError | None = None

    def release_memory(self) -> None:
        """Stop counting the bytes of the batch: it left the inbox."""
        self.pending.holding(-self._size)


class Inbox:
    """Batches that wait to be staged, in the order of their arrival."""

    __slots__ = ("_host", "_topic_partition", "batches")

    def __init__(self, topic_partition: TopicPartition, host: ReplicaHost) -> None:
        self._topic_partition = topic_partition
        self._host = host
        self.batches: deque[HeldBatch] = deque()

    def hold(self, batch: memoryview, header: RawHeader, pending: Pending, acks: int) -> None:
        """Queue a ready batch behind batches that are not ready."""
        self.batches.append(HeldBatch(batch, header, pending, acks))

    def prepare(
        self,
        held: HeldBatch,
        rules: BatchRules,
        now_ms: int,
        ready: Callable[[], None],
    ) -> None:
        """Queue a batch, prepare it on a codec thread and then call `ready`."""
        held.ready = False
        self.batches.append(held)
        batch, header = held.batch, held.header

        def done(result: object, failure: Exception | None) -> None:
            held.ready = True
            if isinstance(failure, KafkaError):
                held.failure = failure
            elif failure is not None:
                log.error(
                    "preparing a batch for %s failed", self._topic_partition, exc_info=failure
                )
                held.failure = KafkaError(E.UNKNOWN_SERVER_ERROR)
            else:
                held.batch, held.header = cast(tuple[memoryview, RawHeader], result)
            ready()

        self._host.off_loop(lambda: prepare(batch, header, rules, now_ms), done, Lane.CODEC)

    @property
    def is_ready(self) -> bool:
        """Whether there is a first batch that can be staged now."""
        return bool(self.batches) and self.batches[0].ready

    def pop_first(self) -> HeldBatch:
        """Remove and return the first batch."""
        held = self.batches.popleft()
        held.release_memory()
        return held

    def refuse(self, producer_id: int, epoch: int, failure: KafkaError) -> None:
        """Let the transactional batches of a producer, up to that epoch, fail in their turn."""
        for held in self.batches:
            header = held.header
            if (
                header[PRODUCER_ID] == producer_id
                and header[PRODUCER_EPOCH] <= epoch
                and header[ATTRIBUTES] & TRANSACTIONAL
            ):
                held.failure = failure

    def pop_all(self) -> list[HeldBatch]:
        """Remove and return every batch; results of running preparations are dropped."""
        held = list(self.batches)
        self.batches.clear()
        for entry in held:
            entry.release_memory()
        return held
