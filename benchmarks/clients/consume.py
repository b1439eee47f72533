"""Consumers beside each other: records per second and CPU time per record, in one run.

    python -m benchmarks.clients.consume [--rounds 3] [--case 100B] [--client NAME] [--json FILE]

One broker in a process of its own holds a topic written beforehand; each client reads all of it in
a process of its own, from being told what to read to the last record. Clients take turns, so that a slow minute
of the machine hits all of them alike; medians are told, and their ratio to the better of
confluent-kafka as it comes and confluent-kafka tuned (fetch.queue.backoff.ms, a big queue).
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

from headwater.model import TopicPartition

TOPIC = "bench"
CASES = {"100B": (100, 3_000_000), "1KB": (1024, 600_000)}


class Stopwatch:
    """From the moment a client is told what to read to the last record: what it fetches ahead counts."""

    def __init__(self, count: int) -> None:
        self.left = count
        self._count = count
        self._began = (0.0, 0.0)

    def start(self) -> None:
        """The client is connected and is about to be told."""
        self._began = (time.perf_counter(), _cpu())

    def saw(self, records: int) -> None:
        """These came."""
        self.left -= records

    def tell(self) -> None:
        """Everything came."""
        elapsed = time.perf_counter() - self._began[0]
        told = {
            "rate": self._count / elapsed,
            "cpu_us": (_cpu() - self._began[1]) / self._count * 1e6,
        }
        print(json.dumps(told), flush=True)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def headwater_poll(bootstrap: str, watch: Stopwatch, how: str) -> None:
    """The blocking face."""
    from headwater import Consumer

    with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=500
    ) as consumer:
        if how == "arrow":
            import pyarrow  # noqa: F401 - imported before the clock starts
        partitions = [(TOPIC, number) for number in consumer.partitions_for(TOPIC)]
        watch.start()
        consumer.assign(partitions)
        if how == "arrow":
            while watch.left > 0:
                batch = consumer.poll_arrow(5)
                watch.saw(batch.num_rows if batch is not None else 0)
        else:
            while watch.left > 0:
                watch.saw(len(consumer.poll(5)))
        watch.tell()


def headwater_aio(bootstrap: str, watch: Stopwatch, how: str) -> None:
    """The asyncio face."""
    import uvloop

    from headwater.aio import Consumer

    async def run() -> None:
        async with Consumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=500
        ) as consumer:
            partitions = [(TOPIC, number) for number in await consumer.partitions_for(TOPIC)]
            watch.start()
            await consumer.assign(partitions)
            while watch.left > 0:
                watch.saw(len(await consumer.poll(5)))
            watch.tell()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def headwater_range(bootstrap: str, watch: Stopwatch, how: str) -> None:
    """A range of each partition straight to Arrow, as the tasks of a Spark source read it."""
    import pyarrow  # noqa: F401 - imported before the clock starts

    from headwater import Consumer
    from headwater.pipelines.topic_source.brokers_loop import brokers
    from headwater.pipelines.topic_source.offsets import OffsetRange
    from headwater.pipelines.topic_source.range_reader import RangeReader

    with Consumer(bootstrap_servers=bootstrap) as consumer:
        partitions = [TopicPartition(TOPIC, number) for number in consumer.partitions_for(TOPIC)]
        ends = consumer.end_offsets(partitions)
    reader = RangeReader(
        brokers({"bootstrap_servers": bootstrap}),
        headers=False,
        fail_on_data_loss=True,
        timeout_ms=30_000,
    )
    watch.start()
    for partition, end in ends.items():
        for batch in reader.read(OffsetRange(*partition, 0, end)):
            watch.saw(batch.num_rows)
    watch.tell()


def confluent_consume(bootstrap: str, watch: Stopwatch, how: str) -> None:
    """confluent-kafka's consume(), the quickest it has."""
    from confluent_kafka import Consumer, TopicPartition

    options: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "bench"}
    options |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    if how == "tuned":
        options |= {"fetch.queue.backoff.ms": 5, "queued.min.messages": 1_000_000}
        options |= {"queued.max.messages.kbytes": 1_048_576}
    consumer = Consumer(options)
    partitions = consumer.list_topics(TOPIC).topics[TOPIC].partitions
    watch.start()
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in partitions])
    while watch.left > 0:
        watch.saw(len(consumer.consume(500, 0.5)))
    watch.tell()
    consumer.close()


