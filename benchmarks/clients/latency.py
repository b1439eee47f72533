"""From send to poll, at a rate that tires nobody: percentiles of clients beside each other.

    python -m benchmarks.clients.latency [--rounds 3] [--seconds 5] [--rate 1000] [--client NAME]

Each client runs in a process of its own, producer and consumer together as an application would have
them, against one broker in another process. Records are sent at their times, late or not (an open
loop), without linger, and carry the time right before they were sent: timers of event loops, which
are a millisecond coarse, are nobody's latency. Clients take turns; medians over the rounds are told,
and their ratio to confluent-kafka.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

TOPIC = "bench"
WARM_UP_S = 1.0
_SENT = Struct(">q")
Run = Callable[[str, float, float], list[int]]


def schedule(rate: float, seconds: float) -> list[int]:
    """When records are due, in nanoseconds of the monotonic clock; the first in half a second."""
    first = time.monotonic_ns() + 500_000_000
    return [first + int(number * 1e9 / rate) for number in range(int(rate * seconds))]


def value() -> bytes:
    """A record of 100 bytes that is about to be sent."""
    return _SENT.pack(time.monotonic_ns()) + bytes(92)


def late_by(data: bytes) -> int:
    """How long after it was sent a record is here."""
    sent: int = _SENT.unpack_from(data)[0]
    return time.monotonic_ns() - sent


def paced(dues: list[int]) -> Iterator[bytes]:
    """The records, each at its time; for threads."""
    for due in dues:
        rest = due - time.monotonic_ns()
        if rest > 0:
            time.sleep(rest / 1e9)
        yield value()


def headwater_aio(bootstrap: str, rate: float, seconds: float) -> list[int]:
    """The asyncio face."""
    import uvloop

    from headwater.aio import Consumer, Producer

    seen: list[int] = []

    async def send(producer: Any, dues: list[int]) -> None:
        for due in dues:
            rest = due - time.monotonic_ns()
            if rest > 0:
                await asyncio.sleep(rest / 1e9)
            await producer.send(TOPIC, value())

    async def run() -> None:
        async with (
            Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer,
            Consumer(bootstrap_servers=bootstrap, auto_offset_reset="latest") as consumer,
        ):
            await consumer.assign([(TOPIC, 0)])
            await consumer.position((TOPIC, 0))
            await producer.partitions_for(TOPIC)
            dues = schedule(rate, seconds)
            sending = asyncio.create_task(send(producer, dues))
            while len(seen) < len(dues):
                seen.extend(late_by(record.value) for record in await consumer.poll(5))
            await sending

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    return seen


def headwater_blocking(bootstrap: str, rate: float, seconds: float) -> list[int]:
    """The blocking face, a thread for each end."""
    from headwater import Consumer, Producer

    with (
        Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="latest") as consumer,
    ):
        consumer.assign([(TOPIC, 0)])
        consumer.position((TOPIC, 0))
        producer.partitions_for(TOPIC)

        def send(dues: list[int]) -> None:
            for data in paced(dues):
                producer.send(TOPIC, data)

        return _both(send, lambda: [record.value for record in consumer.poll(5)], rate, seconds)


def confluent(bootstrap: str, rate: float, seconds: float) -> list[int]:
    """The bindings of librdkafka, a thread for each end."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True}
    )
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 500}
    )
    end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 10)[1]
    consumer.assign([TopicPartition(TOPIC, 0, end)])
    producer.list_topics(TOPIC)

    def send(dues: list[int]) -> None:
        for data in paced(dues):
            producer.produce(TOPIC, data)
            producer.poll(0)

    def poll() -> list[bytes]:
        record = consumer.poll(5)
        return [] if record is None or record.error() else [record.value()]

    seen = _both(send, poll, rate, seconds)
    consumer.close()
    return seen


