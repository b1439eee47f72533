"""Transfers that are requested by records, and clients that read requests and carry them out.

Records, results and offsets are one transaction: consume, transform, produce.
"""

import random
import threading
import time
from functools import partial

import confluent_kafka

import headwater
from headwater.errors import KafkaError
from tools.bank_chaos.tellers import (
    PATIENCE_S,
    TIMEOUT_MS,
    confluent_producer,
    insist_confluent,
    send_confluent,
)
from tools.bank_chaos.transfers import Leg, Transfer, transfers
from tools.chaos_clients import CONFLUENT_QUICK
from tools.client_chaos import QUICK
from tools.cluster_chaos.history import History

REQUESTS = {"own": "requests-own", "confluent": "requests-confluent"}
"""Topics of requests, by the client that carries them out."""
SECONDS_APART = 0.04
MOST_AT_ONCE = 40
SESSION_TIMEOUT_MS = 10_000
HANGS_S = 2 * PATIENCE_S
"""How long a call of confluent-kafka may take; it should give up earlier."""


def as_request(chosen: Transfer) -> bytes:
    """The value of a request."""
    return b";".join(leg.as_value() for leg in chosen)


def from_request(value: bytes | None) -> Transfer:
    """The transfer that a request asks for."""
    return [Leg.from_value(part) for part in (value or b"").split(b";")]


class Requester:
    """Writes requests to both topics, idempotently."""

    def __init__(self, bootstrap: str, history: History, chance: random.Random) -> None:
        self._history = history
        self._transfers = {
            topic: transfers(f"request-{name}", chance) for name, topic in REQUESTS.items()
        }
        self._producer = headwater.Producer(
            bootstrap_servers=bootstrap, client_id="requester", linger_ms=2,
            delivery_timeout_ms=600_000, max_block_ms=600_000, **QUICK,
        )  # fmt: skip
        self.acknowledged = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="requester", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(SECONDS_APART):
            for topic, chosen in self._transfers.items():
                self._request(topic, next(chosen))

    def _request(self, topic: str, chosen: Transfer) -> None:
        def delivered(_: object, error: Exception | None) -> None:
            if error is None:
                self.acknowledged += 1
                self._history.note("requested", transfer=chosen[0].transfer)

        self._producer.send(topic, as_request(chosen), partition=0, on_delivery=delivered)

    def finish(self) -> None:
        """Request nothing more and wait for what is under way."""
        self._stop.set()
        self._thread.join()
        self._producer.close(PATIENCE_S * 6)


class OwnTransformer:
    """`headwater.transform` on a thread of its own; it is started again after an error."""

    def __init__(self, bootstrap: str, history: History) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transform", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                headwater.transform(
                    REQUESTS["own"], "checking", _carried_out, bootstrap_servers=self._bootstrap,
                    group_id="own", transactional_id="transform-own", max_records=MOST_AT_ONCE,
                    max_wait_s=0.05, stop=self._stop.is_set,
                    consumer={
                        "session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": 500,
                        **QUICK,
                    },
                    producer={
                        "transaction_timeout_ms": TIMEOUT_MS, "delivery_timeout_ms": 600_000,
                        "max_block_ms": int(1000 * PATIENCE_S), **QUICK,
                    },
                )  # fmt: skip
            except KafkaError as failure:
                self._history.note("fatal", teller="transform-own", error=repr(failure))
                self._stop.wait(0.2)

    def finish(self) -> None:
        """Commit what is under way."""
        self._stop.set()
        self._thread.join()


def _carried_out(record: headwater.ConsumerRecord[bytes, bytes]) -> list[headwater.ProducerRecord]:
    return [
        headwater.ProducerRecord(
            leg.place.topic, leg.as_value(), partition=leg.place.partition
        )
        for leg in from_request(record.value)
    ]  # fmt: skip


class ConfluentTransformer:
    """The same with confluent-kafka's clients.

    Their send_offsets_to_transaction() may hang for good if the group's coordinator went away
    (librdkafka's issues 5456 and 5511): then another pair of clients takes over, which fences them.
    """

    def __init__(self, bootstrap: str, history: History) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._stop = threading.Event()
        self._newest = 0
        self._moved = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="confluent watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        worker = self._begin()
        while not self._stop.wait(0.2):
            if time.monotonic() - self._moved > HANGS_S:
                self._history.note("hangs", teller="transform-confluent")
                worker = self._begin()
        worker.join(HANGS_S)

    def _begin(self) -> threading.Thread:
        self._newest += 1
        self._moved = time.monotonic()
        name = f"confluent transform {self._newest}"
        worker = threading.Thread(target=self._run, args=(self._newest,), name=name, daemon=True)
        worker.start()
        return worker

    def _goes_on(self, number: int) -> bool:
        if number == self._newest:
            self._moved = time.monotonic()
        return number == self._newest and not self._stop.is_set()

    def _run(self, number: int) -> None:
        while self._goes_on(number):
            consumer = self._consumer()
            try:
                producer = confluent_producer(self._bootstrap, "transform-confluent")
                insist_confluent(partial(producer.init_transactions, PATIENCE_S), self._history)
                consumer.subscribe([REQUESTS["confluent"]])
                while self._goes_on(number):
                    self._carry_out(consumer, producer)
            except confluent_kafka.KafkaException as failure:
                self._history.note("fatal", teller="transform-confluent", error=str(failure))
                time.sleep(0.2)
            finally:
                consumer.close()

    def _consumer(self) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "confluent",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "max.poll.interval.ms": int(1000 * PATIENCE_S),
                "heartbeat.interval.ms": 500,
                "socket.timeout.ms": 10_000,
                "fetch.wait.max.ms": 100,
                **CONFLUENT_QUICK,
            }
        )

    def _carry_out(
        self, consumer: confluent_kafka.Consumer, producer: confluent_kafka.Producer
    ) -> None:
        # Taken before the records: if the group rebalances meanwhile, their offsets are refused.
        group = consumer.consumer_group_metadata()
        records = [one for one in consumer.consume(MOST_AT_ONCE, 0.2) if one.error() is None]
        if not records:
            return
        producer.begin_transaction()
        try:
            send_confluent(producer, [from_request(record.value()) for record in records])
            end = confluent_kafka.TopicPartition(
                REQUESTS["confluent"], 0, (records[-1].offset() or 0) + 1
            )
            insist_confluent(
                partial(producer.send_offsets_to_transaction, [end], group, PATIENCE_S),
                self._history,
            )
            insist_confluent(partial(producer.commit_transaction, PATIENCE_S), self._history)
        except confluent_kafka.KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            insist_confluent(partial(producer.abort_transaction, PATIENCE_S), self._history)
            raise  # a new consumer begins at the committed offset

    def finish(self) -> None:
        """Commit what is under way."""
        self._stop.set()
        self._thread.join()