def aiokafka_getmany(bootstrap: str, watch: Stopwatch, how: str) -> None:
    """Aiokafka."""
    import uvloop
    from aiokafka import AIOKafkaConsumer

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=500
        )
        watch.start()
        await consumer.start()
        while watch.left > 0:
            found = await consumer.getmany(timeout_ms=5000)
            watch.saw(sum(map(len, found.values())))
        watch.tell()
        await consumer.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def kafka_python_poll(bootstrap: str, watch: Stopwatch, how: str) -> None:
    """kafka-python."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=500
    )
    watch.start()
    while watch.left > 0:
        found = consumer.poll(timeout_ms=5000)
        watch.saw(sum(map(len, found.values())))
    watch.tell()
    consumer.close()


Read = Callable[[str, Stopwatch, str], None]
CLIENTS: dict[str, tuple[Read, str, str, float]] = {
    # name: function, variant, codec, which part of the topic it reads
    "confluent-kafka": (confluent_consume, "", "", 1.0),
    "confluent-kafka tuned": (confluent_consume, "tuned", "", 1.0),
    "headwater pure poll": (headwater_poll, "", "pure", 0.5),
    "headwater compiled poll": (headwater_poll, "", "compiled", 1.0),
    "headwater compiled poll aio": (headwater_aio, "", "compiled", 1.0),
    "headwater compiled poll_arrow": (headwater_poll, "arrow", "compiled", 1.0),
    "headwater compiled ranges": (headwater_range, "", "compiled", 1.0),
    "aiokafka": (aiokafka_getmany, "", "", 0.15),
    "kafka-python": (kafka_python_poll, "", "", 0.05),
}


def measure(bootstrap: str, client: str, count: int) -> dict[str, float]:
    """One run in a process of its own."""
    codec = CLIENTS[client][2]
    environment = {**os.environ, **({"HEADWATER_CODEC": codec} if codec else {})}
    command = [sys.executable, "-m", "benchmarks.clients.consume", "--worker", client]
    command += ["--bootstrap", bootstrap, "--count", str(int(count * CLIENTS[client][3]))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{client}: {done.stderr[-2000:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def compare(asked: argparse.Namespace) -> dict[str, dict[str, dict[str, float]]]:
    """Medians by case and client."""
    from headwater import Producer
    from headwater.testing import Broker

    results: dict[str, dict[str, dict[str, float]]] = {}
    clients = asked.client or list(CLIENTS)
    for case in asked.case or CASES:
        size, count = CASES[case]
        count = int(count * asked.scale)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in clients}
        with Broker(subprocess=True) as broker:
            address = asked.bootstrap or broker.bootstrap
            broker.create_topic(TOPIC, partitions=asked.partitions)
            with Producer(bootstrap_servers=address, batch_size=asked.batch) as producer:
                values = [b"%08d" % number + bytes(size - 8) for number in range(10_000)]
                for _ in range(0, count, len(values)):
                    producer.send_many(TOPIC, values)
            for _ in range(asked.rounds):
                for name in clients:
                    runs[name].append(measure(address, name, count))
        results[case] = {
            name: {key: statistics.median(run[key] for run in told) for key in told[0]}
            for name, told in runs.items()
        }
    return results


def show(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """The table, ratios first."""
    for case, rows in results.items():
        confluent = [row["rate"] for name, row in rows.items() if name.startswith("confluent")]
        base = max(confluent, default=float("nan"))
        spent = [row["cpu_us"] for name, row in rows.items() if name.startswith("confluent")]
        least = min(spent, default=float("nan"))
        print(f"\n{case}: rate, CPU")
        for name, row in rows.items():
            ratio, cpu = row["rate"] / base, row["cpu_us"]
            print(
                f"{ratio:6.2f} x {row['rate']:12,.0f} /s "
                f"{cpu / least:6.2f} x {cpu:7.2f} us CPU  {name}"
            )


def main() -> None:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker")
    parser.add_argument("--bootstrap")
    parser.add_argument("--count", type=int)
    parser.add_argument("--case", action="append")
    parser.add_argument("--client", action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16_384)
    parser.add_argument("--json")
    asked = parser.parse_args()
    if asked.worker:
        function, how, _, _ = CLIENTS[asked.worker]
        function(asked.bootstrap, Stopwatch(asked.count), how)
        return
    results = compare(asked)
    show(results)
    if asked.json:
        with open(asked.json, "w") as out:
            json.dump(results, out, indent=1)


if __name__ == "__main__":
    main()
