"""One run of one client, in a process of its own: `python -m benchmarks.transactions.workers`.

    commits CLIENT BOOTSTRAP TOPIC COUNT      COUNT transactions of 100 records, one after the other
    stream CLIENT BOOTSTRAP TOPIC SECONDS HOW  records of 1 KB for a while; HOW is transactional, with
                                               a commit every 100 ms, or idempotent
    fill headwater BOOTSTRAP TOPIC COUNT       COUNT transactions of 100 records; each hundredth aborts
    read CLIENT BOOTSTRAP TOPIC COUNT HOW      these offsets, five times; HOW is an isolation level

The last line of the output is a JSON object of figures. CLIENT is `headwater` (the blocking face) or
`librdkafka` (confluent-kafka), each with its defaults.
"""

import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, Protocol

from benchmarks.clients.contest import Figures, Stopwatch, tell

RECORDS = 100
VALUE = bytes(100)
LARGE_VALUE = bytes(1000)
COMMIT_EVERY_S = 0.1
UNCOUNTED = 50
"""Transactions before the first that counts: connections are made, and code is warm."""
PASSES = 5
"""How often a run reads the log: once takes no longer than a blink."""
_TIMEOUT = 60.0


class TransactionalClient(Protocol):
    """What a run needs of a producer."""

    def begin(self) -> None: ...

    def send(self, value: bytes) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class HeadwaterClient:
    """Our blocking producer."""

    def __init__(self, bootstrap: str, topic: str, transactional: bool) -> None:
        from headwater import Producer

        self._topic = topic
        self._producer = (
            Producer(bootstrap_servers=bootstrap, transactional_id=f"bench-{uuid.uuid4()}")
            if transactional
            else Producer(bootstrap_servers=bootstrap)
        )
        self._producer.partitions_for(topic)
        if transactional:
            self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction
        self.flush = self._producer.flush
        self.close = self._producer.close

    def send(self, value: bytes) -> None:
        """Send a record."""
        self._producer.send(self._topic, value)


class LibrdkafkaClient:
    """confluent-kafka."""

    def __init__(self, bootstrap: str, topic: str, transactional: bool) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        identity = {"transactional.id": f"bench-{uuid.uuid4()}"} if transactional else {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
                **identity,
            }
        )
        self._producer.list_topics(topic, timeout=_TIMEOUT)
        if transactional:
            self._producer.init_transactions(_TIMEOUT)

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def send(self, value: bytes) -> None:
        """Send a record; wait while the queue is full."""
        while True:
            try:
                self._producer.produce(self._topic, value)
            except BufferError:
                self._producer.poll(0.01)
            else:
                return

    def commit(self) -> None:
        """Commit."""
        self._producer.commit_transaction(_TIMEOUT)

    def abort(self) -> None:
        """Abort."""
        self._producer.abort_transaction(_TIMEOUT)

    def flush(self) -> None:
        """Wait until everything is stored."""
        if self._producer.flush(_TIMEOUT):
            raise RuntimeError("records were not delivered")

    def close(self) -> None:
        """Do nothing: it ends with the process."""


_CLIENTS: dict[str, Callable[[str, str, bool], TransactionalClient]] = {
    "headwater": HeadwaterClient,
    "librdkafka": LibrdkafkaClient,
}


def commits(client: str, bootstrap: str, topic: str, count: str) -> Figures:
    """Transactions a second, and how long commits take."""
    producer = _CLIENTS[client](bootstrap, topic, True)
    times: list[float] = []
    began = 0.0
    for number in range(-UNCOUNTED, int(count)):
        if number == 0:
            began = time.perf_counter()
        producer.begin()
        for _ in range(RECORDS):
            producer.send(VALUE)
        asked = time.perf_counter()
        producer.commit()
        times.append(time.perf_counter() - asked)
    elapsed = time.perf_counter() - began
    producer.close()
    counted = sorted(times[UNCOUNTED:])
    return {
        "rate": len(counted) / elapsed,
        "p50_ms": counted[len(counted) // 2] * 1e3,
        "p99_ms": counted[int(len(counted) * 0.99)] * 1e3,
    }


def stream(client: str, bootstrap: str, topic: str, seconds: str, how: str) -> Figures:
    """Megabytes a second; the last commit or flush counts."""
    transactional = how == "transactional"
    producer = _CLIENTS[client](bootstrap, topic, transactional)
    if not transactional:  # it gets its producer id with the first record
        producer.send(LARGE_VALUE)
        producer.flush()
    sent = 0
    began = time.perf_counter()
    end = began + float(seconds)
    while (now := time.perf_counter()) < end:
        if transactional:
            producer.begin()
        rest = min(now + COMMIT_EVERY_S, end)
        while time.perf_counter() < rest:
            for _ in range(RECORDS):
                producer.send(LARGE_VALUE)
            sent += RECORDS
        if transactional:
            producer.commit()
    producer.flush()
    elapsed = time.perf_counter() - began
    producer.close()
    return {"rate": sent * len(LARGE_VALUE) / 1e6 / elapsed}


def fill(client: str, bootstrap: str, topic: str, count: str) -> Figures:
    """Write what `read` reads; return the number of offsets."""
    producer = _CLIENTS[client](bootstrap, topic, True)
    for number in range(int(count)):
        producer.begin()
        for _ in range(RECORDS):
            producer.send(VALUE)
        if number % 100 == 50:
            producer.flush()
            producer.abort()
        else:
            producer.commit()
    producer.close()
    return {"offsets": int(count) * (RECORDS + 1)}


def read(client: str, bootstrap: str, topic: str, count: str, how: str) -> Figures:
    """Read offsets a second, those of aborted records and markers included."""
    transactions = int(count) // (RECORDS + 1)
    aborted = sum(1 for number in range(transactions) if number % 100 == 50)
    shown = (transactions - (aborted if how == "read_committed" else 0)) * RECORDS
    reader = _read_headwater if client == "headwater" else _read_librdkafka
    watch = Stopwatch(int(count) * PASSES)
    reader(bootstrap, topic, how, shown, watch)
    return {}


def _read_headwater(bootstrap: str, topic: str, how: Any, shown: int, watch: Stopwatch) -> None:
    from headwater import Consumer

    with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=how
    ) as consumer:
        consumer.partitions_for(topic)
        watch.start()
        consumer.assign([(topic, 0)])
        for _ in range(PASSES):
            consumer.seek((topic, 0), 0)
            left = shown
            while left > 0:
                left -= len(consumer.poll(5))
        watch.stop()


def _read_librdkafka(bootstrap: str, topic: str, how: str, shown: int, watch: Stopwatch) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": how,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.list_topics(topic, timeout=_TIMEOUT)
    watch.start()
    for _ in range(PASSES):
        consumer.assign([TopicPartition(topic, 0, 0)])
        left = shown
        while left > 0:
            left -= len(consumer.consume(min(500, left), 0.5))
    watch.stop()
    consumer.close()


def main() -> None:
    """Run what the command line names."""
    runs: dict[str, Callable[..., Figures]] = {
        "commits": commits,
        "stream": stream,
        "fill": fill,
        "read": read,
    }
    told = runs[sys.argv[1]](*sys.argv[2:])
    if told:
        tell(told)


if __name__ == "__main__":
    main()
