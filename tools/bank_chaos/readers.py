"""Readers of committed transfers, ours and confluent-kafka's, and a watch over open transactions."""

import threading
import time
from typing import Protocol

import confluent_kafka

import headwater
from headwater.errors import KafkaError
from tools.bank_chaos.transfers import PLACES, Leg
from tools.chaos_clients import CONFLUENT_QUICK
from tools.client_chaos import QUICK
from tools.cluster_chaos.history import History

BETWEEN_LOOKS_S = 0.05


class Reader(Protocol):
    """A reader on a thread of its own."""

    @property
    def count(self) -> int:
        """The number of records that it got."""

    def finish(self) -> None:
        """Stop reading."""


class _Notes:
    def __init__(self, name: str, history: History) -> None:
        self._name, self._history = name, history
        self.count = 0

    def got(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        self.count += 1
        self._history.note(
            "read", reader=self._name, topic=topic, partition=partition, offset=offset,
            leg=Leg.from_value(value),
        )  # fmt: skip


class OwnReader:
    """A consumer of ours."""

    def __init__(self, bootstrap: str, history: History) -> None:
        self._notes = _Notes("own reader", history)
        self._consumer = headwater.Consumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest",
            isolation_level="read_committed", default_api_timeout_ms=600_000, **QUICK,
        )  # fmt: skip
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="own reader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.assign(PLACES)
        while not self._stop.is_set():
            for record in self._consumer.poll(0.1):
                self._notes.got(record.topic, record.partition, record.offset, record.value)

    @property
    def count(self) -> int:
        """The number of records that it got."""
        return self._notes.count

    def finish(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()


class ConfluentReader:
    """A consumer of confluent-kafka."""

    def __init__(self, bootstrap: str, history: History) -> None:
        self._notes = _Notes("confluent reader", history)
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "socket.timeout.ms": 10_000,
                "fetch.wait.max.ms": 100,
                **CONFLUENT_QUICK,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="confluent reader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.assign([confluent_kafka.TopicPartition(*at, 0) for at in PLACES])
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self._notes.got(
                        message.topic() or "", message.partition() or 0, message.offset() or 0,
                        message.value(),
                    )  # fmt: skip

    @property
    def count(self) -> int:
        """The number of records that it got."""
        return self._notes.count

    def finish(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()


class StableWatch:
    """Measures how long what is open now stays open."""

    def __init__(self, bootstrap: str, history: History) -> None:
        self._history = history
        self._all, self._committed = (
            headwater.Consumer(
                bootstrap_servers=bootstrap, isolation_level=level, default_api_timeout_ms=20_000,
                **QUICK,
            )
            for level in ("read_uncommitted", "read_committed")
        )  # fmt: skip

    def wait(self, limit_s: float) -> None:
        """Wait until everything that is written now is decided; TimeoutError after `limit_s`."""
        began = time.monotonic()
        ends = None
        while time.monotonic() - began < limit_s:
            try:
                ends = ends or self._all.end_offsets(PLACES)
                stable = self._committed.end_offsets(PLACES)
            except KafkaError:
                continue
            open_now = {str(at): (stable[at], ends[at]) for at in PLACES if stable[at] < ends[at]}
            if not open_now:
                self._history.note("stable", after_s=time.monotonic() - began)
                return
            time.sleep(BETWEEN_LOOKS_S)
        self._history.note("stable", after_s=time.monotonic() - began)
        raise TimeoutError(f"transactions do not end within {limit_s:.0f} s")

    def close(self) -> None:
        """Close the connections."""
        self._all.close()
        self._committed.close()
