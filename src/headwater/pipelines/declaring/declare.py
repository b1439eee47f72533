"""The declarations of a pipeline, and the readers that its queries call.

A project's files are imported once; their declarations are frozen afterwards. Queries name their
inputs (`read("bronze")`); the runner binds the reader that returns the data, so a declaration can be
loaded, checked and tested without Spark. This package must never import pyspark.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from headwater.pipelines.connection_settings import ConnectionSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Kind = Literal["table", "materialized_view", "temporary_view"]
Format = Literal["delta", "iceberg", "parquet"]
Action = Literal["warn", "drop", "fail"]


@dataclass(frozen=True)
class SourceLocation:
    """The file and line of a declaration."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class DeclarationError(Exception):
    """An invalid declaration: one line with its place and what to do."""

    def __init__(self, origin: SourceLocation, text: str) -> None:
        super().__init__(f"{origin}: {text}")
        self.origin = origin
        self.text = text


class DatasetRead(NamedTuple):
    """One dataset read by a query: as a stream of its new rows, or whole."""

    name: str
    stream: bool


@dataclass(frozen=True)
class TopicRead:
    """One topic read by a query: as a stream, or as a snapshot.

    Not a tuple, so that it is never equal to the `DatasetRead` of a table of the same name.
    """

    name: str
    stream: bool


class SqlRead(NamedTuple):
    """One read in the text of a SELECT: `text[start:end]`.

    `alias` is the name that may qualify its columns there ("" if the text has an alias).
    """

    start: int
    end: int
    source: DatasetRead | TopicRead
    alias: str


@dataclass(frozen=True)
class SqlQuery:
    """A SELECT and the positions of its reads in the text."""

    text: str
    reads: tuple[DatasetRead, ...]
    topics: tuple[TopicRead, ...]
    spans: tuple[SqlRead, ...] = ()

    def rendered(self, names: Mapping[DatasetRead | TopicRead, str]) -> str:
        """Return the text with each read replaced by its view name."""
        parts, done = [], 0
        for start, end, source, alias in self.spans:
            named = f"{names[source]} AS {quoted(alias)}" if alias else names[source]
            parts += [self.text[done:start], named]
            done = end
        return "".join(parts) + self.text[done:]


def quoted(name: str) -> str:
    """Return `name` as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


Query: TypeAlias = Callable[[], "DataFrame"] | SqlQuery


@dataclass(frozen=True)
class Expectation:
    """A condition (SQL) for each row, and the action on rows that do not meet it."""

    name: str
    condition: str
    action: Action


@dataclass(frozen=True)
class Quarantine:
    """The table, the topic, or both that receive rows which `expect_or_drop` refuses."""

    table: str | None = None
    topic: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A table, a materialized view or a temporary view."""

    name: str
    kind: Kind
    query: Query | None
    """None for a table that only append flows fill."""
    reads: tuple[DatasetRead, ...]
    topics: tuple[str, ...]
    expectations: tuple[Expectation, ...]
    quarantine: Quarantine | None
    format: Format
    partition_by: tuple[str, ...]
    schema: str | None
    """DDL of the columns, if declared."""
    comment: str | None
    options: Mapping[str, str]
    """Options by name, see TABLE_OPTIONS."""
    origin: SourceLocation
    streams: bool = False
    """Whether the query reads something as a stream."""
    session_reads: tuple[DatasetRead, ...] = ()
    """As in Flow, for this query alone."""


@dataclass(frozen=True)
class Flow:
    """One query into one dataset or sink; a dataset with a query is also a flow of its name."""

    name: str
    target: str
    query: Query
    reads: tuple[DatasetRead, ...]
    topics: tuple[str, ...]
    once: bool
    """The query is a batch that runs only once, such as a backfill."""
    origin: SourceLocation
    streams: bool = True
    """Whether the query reads a dataset or a topic as a stream."""
    session_reads: tuple[DatasetRead, ...] = ()
    """The reads that a Python query, or a temporary view in it, makes through the session
(`spark.table("x")`, `spark.sql(...)`). The runner creates temporary views of these names before
it calls the query."""


