"""A topic that is deleted and recreated while producers write to it."""

import contextlib
import random
import threading
import time
from collections.abc import Mapping
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import headwater
import headwater.errors
from headwater.model import TopicPartition
from tools.chaos_clients import (
    CONFLUENT_QUICK,
    PATIENCE_S,
    PLAIN_TEXT,
    contents,
    partition_reader,
)

PARTITIONS = 3


class RecreatedTopic:
    """Two producers write to it, one of them idempotent.

    A record contains the life of the topic in which it was sent. A record that was sent and
    acknowledged in the same life must be readable until that life ends.
    """

    TOPIC = "recreated"

    def __init__(
        self,
        bootstrap: str,
        randomness: random.Random,
        *,
        replicas: int = 1,
        patience_s: float = PATIENCE_S,
        security: Mapping[str, str] = PLAIN_TEXT,
    ) -> None:
        self.count = 0
        self.problems: list[str] = []
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """By partition and offset: the records of the present life that were not deleted."""
        self.life = 0
        self.deletions = 0
        self._steady = threading.Event()
        """Set while the topic exists and is not being deleted."""
        self._lock = threading.Lock()
        self._random = randomness
        self._clients = {"bootstrap.servers": bootstrap, **security, **CONFLUENT_QUICK}
        self._security = security
        self._replicas = replicas
        self._patience_s = patience_s
        self._admin = AdminClient(dict(self._clients))
        own: dict[str, Any] = {name.replace(".", "_"): value for name, value in security.items()}
        self._own_admin = headwater.Admin(bootstrap_servers=bootstrap, **own)
        self._topic_id: bytes | None = None
        self._starts: dict[int, int] = {}
        self._stop = threading.Event()
        # The life that each writer writes for: at most one behind, so that no older record arrives
        # late.
        self._written_lives = [0, 0]
        self._create()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(2)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        while not self._stop.is_set():
            # A new producer for each life: a client caches a deleted topic.
            life = self._written_lives[number] = self.life
            producer = Producer(
                {
                    **self._clients,
                    "acks": "all",
                    "enable.idempotence": number == 0,
                    "linger.ms": 1,
                    "message.timeout.ms": 5000,
                }
            )
            # librdkafka may fail an idempotent producer whose topic was deleted.
            with contextlib.suppress(KafkaException):
                self._write(number, life, producer)
                producer.flush(self._patience_s)

    def _write(self, number: int, life: int, producer: Producer) -> None:
        """Write until this life of the topic is over."""
        sent = 0
        while life == self.life and not self._stop.is_set():
            try:
                for _ in range(5):
                    value = b"%d:%d:%d:" % (life, number, sent) + b"." * 200
                    producer.produce(self.TOPIC, value, on_delivery=self._delivered)
                    sent += 1
            except KafkaException:
                producer.poll(0.05)  # the client already knows that the topic is gone
            producer.poll(0.02)
            while len(producer) > 200:
                producer.poll(0.05)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            return  # the topic was gone, or the broker was away for too long
        value = message.value() or b""
        with self._lock:
            self.count += 1
            partition, offset = message.partition() or 0, message.offset()
            if offset is None or not self._steady.is_set():
                return  # no offset: the broker only knows that it has the record
            if int(value.partition(b":")[0]) == self.life and offset >= self._start_of(partition):
                self.acknowledged[partition, offset] = value

    def _start_of(self, partition: int) -> int:
        return self._starts.get(partition, 0)

    def again(self) -> None:
        """Truncate, delete and create it while writers work; then wait for records."""
        deadline = time.monotonic() + self._patience_s
        while any(life != self.life for life in self._written_lives):
            if time.monotonic() > deadline:
                raise TimeoutError("a writer of the topic's former life does not end")
            time.sleep(0.005)
        if self._random.random() < 0.5:
            self.truncate()
        with self._lock:
            self._steady.clear()
        self._delete()
        self.deletions += 1
        self._create()

    def _create(self) -> None:
        """Create it, with retries until it has a new id: the name is taken during a deletion."""
        configs = {"flush.messages": "1"} if self._random.random() < 0.5 else {}
        topic = NewTopic(self.TOPIC, PARTITIONS, self._replicas, config=configs)
        deadline = time.monotonic() + self._patience_s
        while True:
            refusal = self._ask(self._admin.create_topics([topic]))
            found = self._find_id()
            if found not in (None, self._topic_id):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"cannot create {self.TOPIC}: {refusal}")
            time.sleep(0.01)
        with self._lock:
            self._topic_id = found
            self.acknowledged, self._starts = {}, {}
            self.life += 1
            self._steady.set()

    def _delete(self) -> None:
        deadline = time.monotonic() + self._patience_s
        while True:
            refusal = self._ask(self._admin.delete_topics([self.TOPIC]))
            if refusal is None or refusal.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"cannot delete {self.TOPIC}: {refusal}")

    def _ask(self, futures: dict[str, Any]) -> KafkaError | None:
        try:
            futures[self.TOPIC].result(self._patience_s)
        except KafkaException as failure:
            return cast("KafkaError", failure.args[0])
        return None

    def _find_id(self) -> bytes | None:
        try:
            return self._own_admin.describe_topics([self.TOPIC])[self.TOPIC].topic_id
        except headwater.errors.KafkaError:
            return None

    def truncate(self) -> None:
        """DeleteRecords moves the start of every partition to its end.

        With our admin: librdkafka's keeps asking a former leader for minutes.
        """
        starts = self._delete_everything()
        with self._lock:
            self._starts = {at.partition: start for at, start in starts.items()}
            self.acknowledged = {
                (partition, offset): value
                for (partition, offset), value in self.acknowledged.items()
                if offset >= self._start_of(partition)
            }
        time.sleep(self._random.choice((0.0, 0.4)))  # with and without a checkpoint in between

    def _delete_everything(self) -> dict[TopicPartition, int]:
        everything = {TopicPartition(self.TOPIC, number): -1 for number in range(PARTITIONS)}
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return self._own_admin.delete_records(everything)
            except headwater.errors.KafkaError as failure:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"cannot delete records: {failure}") from failure

    def finish(self) -> None:
        """Stop sending and wait for records in flight."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._own_admin.close()

    def read(self, bootstrap: str) -> dict[tuple[int, int], bytes]:
        """Return every record, by partition and offset."""
        with partition_reader(bootstrap, self._security) as reader:
            return {
                (partition, offset): value
                for partition in range(PARTITIONS)
                for offset, value in contents(reader, self.TOPIC, partition).items()
            }

    def check(self, there: dict[tuple[int, int], bytes]) -> list[str]:
        """Return what is wrong with the records of the last life."""
        lost = [at for at, value in self.acknowledged.items() if there.get(at) != value]
        old = [at for at, value in there.items() if int(value.partition(b":")[0]) < self.life - 1]
        return [
            f"{self.TOPIC}: {len(found)} {what}, such as {found[:3]}"
            for what, found in (
                ("acknowledged records are lost", lost),
                ("records of former topics", old),
            )
            if found
        ]
