"""What users of a real client see: librdkafka, through confluent-kafka, at both ends."""

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.load.rounds import Scale
from benchmarks.load.servers import Broker
from benchmarks.load.targets import Figure, Limit, at_most

_MESSAGES_A_SECOND = 1000
_VALUE_BYTES = (100, 1000)
_TIMEOUT = 60.0


def _address(server: Broker) -> dict[str, str]:
    return {"bootstrap.servers": f"127.0.0.1:{server.port}"}


@contextmanager
def _reader(server: Broker, topic: str) -> Iterator[Consumer]:
    """A consumer of partition 0 from its start, outside of any group's assignment."""
    consumer = Consumer({**_address(server), "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


def _receive(consumer: Consumer, arrivals: list[float], count: int) -> None:
    """Collects the age of each message in microseconds; a message carries when it was sent."""
    deadline = time.perf_counter() + _TIMEOUT + count / _MESSAGES_A_SECOND
    while len(arrivals) < count and time.perf_counter() < deadline:
        message = consumer.poll(1.0)
        now = time.perf_counter_ns()
        if message is not None and message.error() is None:
            (sent,) = struct.unpack_from(">q", message.value() or b"")
            arrivals.append((now - sent) / 1000)


def _ages(server: Broker, count: int) -> list[float]:
    """Sends at an even pace and measures each message from `produce` to `poll`, sorted.

    One message before them, which is not counted, waits until both clients have found the leader.
    """
    topic = server.fresh_topic(1)
    producer = Producer({**_address(server), "linger.ms": 0, "acks": "all", "log_level": 0})
    arrivals: list[float] = []
    with _reader(server, topic.name) as consumer:
        producer.produce(topic.name, struct.pack(">q", 0), partition=0)
        producer.flush(_TIMEOUT)
        if consumer.poll(_TIMEOUT) is None:
            raise RuntimeError(f"{server.name}: the first message did not arrive")
        receiver = Thread(target=_receive, args=(consumer, arrivals, count))
        receiver.start()
        start = time.perf_counter()
        for i in range(count):
            wait = start + i / _MESSAGES_A_SECOND - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            producer.produce(topic.name, struct.pack(">q", time.perf_counter_ns()), partition=0)
            producer.poll(0)
        producer.flush(_TIMEOUT)
        receiver.join()
    server.drop(topic)
    if len(arrivals) != count:
        raise RuntimeError(f"{server.name}: {len(arrivals)} of {count} messages arrived")
    return sorted(arrivals)


def end_to_end(scale: Scale, servers: Sequence[Broker], subject: str) -> list[Figure]:
    """Produce to consume at 1,000 messages a second: medians and tails against the rivals."""
    count = scale.latency_samples // scale.rounds
    ages: dict[str, list[list[float]]] = {server.name: [] for server in servers}
    for server in servers:
        _ages(server, 2 * _MESSAGES_A_SECOND)  # a JIT needs to have seen it
    for _ in range(scale.rounds):
        for server in servers:
            ages[server.name].append(_ages(server, count))
    figures = []
    for share, word, limit in ((0.5, "p50", at_most(1.1)), (0.99, "p99", at_most(1.5))):
        tails = {name: [_at(run, share) for run in runs] for name, runs in ages.items()}
        figures += _against("end-to-end", word, tails, subject, limit, "µs")
    return figures


def _at(ages: list[float], share: float) -> float:
    return ages[int(share * (len(ages) - 1))]


def _against(
    case: str,
    word: str,
    values: dict[str, list[float]],
    subject: str,
    limit: Limit | None,
    unit: str,
) -> list[Figure]:
    """The ratios of the subject to each other server, then the plain values."""
    ours = values[subject]
    ratios = [
        Figure(case, f"{word} ÷ {name}", [a / b for a, b in zip(ours, runs, strict=True)], limit)
        for name, runs in values.items()
        if name != subject
    ]
    return ratios + [Figure(case, f"{word} of {n}, {unit}", runs) for n, runs in values.items()]


def _produce_rate(server: Broker, topic: str, value_bytes: int, count: int) -> float:
    producer = Producer(
        {**_address(server), "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    )
    producer.list_topics(topic, timeout=_TIMEOUT)  # connects outside the timing
    value = b"x" * value_bytes
    start = time.perf_counter()
    for _ in range(count):
        producer.produce(topic, value, partition=0)
    if producer.flush(_TIMEOUT):
        raise RuntimeError(f"{server.name}: messages were not delivered")
    return count / (time.perf_counter() - start)


def _consume_rate(server: Broker, topic: str, count: int) -> float:
    with _reader(server, topic) as consumer:
        got = len(consumer.consume(1, timeout=_TIMEOUT))
        start = time.perf_counter()
        while got < count:
            # It waits for as many as it is asked for: do not ask for more than there are.
            messages = consumer.consume(min(10_000, count - got), timeout=_TIMEOUT)
            if not messages:
                raise RuntimeError(f"{server.name}: {got} of {count} messages arrived")
            got += len(messages)
        return got / (time.perf_counter() - start)


def client_rates(scale: Scale, servers: Sequence[Broker], subject: str) -> list[Figure]:
    """Messages a second that one librdkafka producer and one consumer reach."""
    figures = []
    for value_bytes in _VALUE_BYTES:
        produced: dict[str, list[float]] = {server.name: [] for server in servers}
        consumed: dict[str, list[float]] = {server.name: [] for server in servers}
        for _ in range(scale.rounds):
            for server in servers:
                topic = server.fresh_topic(1)
                count = scale.client_messages
                produced[server.name].append(_produce_rate(server, topic.name, value_bytes, count))
                consumed[server.name].append(_consume_rate(server, topic.name, count))
                server.drop(topic)
        case = f"librdkafka-{value_bytes}B"
        figures += _against(case, "produced messages", produced, subject, None, "msg/s")
        figures += _against(case, "consumed messages", consumed, subject, None, "msg/s")
    return figures
