"""A member of a mixed group in a process of its own, which says what it has and what it read.

    python -m tests.clients.member CLIENT BOOTSTRAP GROUP TOPIC STRATEGY

Records are told once they are committed, also when a rebalance takes their partitions, so that
nothing may be told twice by whichever members.
"""

import json
import signal
import sys
import threading
from collections.abc import Callable, Collection
from typing import Any

import confluent_kafka
import kafka  # type: ignore[import-untyped]
from kafka.coordinator.assignors.cooperative_sticky import (  # type: ignore[import-untyped]
    CooperativeStickyAssignor,
)
from kafka.coordinator.assignors.range import (  # type: ignore[import-untyped]
    RangePartitionAssignor,
)

import headwater
from headwater.client.consumer.listener import RebalanceListener
from headwater.errors import KafkaError

SESSION_MS = 1500
HEARTBEAT_MS = 200
_PYTHON_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_REFUSED = (KafkaError, confluent_kafka.KafkaException, kafka.errors.KafkaError)


class Ledger:
    """What was read and not committed yet."""

    def __init__(self, commit: Callable[[], object], assigned: Callable[[], Collection[int]]):
        self._commit = commit
        self._assigned = assigned
        self._pending: list[tuple[int, int]] = []
        self._share: list[int] | None = None

    def read(self, records: list[tuple[int, int]]) -> None:
        """Records came; commit and tell them. A rebalance that is near gets another chance."""
        self._pending += records
        if self._pending:
            try:
                self._commit()
            except _REFUSED:
                return
            self._tell(records=self._pending)
            self._pending = []

    def revoked(self, partitions: Collection[int]) -> None:
        """The last chance; what is not committed now is read by the next owner."""
        self.read([])
        self.lost(partitions)

    def lost(self, partitions: Collection[int]) -> None:
        """Too late."""
        self._pending = [row for row in self._pending if row[0] not in partitions]

    def look(self) -> None:
        """Tell the share if it is another."""
        share = sorted(self._assigned())
        if share != self._share:
            self._share = share
            self._tell(assigned=share)

    def _tell(self, **event: Any) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


Read = Callable[[], list[tuple[int, int]]]


def ours(bootstrap: str, group: str, topic: str, strategy: str) -> tuple[Ledger, Read, Any]:
    """Headwater's consumer."""

    class Listener(RebalanceListener):
        def on_revoked(self, partitions: Any) -> None:
            ledger.revoked([number for _, number in partitions])

        def on_lost(self, partitions: Any) -> None:
            ledger.lost([number for _, number in partitions])

    consumer = headwater.Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        partition_assignment_strategy=strategy,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    ledger = Ledger(consumer.commit, lambda: [number for _, number in consumer.assignment()])
    consumer.subscribe([topic], listener=Listener())
    return ledger, lambda: [(r.partition, r.offset) for r in consumer.poll(0.1)], consumer


def confluent(bootstrap: str, group: str, topic: str, strategy: str) -> tuple[Ledger, Read, Any]:
    """confluent-kafka's."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )

    def commit() -> None:
        for row in consumer.commit(asynchronous=False) or ():
            if row.error:
                raise confluent_kafka.KafkaException(row.error)

    def read() -> list[tuple[int, int]]:
        found = [m for m in consumer.consume(500, 0.1) if not m.error()]
        return [(m.partition() or 0, m.offset() or 0) for m in found]

    ledger = Ledger(commit, lambda: [row.partition for row in consumer.assignment()])
    consumer.subscribe(
        [topic],
        on_revoke=lambda _, rows: ledger.revoked([row.partition for row in rows]),
        on_lost=lambda _, rows: ledger.lost([row.partition for row in rows]),
    )
    return ledger, read, consumer


def kafka_python(bootstrap: str, group: str, topic: str, strategy: str) -> tuple[Ledger, Read, Any]:
    """kafka-python's."""

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            ledger.revoked([row.partition for row in revoked])

        def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        partition_assignment_strategy=[_PYTHON_ASSIGNORS[strategy]],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )

    def read() -> list[tuple[int, int]]:
        batches = consumer.poll(100).values()
        return [(record.partition, record.offset) for batch in batches for record in batch]

    ledger = Ledger(consumer.commit, lambda: [row.partition for row in consumer.assignment()])
    consumer.subscribe([topic], listener=Listener())
    return ledger, read, consumer


CLIENTS = {"headwater": ours, "confluent-kafka": confluent, "kafka-python": kafka_python}


def main(client: str, *where: str) -> None:
    """Read until SIGTERM, then say goodbye."""
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    ledger, read, consumer = CLIENTS[client](*where)
    while not leaving.is_set():
        ledger.read(read())
        ledger.look()
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
