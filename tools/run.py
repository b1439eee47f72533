"""`make run`: a broker, a producer and a consumer that nobody here wrote, and what happened.

Ends by itself when its output is no terminal; on a terminal the broker stays up until Ctrl-C.
"""

import signal
import sys
import tempfile
import time
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, Message, Producer

from headwater.testing import Broker

TOPIC = "page-views"
PARTITIONS = 3
RECORDS = 200_000
VALUE = b'{"user": %d, "page": "/item/%d", "ms": %d}'


def main() -> int:
    """Run the sample; 0 if every record came back once."""
    with tempfile.TemporaryDirectory(prefix="headwater-run-") as data:
        started = time.perf_counter()
        with Broker(data_dir=data, subprocess=True) as broker:
            took_ms = (time.perf_counter() - started) * 1000
            print(
                f"broker    ready at {broker.bootstrap} after {took_ms:.0f} ms (pid {broker.pid})"
            )
            broker.create_topic(TOPIC, PARTITIONS)
            print(f"topic     {TOPIC} with {PARTITIONS} partitions")
            sent = _produce(broker.bootstrap)
            seen = _consume(broker.bootstrap)
            whole = seen == sent
            print(f"result    {'every record came back once' if whole else 'RECORDS ARE MISSING'}")
            if whole and sys.stdout.isatty():
                _stay(broker.bootstrap)
    return 0 if whole else 1


def _produce(bootstrap: str) -> dict[int, int]:
    """Send the records idempotently; how many each partition acknowledged."""
    acknowledged: dict[int, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition = message.partition() or 0
            acknowledged[partition] = acknowledged.get(partition, 0) + 1

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": RECORDS,
        }
    )
    started = time.perf_counter()
    for number in range(RECORDS):
        user = number * 7919 % 10_007
        producer.produce(
            TOPIC,
            VALUE % (user, number % 997, number),
            key=b"user-%d" % user,
            on_delivery=delivered,
        )
        if number % 1000 == 0:
            producer.poll(0)
            _progress("produce", number, RECORDS)
    producer.flush(60)
    _summary("produce", sum(acknowledged.values()), time.perf_counter() - started)
    return acknowledged


def _consume(bootstrap: str) -> dict[int, int]:
    """Read everything back in a group; how many records each partition had."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "page-view-readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    seen: dict[int, int] = {}
    total = 0
    started = time.perf_counter()
    deadline = started + 60
    while total < RECORDS and time.perf_counter() < deadline:
        for message in consumer.consume(2000, 0.5):
            if message.error() is None:
                partition = message.partition() or 0
                seen[partition] = seen.get(partition, 0) + 1
        total = sum(seen.values())
        _progress("consume", total, RECORDS)
    consumer.commit(asynchronous=False)
    consumer.close()
    _summary("consume", total, time.perf_counter() - started)
    return seen


def _progress(what: str, done: int, total: int) -> None:
    if sys.stdout.isatty():
        bar = "█" * (done * 30 // total)
        print(f"\r{what}   {bar:<30} {done:,} of {total:,}", end="", flush=True)


def _summary(what: str, records: int, seconds: float) -> None:
    start = "\r" if sys.stdout.isatty() else ""
    rate = f"{records / seconds:,.0f} a second"
    print(f"{start}{what}   {records:,} records in {seconds:.2f} s ({rate}){'':20}")


def _stay(bootstrap: str) -> None:
    print(f"\nThe broker stays up at {bootstrap} until Ctrl-C. In another terminal, try:")
    print(f"  .venv/bin/headwater topics describe {TOPIC} --bootstrap-server {bootstrap}")
    with suppress(KeyboardInterrupt):
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
