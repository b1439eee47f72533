"""From send to poll, at a rate that tires nobody: percentiles of clients beside each other.

    python -m benchmarks.clients.latency [--broker apache] [--rounds 3] [--seconds 5] [--rate 1000]

Producer and consumer run together in one process, as an application would have them. Records are
sent at their times, late or not (an open loop), without linger, and carry the time right before they
were sent. A thread keeps those times for everybody: the timers of event loops are a millisecond
coarse and would send records in pairs. Medians of the rounds are told, and their ratio to
confluent-kafka; `contest` says how they are taken.
"""

import argparse
import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from struct import Struct
from typing import Any

from benchmarks.clients.contest import (
    TOPIC,
    Figures,
    arguments,
    broker_of,
    parsed,
    place_of,
    run_worker,
    running,
    save,
    take_turns,
    tell,
)
from benchmarks.clients.place import Place

WARM_UP_S = 1.0
_SENT = Struct(">q")
Run = Callable[[Place, float, float], list[int]]


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


def on_time(dues: list[int]) -> Iterator[None]:
    """Go on at each of these times."""
    for due in dues:
        rest = due - time.monotonic_ns()
        if rest > 0:
            time.sleep(rest / 1e9)
        yield


async def on_time_here(dues: list[int]) -> AsyncIterator[None]:
    """The same on an event loop, which a thread wakes in time."""
    loop, due, came = asyncio.get_running_loop(), asyncio.Event(), 0
    bell, rope = socket.socketpair()

    def rung() -> None:
        nonlocal came
        came += len(bell.recv(len(dues)))
        due.set()

    def ring() -> None:
        for _ in on_time(dues):
            rope.send(b"!")

    loop.add_reader(bell, rung)
    threading.Thread(target=ring, daemon=True).start()
    for number in range(len(dues)):
        while came <= number:
            due.clear()
            await due.wait()
        yield
    loop.remove_reader(bell)
    bell.close()
    rope.close()


def headwater_aio(place: Place, rate: float, seconds: float) -> list[int]:
    """The asyncio face."""
    import uvloop

    from headwater.aio import Consumer, Producer

    seen: list[int] = []

    async def send(producer: Any, dues: list[int]) -> None:
        async for _ in on_time_here(dues):
            await producer.send(TOPIC, value())

    async def run() -> None:
        async with (
            Producer(**place.headwater(), linger_ms=0) as producer,
            Consumer(**place.headwater(), auto_offset_reset="latest") as consumer,
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


def headwater_blocking(place: Place, rate: float, seconds: float) -> list[int]:
    """The blocking face, a thread for each end."""
    from headwater import Consumer, Producer

    with (
        Producer(**place.headwater(), linger_ms=0) as producer,
        Consumer(**place.headwater(), auto_offset_reset="latest") as consumer,
    ):
        consumer.assign([(TOPIC, 0)])
        consumer.position((TOPIC, 0))
        producer.partitions_for(TOPIC)

        def send(dues: list[int]) -> None:
            for _ in on_time(dues):
                producer.send(TOPIC, value())

        return _both(send, lambda: [record.value for record in consumer.poll(5)], rate, seconds)


def confluent(place: Place, rate: float, seconds: float) -> list[int]:
    """The bindings of librdkafka, a thread for each end."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({**place.librdkafka(), "linger.ms": 0, "enable.idempotence": True})
    consumer = Consumer({**place.librdkafka(), "group.id": "bench", "fetch.wait.max.ms": 500})
    end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 10)[1]
    consumer.assign([TopicPartition(TOPIC, 0, end)])
    producer.list_topics(TOPIC)

    def send(dues: list[int]) -> None:
        for _ in on_time(dues):
            producer.produce(TOPIC, value())
            producer.poll(0)

    def poll() -> list[bytes]:
        record = consumer.poll(5)
        return [] if record is None or record.error() else [record.value() or b""]

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


def aiokafka(place: Place, rate: float, seconds: float) -> list[int]:
    """Aiokafka on uvloop."""
    import uvloop
    from aiokafka import (  # type: ignore[import-untyped]
        AIOKafkaConsumer,
        AIOKafkaProducer,
        TopicPartition,
    )

    seen: list[int] = []

    async def send(producer: Any, dues: list[int]) -> None:
        async for _ in on_time_here(dues):
            await producer.send(TOPIC, value())

    async def run() -> None:
        producer = AIOKafkaProducer(**place.aiokafka(), linger_ms=0, enable_idempotence=True)
        consumer = AIOKafkaConsumer(**place.aiokafka(), auto_offset_reset="latest")
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


def contest(asked: argparse.Namespace) -> dict[str, Figures]:
    """Medians of the percentiles by client, in milliseconds."""
    with running(asked.broker, secure=asked.secure) as place:

        def measure(client: str) -> Figures:
            times = {"rate": asked.rate, "seconds": asked.seconds}
            return run_worker("latency", client, CLIENTS[client][1], place, **times)

        return take_turns(asked.client or list(CLIENTS), asked.rounds, measure)


def work(client: str, place: Place, rate: float, seconds: float) -> None:
    """One run, in a process of its own: percentiles of all but the first second."""
    late = CLIENTS[client][0](place, rate, seconds + WARM_UP_S)
    kept = sorted(late[int(rate * WARM_UP_S) :])
    tell({f"p{share:g}": kept[int(len(kept) * share / 100)] / 1e6 for share in (50, 90, 99)})


def table(rows: dict[str, Figures]) -> str:
    """Percentiles, the median beside its ratio to confluent-kafka's."""
    base = rows.get("confluent-kafka", {"p50": float("nan")})["p50"]
    lines = []
    for client, row in rows.items():
        times = "  ".join(f"{share} {late:8.3f} ms" for share, late in row.items())
        lines.append(f"{row['p50'] / base:6.2f} x  {times}  {client}")
    return "\n".join(lines)


def main() -> None:
    """Run all clients and print the table."""
    parser = arguments(__doc__, CLIENTS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a run that count")
    parser.add_argument("--rate", type=float, default=1000.0, help="records a second")
    asked = parsed(parser)
    if asked.worker:
        work(asked.worker, place_of(asked), asked.rate, asked.seconds)
        return
    results = contest(asked)
    print(f"\n{broker_of(asked)}: from send to poll\n{table(results)}")
    save(results, asked.json)


if __name__ == "__main__":
    main()
