"""Producers of a run: ours and confluent-kafka's. Each record is unique and numbered by its key."""

import random
import threading
import time
from functools import partial
from typing import Any, Protocol

import confluent_kafka

import headwater
from headwater.client.producer.futures import RecordMetadata
from headwater.errors import KafkaError
from tools.chaos_clients import CONFLUENT_QUICK
from tools.client_chaos import QUICK
from tools.cluster_chaos.access import Access
from tools.cluster_chaos.history import History, Written

KEYS = 12
UNDER_WAY = 300
PAUSE_S = 0.1
LARGEST_BURST = 12
LARGEST_PADDING = 800
DELIVERY_TIMEOUT_MS = 600_000
"""No fault of a run lasts as long: a record that fails is a finding."""


class Writer(Protocol):
    """A producer on a thread of its own."""

    name: str
    topic: str

    @property
    def acknowledged(self) -> int: ...

    def keys_behind(self, moment: float) -> list[str]:
        """The keys of which no record that was sent after this moment is acknowledged."""

    def finish(self, timeout_s: float) -> None:
        """Send nothing more and wait for what is under way."""


class _Numbers:
    """Which record comes next, and what became of those before."""

    def __init__(self, name: str, topic: str, history: History, chance: random.Random) -> None:
        self._name, self._topic = name, topic
        self._history = history
        self._chance = chance
        self._sent = {f"k{number}": 0 for number in range(KEYS)}
        self._chosen_at: dict[Written, float] = {}
        self._newest_stored = dict.fromkeys(self._sent, 0.0)
        self.room = threading.Semaphore(UNDER_WAY)
        self.acknowledged = 0

    def burst(self) -> list[Written]:
        """Some records to send now."""
        chosen = []
        for _ in range(self._chance.randrange(1, LARGEST_BURST)):
            key = self._chance.choice(list(self._sent))
            written = Written(self._name, key, self._sent[key])
            self._chosen_at[written] = time.monotonic()
            chosen.append(written)
            self._sent[key] += 1
        return chosen

    def value(self, written: Written) -> bytes:
        return written.as_value(self._chance.randrange(LARGEST_PADDING))

    def stored(self, written: Written, partition: int, offset: int) -> None:
        self.room.release()
        self.acknowledged += 1
        chosen_at = self._chosen_at.pop(written)
        self._newest_stored[written.key] = max(self._newest_stored[written.key], chosen_at)
        self._history.note(
            "ack", topic=self._topic, partition=partition, offset=offset, **written._asdict()
        )

    def failed(self, written: Written, error: object) -> None:
        self.room.release()
        self._history.note("unsure", topic=self._topic, error=str(error), **written._asdict())
        self.problem(f"{written} failed: {error}")

    def keys_behind(self, moment: float) -> list[str]:
        return [key for key, newest in self._newest_stored.items() if newest <= moment]

    def problem(self, text: str) -> None:
        self._history.note("problem", text=f"writer {self._name}: {text}")

    def close(self) -> None:
        for key, sent in self._sent.items():
            self._history.note("total", client=self._name, key=key, sent=sent)


class OwnWriter:
    """An idempotent producer of ours."""

    def __init__(
        self, access: Access, name: str, topic: str, history: History, chance: random.Random
    ) -> None:
        self.name = name
        self.topic = topic
        self._numbers = _Numbers(name, topic, history, chance)
        self._producer = headwater.Producer(
            **access.own, client_id=name, linger_ms=2,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS, max_block_ms=DELIVERY_TIMEOUT_MS, **QUICK,
        )  # fmt: skip
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        history.note("client", client=name, repeats=False)
        self._thread.start()

    @property
    def acknowledged(self) -> int:
        return self._numbers.acknowledged

    def keys_behind(self, moment: float) -> list[str]:
        """The keys of which no record that was sent after this moment is acknowledged."""
        return self._numbers.keys_behind(moment)

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE_S):
                for written in self._numbers.burst():
                    self._numbers.room.acquire()
                    self._producer.send(
                        self.topic, self._numbers.value(written), key=written.key.encode(),
                        on_delivery=partial(self._delivered, written),
                    )  # fmt: skip
        except KafkaError as failure:
            self._numbers.problem(f"send failed: {failure!r}")

    def _delivered(
        self, written: Written, stored: RecordMetadata | None, error: KafkaError | None
    ) -> None:
        if stored is None:
            self._numbers.failed(written, error)
        else:
            self._numbers.stored(written, stored.partition, stored.offset)

    def finish(self, timeout_s: float) -> None:
        """Send nothing more and wait for what is under way."""
        self._stop.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._numbers.problem(f"does not end within {timeout_s:.0f} s")
            return
        try:
            self._producer.close(timeout_s)
        except KafkaError as failure:
            self._numbers.problem(f"close failed: {failure!r}")
        self._numbers.close()


class ConfluentWriter:
    """A producer of confluent-kafka; one that is not idempotent may store a record again."""

    def __init__(
        self,
        access: Access,
        name: str,
        topic: str,
        history: History,
        chance: random.Random,
        *,
        idempotent: bool = True,
    ) -> None:
        self.name = name
        self.topic = topic
        self._numbers = _Numbers(name, topic, history, chance)
        self._producer = confluent_kafka.Producer(
            {
                **access.confluent,
                "client.id": name,
                "acks": "all",
                "enable.idempotence": idempotent,
                "max.in.flight": 5 if idempotent else 1,
                "linger.ms": 2,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "socket.timeout.ms": 10_000,
                "request.timeout.ms": 5000,
                **CONFLUENT_QUICK,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        history.note("client", client=name, repeats=not idempotent, renumbers=True)
        self._thread.start()

    @property
    def acknowledged(self) -> int:
        return self._numbers.acknowledged

    def keys_behind(self, moment: float) -> list[str]:
        """The keys of which no record that was sent after this moment is acknowledged."""
        return self._numbers.keys_behind(moment)

    def _run(self) -> None:
        while not self._stop.is_set():
            for written in self._numbers.burst():
                while not self._numbers.room.acquire(blocking=False):
                    self._producer.poll(0.05)  # whose callbacks make room
                self._producer.produce(
                    self.topic, self._numbers.value(written), key=written.key.encode(),
                    on_delivery=partial(self._delivered, written),
                )  # fmt: skip
            self._producer.poll(PAUSE_S)

    def _delivered(self, written: Written, error: Any, message: confluent_kafka.Message) -> None:
        if error is not None:
            self._numbers.failed(written, error)
        else:
            offset = message.offset()  # None if the broker only knows that it has the record
            self._numbers.stored(
                written, message.partition() or 0, -1 if offset is None else offset
            )

    def finish(self, timeout_s: float) -> None:
        """Send nothing more and wait for what is under way."""
        self._stop.set()
        self._thread.join(timeout_s)
        left = self._producer.flush(timeout_s)
        if left or self._thread.is_alive():
            self._numbers.problem(f"{left} records have no answer after {timeout_s:.0f} s")
        self._numbers.close()
