"""Producers beside each other: records per second and CPU time per record, in one run.

    python -m benchmarks.clients.produce [--rounds 3] [--case 100B] [--client NAME] [--json FILE]

Each client runs in a process of its own against one broker in another process; a measurement lasts
from the first send to the last acknowledgement. Cases take turns, so that a slow minute of the
machine hits all of them alike; medians are told, and their ratio to confluent-kafka.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

TOPIC = "bench"
Send = Callable[[str, int, list[bytes], list[bytes] | None, str], None]


def headwater_send(bootstrap: str, count: int, values: list[bytes], keys: Any, how: str) -> None:
    """Ours; `how` is "", "many" or "table"."""
    from headwater import Producer

    with Producer(bootstrap_servers=bootstrap) as producer:
        send = producer.send
        producer.partitions_for(TOPIC)
        if "table" in how:
            import pyarrow as pa

            table = pa.table({"value": values})
        started()
        if "many" in how:
            for _ in range(0, count, len(values)):
                producer.send_many(TOPIC, values)
        elif "table" in how:
            for _ in range(0, count, len(values)):
                producer.send_table(TOPIC, table)
        elif keys is None:
            for _ in range(0, count, len(values)):
                for value in values:
                    send(TOPIC, value)
        else:
            for _ in range(0, count, len(values)):
                for value, key in zip(values, keys, strict=True):
                    send(TOPIC, value, key)
        producer.flush()
        finished(count)


def confluent_send(bootstrap: str, count: int, values: list[bytes], keys: Any, how: str) -> None:
    """The bindings of librdkafka, with a queue that is large enough for them."""
    from confluent_kafka import Producer

    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
    }
    producer = Producer(options)
    producer.list_topics(TOPIC)
    produce, poll = producer.produce, producer.poll
    started()
    for _ in range(0, count, len(values)):
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
    finished(count)


def aiokafka_send(bootstrap: str, count: int, values: list[bytes], keys: Any, how: str) -> None:
    """Aiokafka on uvloop."""
    import uvloop
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5
        )
        await producer.start()
        await producer.partitions_for(TOPIC)
        started()
        for _ in range(0, count, len(values)):
            for place, value in enumerate(values):
                await producer.send(TOPIC, value, keys[place] if keys else None)
        await producer.flush()
        finished(count)
        await producer.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def kafka_python_send(bootstrap: str, count: int, values: list[bytes], keys: Any, how: str) -> None:
    """kafka-python."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=5
    )
    producer.partitions_for(TOPIC)
    started()
    for _ in range(0, count, len(values)):
        for place, value in enumerate(values):
            producer.send(TOPIC, value, keys[place] if keys else None)
    producer.flush()
    finished(count)
    producer.close()


_began = (0.0, 0.0)


def started() -> None:
    """The clients are ready: count from here."""
    global _began  # noqa: PLW0603 - one measurement per process
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _began = (time.perf_counter(), usage.ru_utime + usage.ru_stime)


def finished(count: int) -> None:
    """Everything is acknowledged: tell the parent."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    elapsed = time.perf_counter() - _began[0]
    cpu = usage.ru_utime + usage.ru_stime - _began[1]
    print(json.dumps({"rate": count / elapsed, "cpu_us": cpu / count * 1e6}), flush=True)


CLIENTS: dict[str, tuple[Send, str, str, int]] = {
    # name: function, variant, codec, records for a run at 100 bytes
    "confluent-kafka": (confluent_send, "", "", 1_000_000),
    "headwater pure send": (headwater_send, "", "pure", 1_000_000),
    "headwater compiled send": (headwater_send, "", "compiled", 2_000_000),
    "headwater pure send_many": (headwater_send, "many", "pure", 2_000_000),
    "headwater compiled send_many": (headwater_send, "many", "compiled", 4_000_000),
    "headwater compiled send_table": (headwater_send, "table", "compiled", 4_000_000),
    "aiokafka": (aiokafka_send, "", "", 200_000),
    "kafka-python": (kafka_python_send, "", "", 60_000),
}
CASES = {"100B": (100, False), "100B keys": (100, True), "1KB": (1024, False)}
BULK = ("many", "table")


def measure(bootstrap: str, client: str, case: str, scale: float) -> dict[str, float]:
    """One run in a process of its own."""
    environment = {**os.environ, "HEADWATER_CODEC": CLIENTS[client][2]}
    if not CLIENTS[client][2]:
        del environment["HEADWATER_CODEC"]
    command = [sys.executable, "-m", "benchmarks.clients.produce", "--worker", client]
    command += ["--bootstrap", bootstrap, "--case", case, "--scale", str(scale)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{client}: {done.stderr[-2000:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def work(client: str, bootstrap: str, case: str, scale: float) -> None:
    """The child's part."""
    function, how, _, count = CLIENTS[client]
    size, keyed = CASES[case]
    values = [b"%08d" % number + bytes(size - 8) for number in range(10_000)]
    keys = [b"key-%06d" % number for number in range(10_000)] if keyed else None
    rounds = max(int(count * scale * (1 if size <= 100 else 0.3)) // len(values), 1)
    function(bootstrap, rounds * len(values), values, keys, how)


def main() -> None:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker")
    parser.add_argument("--bootstrap")
    parser.add_argument("--case", action="append")
    parser.add_argument("--client", action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--json")
    asked = parser.parse_args()
    if asked.worker:
        work(asked.worker, asked.bootstrap, asked.case[0], asked.scale)
        return
    results = compare(asked)
    show(results)
    if asked.json:
        with open(asked.json, "w") as out:
            json.dump(results, out, indent=1)


def compare(asked: argparse.Namespace) -> dict[str, dict[str, dict[str, float]]]:
    """Medians by case and client."""
    from headwater.testing import Broker

    results: dict[str, dict[str, dict[str, float]]] = {}
    clients = asked.client or list(CLIENTS)
    for case in asked.case or CASES:
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in clients}
        settings = {"log.retention.bytes": str(256 << 20), "log.segment.bytes": str(64 << 20)}
        with Broker(settings, subprocess=True) as broker:
            broker.create_topic(TOPIC, partitions=asked.partitions)
            address = asked.bootstrap or broker.bootstrap
            for _ in range(asked.rounds):
                for name in clients:
                    if not (CASES[case][1] and CLIENTS[name][1] in BULK):
                        runs[name].append(measure(address, name, case, asked.scale))
        results[case] = {
            name: {key: statistics.median(run[key] for run in told) for key in told[0]}
            for name, told in runs.items()
            if told
        }
    return results


def show(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """The table, ratios first."""
    for case, rows in results.items():
        base = rows.get("confluent-kafka", {"rate": float("nan")})["rate"]
        spent = rows.get("confluent-kafka", {"cpu_us": float("nan")})["cpu_us"]
        print(f"\n{case}: rate, CPU")
        for name, row in rows.items():
            print(
                f"{row['rate'] / base:6.2f} x {row['rate']:12,.0f} /s "
                f"{row['cpu_us'] / spent:6.2f} x {row['cpu_us']:7.2f} us CPU  {name}"
            )


if __name__ == "__main__":
    main()