@dataclass(frozen=True)
class Sink:
    """A target outside of the pipeline: "topic:NAME", "delta:PATH", "iceberg:…", "parquet:…"."""

    name: str
    target: str
    options: Mapping[str, str]
    origin: SourceLocation


@dataclass(frozen=True)
class Declarations:
    """All declarations of a project, in the order of its files."""

    datasets: Mapping[str, Dataset]
    flows: tuple[Flow, ...]
    sinks: Mapping[str, Sink]


@dataclass(frozen=True)
class ProjectSettings:
    """The settings of pipeline.yml."""

    format: Format = "delta"
    dead_letter_topic: str | None = None
    target_batch_time: str = "10s"
    """The source's option targetBatchTime; "" sets no limit."""
    trigger: str | None = None
    """Spark's processing time between two batches, such as "10 seconds"; None for no pause."""


@dataclass(frozen=True)
class Project:
    """A loaded pipeline."""

    name: str
    root: Path
    storage: Path
    connection: ConnectionSettings
    declarations: Declarations
    spark: Mapping[str, str] = field(default_factory=dict)
    settings: ProjectSettings = ProjectSettings()

    @property
    def bootstrap_servers(self) -> str:
        """Return the brokers."""
        return self.connection.bootstrap_servers


TABLE_OPTIONS = ("target_file_bytes", "compact_after_files", "retention_hours")
"""The keys of `Dataset.options`: arguments of the table sink, as text."""


class DatasetReader(Protocol):
    """Implements the readers while a query is called."""

    def read(self, name: str) -> "DataFrame":
        """Return all rows of a dataset."""

    def read_stream(self, name: str) -> "DataFrame":
        """Return new rows of a dataset, as a stream."""

    def topic(self, name: str, **options: str) -> "DataFrame":
        """Return the records of a topic, as a stream."""

    def topics(self, *names: str, pattern: str | None, **options: str) -> "DataFrame":
        """Return the records of several topics, as one stream."""

    def topic_snapshot(self, name: str, **options: str) -> "DataFrame":
        """Return the records that a topic holds now."""

    def spark(self) -> "SparkSession":
        """Return the session of the run."""


_reading: ContextVar[DatasetReader | None] = ContextVar("headwater_pipelines_reading", default=None)


@contextmanager
def bind(reading: DatasetReader) -> Iterator[None]:
    """Use `reading` for the readers of queries called within the `with` (in this thread)."""
    token = _reading.set(reading)
    try:
        yield
    finally:
        _reading.reset(token)


def read(name: str) -> "DataFrame":
    """Return all rows of the dataset `name`, as a batch."""
    return _bound().read(name)


def read_stream(name: str) -> "DataFrame":
    """Return the new rows of the dataset `name`, as a stream."""
    return _bound().read_stream(name)


def topic(name: str, **options: str) -> "DataFrame":
    """Return the records of a topic as a stream with Kafka's columns; options of the source."""
    return _bound().topic(name, **options)


def topics(*names: str, pattern: str | None = None, **options: str) -> "DataFrame":
    """Return the records of several topics as one stream, by name or by pattern.

    A pattern is a regular expression for whole names; topics created later are included.
    """
    return _bound().topics(*names, pattern=pattern, **options)


def topic_snapshot(name: str, **options: str) -> "DataFrame":
    """Return the records that a topic holds now, as a batch."""
    return _bound().topic_snapshot(name, **options)


def spark() -> "SparkSession":
    """Return the session of the pipeline; works only within a query."""
    return _bound().spark()


def _bound() -> DatasetReader:
    reading = _reading.get()
    if reading is None:
        raise RuntimeError(
            "this reads data, and nothing runs yet: call it inside a function under @table,"
            " @materialized_view, @temporary_view or @append_flow, not while the file is loaded"
        )
    return reading
