"""Topics as a source of Spark."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

import headwater
from headwater.model import TopicPartition

_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)


def spark_schema(options: Mapping[str, str]) -> str:
    """The columns."""
    ddl = _COLUMNS
    if options.get("includeHeaders", "false").lower() == "true":
        ddl += ", headers array<struct<key: string, value: binary>>"
    return ddl


@dataclass
class Slice(InputPartition):
    topic: str
    partition: int
    start: int
    end: int


class Topics:
    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self.headers = self.options.get("includeheaders", "false").lower() == "true"
        self.names = self.options["subscribe"].split(",")

    def consumer(self) -> Any:
        return headwater.Consumer(bootstrap_servers=self.options["kafka.bootstrap.servers"])

    def ends(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        with self.consumer() as consumer:
            all_of = [
                TopicPartition(name, number)
                for name in self.names
                for number in consumer.partitions_for(name)
            ]
            return consumer.beginning_offsets(all_of), consumer.end_offsets(all_of)

    def read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        where = TopicPartition(part.topic, part.partition)
        position = part.start
        with self.consumer() as consumer:
            consumer.assign([where])
            consumer.seek(where, part.start)
            while position < part.end:
                batch = consumer.poll_arrow(5.0)
                position = consumer.position(where)
                if batch is not None:
                    rows = batch.column("offset").to_numpy()
                    batch = batch.slice(0, int((rows < part.end).sum()))
                    if batch.num_rows:
                        yield self.shaped(batch)

    def shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {
            "key": batch.column("key"),
            "value": batch.column("value"),
            "topic": batch.column("topic").cast(pa.string()),
            "partition": batch.column("partition"),
            "offset": batch.column("offset"),
            "timestamp": batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")),
            "timestampType": batch.column("timestamp_type").cast(pa.int32()),
        }
        if self.headers:
            kind = pa.list_(
                pa.field(
                    "element",
                    pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]),
                )
            )
            columns["headers"] = batch.column("headers").cast(kind)
        return pa.RecordBatch.from_pydict(columns)


class BatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.topics = Topics(options)

    def partitions(self) -> list[InputPartition]:
        starts, ends = self.topics.ends()
        return [Slice(w.topic, w.partition, starts[w], ends[w]) for w in starts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return self.topics.read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.topics = Topics(options)
        self.target: dict[str, Any] | None = None

    def _now(self, which: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for where, offset in self.topics.ends()[which].items():
            found.setdefault(where.topic, {})[str(where.partition)] = offset
        return found

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._now(0 if self.topics.options.get("startingoffsets") == "earliest" else 1)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self._now(1)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self.topics.options.get("maxoffsetspertrigger")
        return ReadAllAvailable() if rows is None else ReadMaxRows(int(rows))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self.target or self._now(1)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [
            Slice(topic, int(number), start.get(topic, {}).get(number, 0), offset)
            for topic, numbers in end.items()
            for number, offset in numbers.items()
            if offset > start.get(topic, {}).get(number, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return self.topics.read(partition)
