"""Unit tests of declared pipelines: computes the rows of one dataset from given rows.

    from headwater.testing.pipelines import records, rows_of

    def test_orders_without_a_price_are_refused(spark):
        bronze = spark.createDataFrame([("a", 1.0), ("b", None)], "id STRING, price DOUBLE")
        found = rows_of("shop", "silver", bronze=bronze)
        assert [row.id for row in found.good.collect()] == ["a"]
        assert [row._reasons for row in found.refused.collect()] == [["has a price"]]

This needs no broker, table or checkpoint. Streaming reads return batches, so the result is that of
one micro-batch without earlier state; operators that only streams have
(`dropDuplicatesWithinWatermark`, `transformWithState`) fail as they do on any batch.
"""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.pipelines.declaring.declare import Flow, Project
from headwater.pipelines.declaring.project import load_project
from headwater.pipelines.running.dataset_reader import SparkDatasetReader
from headwater.pipelines.running.flows import declared_rows, quality_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class CheckedRows(NamedTuple):
    """The rows of a dataset after its expectations."""

    good: "DataFrame"
    """The rows that the dataset would get."""
    refused: "DataFrame"
    """The rows that `expect_or_drop` refuses, with the unmet expectations in `_reasons`."""


def rows_of(
    project: Project | Path | str,
    name: str,
    /,
    *,
    topics: "Mapping[str, DataFrame] | None" = None,
    spark: "SparkSession | None" = None,
    **tables: "DataFrame",
) -> CheckedRows:
    """Compute a dataset or a flow of a project from given rows.

    Raises ExpectationError if an `expect_or_fail` is not met, ValueError if a query reads a dataset
    or topic that is not given.

    Args:
        project: A loaded project, or its path: a folder, a pipeline.yml, a .py or a .sql file.
        name: A table, a materialized view, a temporary view or a flow.
        topics: The records of topics, by name; see `records`.
        spark: The session; by default that of the given rows.
        **tables: The rows of tables and views that the queries read; temporary views that are not
            given are computed.
    """
    loaded = project if isinstance(project, Project) else load_project(project)
    given = {**tables, **(topics or {})}
    session = spark or next((frame.sparkSession for frame in given.values()), None)
    if session is None:
        raise ValueError("rows_of needs a session: give rows, or spark=")
    reader = _GivenRows(loaded, session, tables, topics or {})
    dataset = loaded.declarations.datasets.get(name)
    if dataset is not None and dataset.kind == "temporary_view":
        rows = reader.read(name)
        return CheckedRows(rows, rows.limit(0))
    found = [_checked(reader, loaded, flow) for flow in _flows(loaded, name)]
    good, refused = ([part[side] for part in found] for side in (0, 1))
    return CheckedRows(_union(good), _union(refused))


def records(
    spark: "SparkSession", values: Sequence[Any], *, topic: str = "topic", key: str | None = None
) -> "DataFrame":
    """Make records of a topic with Kafka's columns, for `rows_of(..., topics={...})`.

    Args:
        spark: The session.
        values: Bytes and text as they are, anything else as JSON; None is a tombstone.
        topic: The content of the column `topic`.
        key: The key of all records.
    """
    rows = [
        (None if key is None else key.encode(), _encoded(value), topic, 0, offset)
        for offset, value in enumerate(values)
    ]
    schema = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"
    frame = spark.createDataFrame(rows, schema)
    return frame.selectExpr("*", "timestamp_millis(0) AS timestamp", "0 AS timestampType")


def _encoded(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


class _GivenRows(SparkDatasetReader):
    """Answers the readers of queries from the rows of a test."""

    def __init__(
        self,
        project: Project,
        spark: "SparkSession",
        tables: "Mapping[str, DataFrame]",
        topics: "Mapping[str, DataFrame]",
    ) -> None:
        super().__init__(project, spark)
        self._tables = tables
        self._topics = topics

    def read(self, name: str) -> "DataFrame":
        return self._tables[name] if name in self._tables else super().read(name)

    def read_stream(self, name: str) -> "DataFrame":
        return self.read(name)

    def stored(self, name: str) -> "DataFrame":
        raise ValueError(f"a query reads {name}: give its rows as rows_of(..., {name}=frame)")

    def topic(self, name: str, **options: str) -> "DataFrame":
        if name not in self._topics:
            raise ValueError(
                f"a query reads the topic {name}: give its records as "
                f'rows_of(..., topics={{"{name}": records(spark, [...])}})'
            )
        return self._topics[name]

    def topics(self, *names: str, pattern: str | None = None, **options: str) -> "DataFrame":
        chosen = names or tuple(self._topics)
        return _union([self.topic(name) for name in chosen])

    def topic_snapshot(self, name: str, **options: str) -> "DataFrame":
        return self.topic(name)


def _flows(project: Project, name: str) -> list[Flow]:
    flows = project.declarations.flows
    found = [flow for flow in flows if flow.target == name] or [
        flow for flow in flows if flow.name == name
    ]
    if not found:
        known = ", ".join(sorted({flow.target for flow in flows}))
        raise ValueError(f"the project has no dataset or flow {name}; there are {known}")
    return found


def _checked(reader: _GivenRows, project: Project, flow: Flow) -> CheckedRows:
    dataset = project.declarations.datasets.get(flow.target)
    quality = quality_of(dataset)
    judged = quality.judged(declared_rows(reader.frame(flow), dataset))
    quality.refuse(judged)
    refused = quality.bad(judged) if quality.drops else judged.limit(0)
    return CheckedRows(quality.good(judged), refused)


def _union(frames: "Sequence[DataFrame]") -> "DataFrame":
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
