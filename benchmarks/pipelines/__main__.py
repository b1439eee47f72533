"""Pipelines beside what Spark has of its own, in one session and one run.

    python -m benchmarks.pipelines [--rounds 5] [--records 2000000] [--case NAME] [--json FILE]

One broker in a process of its own, one Spark session `local[2]` on the same two cores. Contestants
take turns, so that a slow minute of the machine hits both; the first round warms the JVM and is not
counted; medians are told, and their ratio. All columns are read in each case.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from tools.jars import JarsUnavailable, jars

from headwater import Producer
from headwater.pipelines.session import spark_session
from headwater.pipelines.tables.writing import write_stream
from headwater.pipelines.topic_sink.topic_sink import write_batch
from headwater.testing import Broker

PARTITIONS = 2
SIZES = {"100B": 100, "1KB": 1024}
TABLE_RECORDS = 1_000_000
COST_BATCHES = 40
CASES = ("source-100B", "source-1KB", "delta", "fixed-cost", "sink-100B", "sink-1KB")
TARGETS = {
    "source-100B": 0.8,
    "source-1KB": 0.8,
    "delta": 0.8,
    "fixed-cost": 2.0,
    "sink-100B": 1.5,
    "sink-1KB": 1.5,
}

DIFFERENT = 10_000
"""Values of a topic before they repeat: more than any compressor or cache looks back."""

Contest = dict[str, Callable[[], float]]
"""By contestant: does the work once, and says rows a second (or milliseconds)."""


class Bench:
    """One session, one broker, and topics that are filled when first asked for."""

    def __init__(self, spark: SparkSession, bootstrap: str, records: int, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._records = records
        self._folder = folder
        self._filled: set[str] = set()
        self._runs = 0

    def contest(self, case: str) -> tuple[str, str, Contest]:
        """Our name, the reference's name, and both."""
        if case.startswith("source-"):
            size = case.removeprefix("source-")
            return "headwater", "official connector", self._source(size)
        if case.startswith("sink-"):
            return "transactions", "a header per record", self._topic_sink(case[5:])
        if case == "delta":
            return "topic to Delta", "Spark's Parquet sink", self._sinks()
        return "headwater", "rate source", self._fixed_cost()

    def _topic(self, size: str, records: int) -> str:
        name = f"bench-{size}-{records}"
        if name not in self._filled:
            self._filled.add(name)
            values = cycle(_values(SIZES[size]))
            with Producer(bootstrap_servers=self._bootstrap, profile="throughput") as producer:
                producer.send_many(name, islice(values, records)).result()
        return name

    def _read(self, form: str, topic: str) -> DataFrame:
        return (
            self._spark.read.format(form)
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", topic)
            .load()
        )

    def _source(self, size: str) -> Contest:
        topic = self._topic(size, self._records)

        def read(form: str) -> Callable[[], float]:
            def once() -> float:
                started = time.perf_counter()
                self._read(form, topic).write.format("noop").mode("overwrite").save()
                return self._records / (time.perf_counter() - started)

            return once

        return {"headwater": read("headwater"), "official connector": read("kafka")}

    def _stream(self, topic: str) -> DataFrame:
        return (
            self._spark.readStream.format("headwater")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )

    def _sinks(self) -> Contest:
        records = min(self._records, TABLE_RECORDS)
        topic = self._topic("100B", records)

        def delta() -> float:
            place = self._place()
            started = time.perf_counter()
            query = write_stream(
                self._stream(topic),
                f"delta:{place}/table",
                checkpoint=f"{place}/checkpoint",
                trigger={"availableNow": True},
            )
            query.awaitTermination()
            return records / (time.perf_counter() - started)

        def parquet() -> float:
            place = self._place()
            started = time.perf_counter()
            query = (
                self._stream(topic)
                .writeStream.format("parquet")
                .option("path", f"{place}/table")
                .option("checkpointLocation", f"{place}/checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            return records / (time.perf_counter() - started)

        return {"topic to Delta": delta, "Spark's Parquet sink": parquet}

    def _topic_sink(self, size: str) -> Contest:
        """Rows that Spark makes itself, in two tasks, into a topic."""
        records = min(self._records, TABLE_RECORDS)
        value = sf.repeat(sf.lit("x"), SIZES[size] - 16)
        rows = self._spark.range(0, records, 1, PARTITIONS).select(
            sf.col("id").cast("string").alias("key"),
            sf.concat(sf.lpad(sf.col("id").cast("string"), 16, "0"), value).alias("value"),
        )

        def write(transactions: str) -> Callable[[], float]:
            def once() -> float:
                self._runs += 1
                started = time.perf_counter()
                write_batch(
                    rows,
                    bootstrap_servers=self._bootstrap,
                    topic=f"bench-sink-{size}-{transactions}",
                    query=f"bench-{transactions}",
                    batch_id=self._runs,
                    options={"transactions": transactions},
                )
                return records / (time.perf_counter() - started)

            return once

        return {"transactions": write("auto"), "a header per record": write("off")}

    def _fixed_cost(self) -> Contest:
        """Batches of a few rows: what is left is the cost of a batch."""
        topic = self._topic("100B", COST_BATCHES * PARTITIONS * 10)

        def ours() -> float:
            limited = self._spark.readStream.format("headwater").options(
                **{
                    "kafka.bootstrap.servers": self._bootstrap,
                    "subscribe": topic,
                    "startingOffsets": "earliest",
                    "maxOffsetsPerTrigger": str(PARTITIONS * 10),
                }
            )
            return self._batch_ms(limited.load())

        def rate() -> float:
            rows = self._spark.readStream.format("rate-micro-batch")
            return self._batch_ms(rows.option("rowsPerBatch", PARTITIONS * 10).load())

        return {"headwater": ours, "rate source": rate}

    def _batch_ms(self, stream: DataFrame) -> float:
        writer = stream.writeStream.format("noop").option("checkpointLocation", self._place())
        query = writer.start()
        try:
            times: list[float] = []
            while len(times) < COST_BATCHES:
                time.sleep(0.05)
                times = [
                    progress["durationMs"]["triggerExecution"]
                    for progress in query.recentProgress
                    if progress["numInputRows"]
                ]
        finally:
            query.stop()
        return statistics.median(times[COST_BATCHES // 4 : COST_BATCHES])

    def _place(self) -> str:
        self._runs += 1
        return str(self._folder / str(self._runs))


def _values(size: int) -> list[bytes]:
    """Random bytes, which no codec can compress."""
    noise = os.urandom(DIFFERENT * size)
    return [noise[at : at + size] for at in range(0, len(noise), size)]


def compare(bench: Bench, case: str, rounds: int) -> dict[str, object]:
    """The medians of both, and their ratio."""
    ours, reference, contest = bench.contest(case)
    seen: dict[str, list[float]] = {name: [] for name in contest}
    for number in range(rounds + 1):
        for name, once in contest.items():
            figure = once()
            if number:
                seen[name].append(figure)
    medians = {name: statistics.median(figures) for name, figures in seen.items()}
    ratio = medians[ours] / medians[reference]
    target = TARGETS[case]
    met = ratio <= target if case == "fixed-cost" else ratio >= target
    return {
        "case": case,
        "ratio": round(ratio, 3),
        "target": target,
        "met": met,
        "medians": {name: round(figure, 1) for name, figure in medians.items()},
        "all": {name: [round(figure, 1) for figure in figures] for name, figures in seen.items()},
    }


def _lines(results: list[dict[str, object]]) -> Iterator[str]:
    for result in results:
        sign = "at most" if result["case"] == "fixed-cost" else "at least"
        yield (
            f"{result['case']:12} ratio {result['ratio']:<6} ({sign} {result['target']}: "
            f"{'met' if result['met'] else 'MISSED'})  {result['medians']}"
        )


def main() -> int:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        connector = ",".join(str(jar) for jar in sorted(jars("spark-kafka-4.2.0").glob("*.jar")))
    except JarsUnavailable as missing:
        print(f"the official connector cannot be had: {missing}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        spark = spark_session(
            "bench",
            master="local[2]",
            settings={
                "spark.jars": connector,
                "spark.driver.memory": "2g",
                "spark.sql.shuffle.partitions": "2",
                "spark.local.dir": folder,
                "spark.sql.streaming.numRecentProgressUpdates": "1000",
            },
        )
        settings = {"num.partitions": str(PARTITIONS)}
        with Broker(settings, data_dir=f"{folder}/broker", subprocess=True) as broker:
            bench = Bench(spark, broker.bootstrap, options.records, Path(folder))
            results = [compare(bench, case, options.rounds) for case in options.case or CASES]
        spark.stop()
    print("\n".join(_lines(results)))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
