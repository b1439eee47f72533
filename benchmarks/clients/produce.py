"""Producers beside each other: records per second and CPU time per record, in one run.

    python -m benchmarks.clients.produce [--broker apache] [--rounds 3] [--case 100B] [--client NAME]

A measurement lasts from the first send to the last acknowledgement, but for one record that goes
ahead: until that is acknowledged a client connects and gets its producer id, for which librdkafka
waits half a second. Medians of the rounds are told, and their ratio to confluent-kafka; `contest`
says how they are taken.
"""

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.clients.contest import (
    TOPIC,
    Figures,
    Stopwatch,
    arguments,
    broker_of,
    parsed,
    place_of,
    rate_table,
    run_worker,
    running,
    save,
    take_turns,
)
from benchmarks.clients.place import Place

SETTINGS = {"log.retention.bytes": str(256 << 20), "log.segment.bytes": str(64 << 20)}
"""What was written is not read again, and the disk is not to fill up."""

Send = Callable[[Place, Stopwatch, list[bytes], list[bytes] | None, str], None]


def headwater_send(
    place: Place, watch: Stopwatch, values: list[bytes], keys: Any, how: str
) -> None:
    """Ours, a call for each record."""
    from headwater import Producer

    with Producer(**place.headwater()) as producer:
        send = producer.send
        send(TOPIC, values[0]).result()
        watch.start()
        for _ in range(0, watch.count, len(values)):
            if keys is None:
                for value in values:
                    send(TOPIC, value)
            else:
                for value, key in zip(values, keys, strict=True):
                    send(TOPIC, value, key)
        producer.flush()
        watch.stop()


def headwater_bulk(
    place: Place, watch: Stopwatch, values: list[bytes], keys: Any, how: str
) -> None:
    """Ours, a call for all values, which are a list or a table."""
    from headwater import Producer

    with Producer(**place.headwater()) as producer:
        send: Callable[[str, Any], object] = producer.send_many
        data: Any = values
        if how == "table":
            import pyarrow as pa

            send, data = producer.send_table, pa.table({"value": values})
        producer.send(TOPIC, values[0]).result()
        watch.start()
        for _ in range(0, watch.count, len(values)):
            send(TOPIC, data)
        producer.flush()
        watch.stop()


def confluent_send(
    place: Place, watch: Stopwatch, values: list[bytes], keys: Any, how: str
) -> None:
    """The bindings of librdkafka, with a queue that is large enough for them."""
    from confluent_kafka import Producer

    options: dict[str, Any] = {
        **place.librdkafka(),
        "enable.idempotence": True,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
    }
    producer = Producer(options)
    produce, poll = producer.produce, producer.poll
    produce(TOPIC, values[0])
    producer.flush()
    watch.start()
    for _ in range(0, watch.count, len(values)):
        if keys is None:
            for value in values:
                try:
                    produce(TOPIC, value)
                except BufferError:
                    poll(0.01)
                    produce(TOPIC, value)
        else:
            for value, key in zip(values, keys, strict=True):
                try:
                    produce(TOPIC, value, key)
                except BufferError:
                    poll(0.01)
                    produce(TOPIC, value, key)
        poll(0)
    producer.flush()
    watch.stop()


def aiokafka_send(place: Place, watch: Stopwatch, values: list[bytes], keys: Any, how: str) -> None:
    """Aiokafka on uvloop."""
    import uvloop
    from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]

    async def run() -> None:
        producer = AIOKafkaProducer(**place.aiokafka(), enable_idempotence=True, linger_ms=5)
        await producer.start()
        await producer.send_and_wait(TOPIC, values[0])
        watch.start()
        for _ in range(0, watch.count, len(values)):
            for index, value in enumerate(values):
                await producer.send(TOPIC, value, keys[index] if keys else None)
        await producer.flush()
        watch.stop()
        await producer.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def kafka_python_send(
    place: Place, watch: Stopwatch, values: list[bytes], keys: Any, how: str
) -> None:
    """kafka-python."""
    from kafka import KafkaProducer  # type: ignore[import-untyped]

    producer = KafkaProducer(
        **place.kafka_python(), acks="all", enable_idempotence=True, linger_ms=5
    )
    producer.send(TOPIC, values[0]).get()
    watch.start()
    for _ in range(0, watch.count, len(values)):
        for index, value in enumerate(values):
            producer.send(TOPIC, value, keys[index] if keys else None)
    producer.flush()
    watch.stop()
    producer.close()


CLIENTS: dict[str, tuple[Send, str, str, int]] = {
    # name: function, variant, codec, records for a run at 100 bytes
    "confluent-kafka": (confluent_send, "", "", 1_000_000),
    "headwater pure send": (headwater_send, "", "pure", 1_000_000),
    "headwater compiled send": (headwater_send, "", "compiled", 2_000_000),
    "headwater pure send_many": (headwater_bulk, "many", "pure", 2_000_000),
    "headwater compiled send_many": (headwater_bulk, "many", "compiled", 4_000_000),
    "headwater compiled send_table": (headwater_bulk, "table", "compiled", 4_000_000),
    "aiokafka": (aiokafka_send, "", "", 200_000),
    "kafka-python": (kafka_python_send, "", "", 60_000),
}
CASES = {"100B": (100, False), "100B keys": (100, True), "1KB": (1024, False)}


def contest(case: str, asked: argparse.Namespace) -> dict[str, Figures]:
    """Medians by client; what sends in bulk has no keys."""
    keyed = CASES[case][1]
    clients = [
        client
        for client in asked.client or CLIENTS
        if not (keyed and CLIENTS[client][0] is headwater_bulk)
    ]
    with running(
        asked.broker, secure=asked.secure, partitions=asked.partitions, settings=SETTINGS
    ) as place:

        def measure(client: str) -> Figures:
            codec = CLIENTS[client][2]
            return run_worker("produce", client, codec, place, case=case, scale=asked.scale)

        return take_turns(clients, asked.rounds, measure)


def work(client: str, place: Place, case: str, scale: float) -> None:
    """One run, in a process of its own."""
    function, how, _, count = CLIENTS[client]
    size, keyed = CASES[case]
    values = [b"%08d" % number + bytes(size - 8) for number in range(10_000)]
    keys = [b"key-%06d" % number for number in range(10_000)] if keyed else None
    times = max(int(count * scale * (1 if size <= 100 else 0.3)) // len(values), 1)
    function(place, Stopwatch(times * len(values)), values, keys, how)


def main() -> None:
    """Run all cases and print the table."""
    parser = arguments(__doc__, CLIENTS)
    parser.add_argument("--case", action="append", choices=list(CASES), help="repeatable")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    parser.add_argument("--partitions", type=int, default=1)
    asked = parsed(parser)
    if asked.worker:
        work(asked.worker, place_of(asked), asked.case[0], asked.scale)
        return
    results = {case: contest(case, asked) for case in asked.case or CASES}
    for case, rows in results.items():
        print(f"\n{case}, {broker_of(asked)}: rate, CPU\n{rate_table(rows)}")
    save(results, asked.json)


if __name__ == "__main__":
    main()