def _both(
    send: Callable[[list[int]], None], poll: Callable[[], list[bytes]], rate: float, seconds: float
) -> list[int]:
    dues, seen = schedule(rate, seconds), list[int]()
    sender = threading.Thread(target=send, args=(dues,))
    sender.start()
    while len(seen) < len(dues):
        seen.extend(late_by(data) for data in poll())
    sender.join()
    return seen


def aiokafka(bootstrap: str, rate: float, seconds: float) -> list[int]:
    """Aiokafka on uvloop."""
    import uvloop
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    seen: list[int] = []

    async def send(producer: Any, dues: list[int]) -> None:
        for due in dues:
            rest = due - time.monotonic_ns()
            if rest > 0:
                await asyncio.sleep(rest / 1e9)
            await producer.send(TOPIC, value())

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, linger_ms=0, enable_idempotence=True
        )
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="latest")
        await producer.start()
        await consumer.start()
        consumer.assign([TopicPartition(TOPIC, 0)])
        await consumer.seek_to_end()
        await consumer.position(TopicPartition(TOPIC, 0))
        dues = schedule(rate, seconds)
        sending = asyncio.create_task(send(producer, dues))
        while len(seen) < len(dues):
            for records in (await consumer.getmany(timeout_ms=5000)).values():
                seen.extend(late_by(record.value) for record in records)
        await sending
        await consumer.stop()
        await producer.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    return seen


CLIENTS: dict[str, tuple[Run, str]] = {
    "confluent-kafka": (confluent, ""),
    "headwater compiled aio": (headwater_aio, "compiled"),
    "headwater pure aio": (headwater_aio, "pure"),
    "headwater compiled blocking": (headwater_blocking, "compiled"),
    "aiokafka": (aiokafka, ""),
}


def measure(bootstrap: str, client: str, rate: float, seconds: float) -> dict[str, float]:
    """One run in a process of its own; milliseconds."""
    codec = CLIENTS[client][1]
    environment = {**os.environ, **({"HEADWATER_CODEC": codec} if codec else {})}
    command = [sys.executable, "-m", "benchmarks.clients.latency", "--worker", client]
    command += ["--bootstrap", bootstrap, "--rate", str(rate), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{client}: {done.stderr[-2000:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def work(client: str, bootstrap: str, rate: float, seconds: float) -> None:
    """The child's part: percentiles of all but the first second."""
    late = CLIENTS[client][0](bootstrap, rate, seconds + WARM_UP_S)
    kept = sorted(late[int(rate * WARM_UP_S) :])
    told = {f"p{share:g}": kept[int(len(kept) * share / 100)] / 1e6 for share in (50, 90, 99)}
    print(json.dumps(told), flush=True)


def main() -> None:
    """Run all clients and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker")
    parser.add_argument("--bootstrap")
    parser.add_argument("--client", action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--json")
    asked = parser.parse_args()
    if asked.worker:
        work(asked.worker, asked.bootstrap, asked.rate, asked.seconds)
        return
    results = compare(asked)
    base = results.get("confluent-kafka", {"p50": float("nan")})["p50"]
    for name, row in results.items():
        times = "  ".join(f"{share} {late:8.3f} ms" for share, late in row.items())
        print(f"{row['p50'] / base:6.2f} x  {times}  {name}")
    if asked.json:
        with open(asked.json, "w") as out:
            json.dump(results, out, indent=1)


def compare(asked: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Medians of the percentiles by client."""
    from headwater.testing import Broker

    clients = asked.client or list(CLIENTS)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in clients}
    with Broker(subprocess=True) as broker:
        broker.create_topic(TOPIC, partitions=1)
        address = asked.bootstrap or broker.bootstrap
        for _ in range(asked.rounds):
            for name in clients:
                runs[name].append(measure(address, name, asked.rate, asked.seconds))
    return {
        name: {share: statistics.median(run[share] for run in told) for share in told[0]}
        for name, told in runs.items()
    }


if __name__ == "__main__":
    main()
