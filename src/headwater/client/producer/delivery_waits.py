"""Reports records that the brokers do not acknowledge, and why."""

import logging

from headwater.client.cluster import Cluster
from headwater.client.errors import DeliveryTimeoutError
from headwater.client.producer.accumulator import Accumulator, PartitionQueue, ProducerBatch
from headwater.client.producer.locking import Lock
from headwater.client.wait_warnings import FIRST_S
from headwater.config.client import ProducerSettings
from headwater.errors import KafkaError

log = logging.getLogger(__name__)

_LOOK_MS = 1000
"""How often the waiting batches are searched for partitions without progress."""


class DeliveryWaits:
    """The batches of one producer that wait for their acknowledgement."""

    def __init__(
        self, settings: ProducerSettings, cluster: Cluster, accumulator: Accumulator, lock: Lock
    ) -> None:
        self.unreachable: dict[int, Exception] = {}
        """Why the last connection to a broker failed, by its id."""
        self._settings = settings
        self._cluster = cluster
        self._accumulator = accumulator
        self._lock = lock
        self._next_ms = 0

    def report(self, now: int) -> None:
        """Log a WARNING per topic with a partition without progress for 5 s, then every 30 s."""
        if now < self._next_ms:
            return
        self._next_ms = now + min(_LOOK_MS, int(FIRST_S * 1000))
        with self._lock:
            stalled = self._accumulator.stalled(now - int(FIRST_S * 1000))
        by_topic: dict[str, list[list[ProducerBatch]]] = {}
        for queue, batches in stalled.items():
            by_topic.setdefault(queue.topic, []).append(batches)
        for topic, partitions in by_topic.items():
            self._warn(topic, partitions, now)

    def _warn(self, topic: str, partitions: list[list[ProducerBatch]], now: int) -> None:
        oldest = partitions[0][0]
        queue = oldest.queue
        records = sum(batch.written for batches in partitions for batch in batches)
        self._cluster.warnings.warn(
            f"delivery to {topic}",
            "producer %s: %s of topic %s not acknowledged yet, the oldest of %s for %d s%s, "
            "after %d attempts%s",
            self._settings.client_id,
            counted(records),
            topic,
            queue.key,
            (now - max(oldest.limit_ms, queue.stored_ms)) // 1000,
            self._leader(queue),
            oldest.attempts,
            self.why(oldest),
        )

    def _leader(self, queue: PartitionQueue) -> str:
        node = self._cluster.leader(queue.key)
        return "" if node is None else f" from {node.host}:{node.port}"

    def why(self, batch: ProducerBatch) -> str:
        """Return why `batch` was not stored, as the end of a sentence."""
        known = self._cluster.problems.get(batch.queue.topic)
        node = self._cluster.leader(batch.queue.key)
        if node is None and (known or not batch.attempts):
            return f"; no leader is known for it ({known.text if known else self._cluster.trouble})"
        gone = None if node is None else self.unreachable.get(node.id)
        last = gone or batch.problem
        return f"; the last problem: {last}" if last else ""

    def too_late(self, batch: ProducerBatch) -> KafkaError:
        """Return the error of a batch past delivery.timeout.ms."""
        error = DeliveryTimeoutError(
            f"{batch.count} records for {batch.queue.key} were not acknowledged within "
            f"delivery.timeout.ms ({self._settings.delivery_timeout_ms} ms, "
            f"{batch.attempts} attempts){self.why(batch)}"
        )
        error.__cause__ = batch.problem
        return error


def counted(records: int) -> str:
    """Return a number of records in words."""
    return f"{records} record{'' if records == 1 else 's'}"
