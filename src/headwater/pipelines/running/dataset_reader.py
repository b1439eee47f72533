"""Implements the readers of a pipeline's queries on Spark: what `read("bronze")` returns.

Tables are read from the pipeline's storage, temporary views are inlined, topics are read through
`format("headwater")`. What runs and when is decided elsewhere.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from headwater.pipelines.declaring.declare import (
    DatasetRead,
    Flow,
    Project,
    Query,
    SqlQuery,
    TopicRead,
    bind,
)
from headwater.pipelines.tables.reading import read_table
from headwater.pipelines.targets import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers: Final = itertools.count()


class SparkDatasetReader:
    """The readers of queries (`declare.DatasetReader`) in one session."""

    def __init__(self, project: Project, spark: "SparkSession") -> None:
        self._project = project
        self._spark = spark

    def frame(self, flow: Flow) -> "DataFrame":
        """Call the query of a flow; a streaming flow gets a streaming DataFrame."""
        return self._called(flow.query, flow.session_reads)

    def read(self, name: str) -> "DataFrame":
        """Return all rows of a dataset."""
        view = self._view(name)
        return self.stored(name) if view is None else view

    def stored(self, name: str) -> "DataFrame":
        """Return all rows of a table or a materialized view."""
        return read_table(self._spark, self.target(name))

    def read_stream(self, name: str) -> "DataFrame":
        """Return the new rows of a dataset as a stream."""
        view = self._view(name)
        if view is not None:
            return view
        reader = self._spark.readStream.format("headwater-table")
        return reader.option("path", str(self.target(name))).load()

    def topic(self, name: str, **options: str) -> "DataFrame":
        """Return the records of a topic as a stream, by default from its beginning."""
        chosen = {"startingOffsets": "earliest", **self._pace(options), **options}
        reader = self._spark.readStream.format("headwater")
        return reader.options(**self._options(name, chosen)).load()

    def topics(self, *names: str, pattern: str | None = None, **options: str) -> "DataFrame":
        """Return the records of several topics as one stream, by name or by pattern."""
        if pattern is not None:
            options["subscribePattern"] = pattern
        return self.topic(",".join(names), **options)

    def topic_snapshot(self, name: str, **options: str) -> "DataFrame":
        """Return the current records of a topic."""
        return self._spark.read.format("headwater").options(**self._options(name, options)).load()

    def spark(self) -> "SparkSession":
        return self._spark

    def target(self, name: str) -> Target:
        """Return where a table or a materialized view is stored."""
        return table_target(self._project, name)

    def _called(self, query: Query, session_reads: Iterable[DatasetRead]) -> "DataFrame":
        for read in session_reads:
            self._answer(read).createOrReplaceTempView(read.name)
        if isinstance(query, SqlQuery):
            names = {each.source: self._temporary(each.source) for each in query.spans}
            return self._spark.sql(query.rendered(names))
        with bind(self):
            frame = query()
        if frame is None:
            raise TypeError("the query returned None: end it with `return` and a DataFrame")
        return frame

    def _temporary(self, source: DatasetRead | TopicRead) -> str:
        """Create a session view for one read of an SQL query, under a unique name."""
        name = f"headwater_{next(_numbers)}"
        self._answer(source).createOrReplaceTempView(name)
        return name

    def _answer(self, source: DatasetRead | TopicRead) -> "DataFrame":
        if isinstance(source, TopicRead):
            return self.topic(source.name) if source.stream else self.topic_snapshot(source.name)
        return self.read_stream(source.name) if source.stream else self.read(source.name)

    def _view(self, name: str) -> "DataFrame | None":
        """Return the rows of a temporary view; None for a stored dataset."""
        dataset = self._project.declarations.datasets.get(name)
        if dataset is None or dataset.kind != "temporary_view" or dataset.query is None:
            return None
        return self._called(dataset.query, dataset.session_reads)

    def _pace(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the project's target batch time for queries without a limit of their own."""
        wanted = self._project.settings.target_batch_time
        return {"targetBatchTime": wanted} if wanted and not _LIMITS & set(options) else {}

    def _options(self, topic: str, options: Mapping[str, str]) -> dict[str, str]:
        chosen = {} if _CHOICES & set(options) else {"subscribe": topic}
        given = {name: str(value) for name, value in options.items()}
        return self._project.connection.source_options({**chosen, **given})


_LIMITS: Final = {"maxOffsetsPerTrigger", "targetBatchTime"}
_CHOICES: Final = {"subscribePattern", "assign"}


def table_target(project: Project, name: str) -> Target:
    """Return `<storage>/<name>` in the format of the dataset, or of the dataset it quarantines."""
    datasets = project.declarations.datasets
    owner = datasets.get(name) or next(
        (each for each in datasets.values() if each.quarantine and each.quarantine.table == name),
        None,
    )
    kind = owner.format if owner else project.settings.format
    return Target(kind, str(project.storage / name))
