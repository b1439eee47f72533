"""What a pipeline is made of: frozen declarations, and the readers that queries call.

A project's files are imported once; what they declare is collected here and then never changes.
Queries name what they read (`read("bronze")`); who answers is bound by the runner, so a
declaration can be loaded, checked and tested without Spark. This room must never import pyspark.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Kind = Literal["table", "materialized_view", "temporary_view"]
Format = Literal["delta", "iceberg", "parquet"]
Action = Literal["warn", "drop", "fail"]


@dataclass(frozen=True)
class SourceLocation:
    """Where something was declared."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class DeclarationError(Exception):
    """A declaration that cannot be understood: one line with its place and what to do."""

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
    """One topic read by a query: as a stream, or whole as it is at that moment.

    Not a tuple, so that it is never equal to the `Read` of a table of the same name.
    """

    name: str
    stream: bool


class SqlRead(NamedTuple):
    """Where a SELECT reads something: `text[start:end]`.

    `alias` is the name its columns may be qualified by there ("": the text gives an alias itself).
    """

    start: int
    end: int
    source: DatasetRead | TopicRead
    alias: str


@dataclass(frozen=True)
class SqlQuery:
    """A SELECT whose reads are known by their place in the text."""

    text: str
    reads: tuple[DatasetRead, ...]
    topics: tuple[TopicRead, ...]
    spans: tuple[SqlRead, ...] = ()

    def rendered(self, names: Mapping[DatasetRead | TopicRead, str]) -> str:
        """The text with each read replaced by the (view) name given for it."""
        parts, done = [], 0
        for start, end, source, alias in self.spans:
            named = f"{names[source]} AS {quoted(alias)}" if alias else names[source]
            parts += [self.text[done:start], named]
            done = end
        return "".join(parts) + self.text[done:]


def quoted(name: str) -> str:
    """`name` as SQL takes it for a name, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


Query: TypeAlias = Callable[[], "DataFrame"] | SqlQuery


@dataclass(frozen=True)
class Expectation:
    """A condition (SQL) that each row should meet, and what happens to one that does not."""

    name: str
    condition: str
    action: Action


@dataclass(frozen=True)
class Quarantine:
    """Where rows go that an `expect_or_drop` refused: a table, a topic, or both."""

    table: str | None = None
    topic: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A table, a materialized view or a temporary view."""

    name: str
    kind: Kind
    query: Query | None
    """None: a table that only append flows fill."""
    reads: tuple[DatasetRead, ...]
    topics: tuple[str, ...]
    expectations: tuple[Expectation, ...]
    quarantine: Quarantine | None
    format: Format
    partition_by: tuple[str, ...]
    schema: str | None
    """DDL of the columns, where it was declared."""
    comment: str | None
    options: Mapping[str, str]
    """Of TABLE_OPTIONS, by name."""
    origin: SourceLocation
    streams: bool = False
    """The query (of a temporary view, say) reads something as a stream."""
    session_reads: tuple[DatasetRead, ...] = ()
    """As of Flow, of this query alone."""


@dataclass(frozen=True)
class Flow:
    """One query into one dataset or sink; a dataset with a query is also a flow of its name."""

    name: str
    target: str
    query: Query
    reads: tuple[DatasetRead, ...]
    topics: tuple[str, ...]
    once: bool
    """The query is a batch that runs one time only (a backfill), whatever happens later."""
    origin: SourceLocation
    streams: bool = True
    """Something is read as a stream: a dataset or a topic."""
    session_reads: tuple[DatasetRead, ...] = ()
    """The reads that a Python query makes by name through the session (`spark.table("x")`,
    `spark.sql(...)`), temporary views that are part of it included: the runner puts temporary
    views of these names there before it calls it."""


@dataclass(frozen=True)
class Sink:
    """A place outside of the pipeline: "topic:NAME", "delta:PATH", "iceberg:…", "parquet:…"."""

    name: str
    target: str
    options: Mapping[str, str]
    origin: SourceLocation


@dataclass(frozen=True)
class Declarations:
    """All that the files of a project declared, in their order."""

    datasets: Mapping[str, Dataset]
    flows: tuple[Flow, ...]
    sinks: Mapping[str, Sink]


@dataclass(frozen=True)
class ProjectSettings:
    """What pipeline.yml says beside names and places."""

    format: Format = "delta"
    dead_letter_topic: str | None = None
    target_batch_time: str = "10s"
    """For the source's option targetBatchTime; "" leaves batches without a limit."""
    trigger: str | None = None
    """Spark's processing time between two batches, like "10 seconds"; None: as fast as it goes."""


@dataclass(frozen=True)
class Project:
    """A pipeline ready to be checked and run."""

    name: str
    root: Path
    storage: Path
    bootstrap_servers: str
    declarations: Declarations
    spark: Mapping[str, str] = field(default_factory=dict)
    settings: ProjectSettings = ProjectSettings()


TABLE_OPTIONS = ("target_file_bytes", "compact_after_files", "retention_hours")
"""Names of `Dataset.options`: arguments of the table sink, as text."""


class DatasetReader(Protocol):
    """Who answers the readers of a query while it is called."""

    def read(self, name: str) -> "DataFrame":
        """All rows of a dataset."""

    def read_stream(self, name: str) -> "DataFrame":
        """New rows of a dataset, as a stream."""

    def topic(self, name: str, **options: str) -> "DataFrame":
        """The records of a topic, as a stream."""

    def topics(self, *names: str, pattern: str | None, **options: str) -> "DataFrame":
        """The records of several topics, as one stream."""

    def topic_snapshot(self, name: str, **options: str) -> "DataFrame":
        """The records that a topic holds now."""

    def spark(self) -> "SparkSession":
        """The session."""


_reading: ContextVar[DatasetReader | None] = ContextVar("headwater_pipelines_reading", default=None)


@contextmanager
def bind(reading: DatasetReader) -> Iterator[None]:
    """Let `reading` answer the readers of queries called within the `with` (in this thread)."""
    token = _reading.set(reading)
    try:
        yield
    finally:
        _reading.reset(token)


def read(name: str) -> "DataFrame":
    """All rows of the dataset `name`, as a batch."""
    return _bound().read(name)


def read_stream(name: str) -> "DataFrame":
    """The rows that are new in the dataset `name`, as a stream."""
    return _bound().read_stream(name)


def topic(name: str, **options: str) -> "DataFrame":
    """The records of a topic as a stream, with Kafka's columns; options as of the source."""
    return _bound().topic(name, **options)


def topics(*names: str, pattern: str | None = None, **options: str) -> "DataFrame":
    """The records of several topics as one stream: those named, or all that match a pattern.

    A pattern is a regular expression for whole names; topics that appear later are found as well.
    """
    return _bound().topics(*names, pattern=pattern, **options)


def topic_snapshot(name: str, **options: str) -> "DataFrame":
    """The records that a topic holds at this moment, as a batch."""
    return _bound().topic_snapshot(name, **options)


def spark() -> "SparkSession":
    """The session that the pipeline runs in; only within a query."""
    return _bound().spark()


def _bound() -> DatasetReader:
    reading = _reading.get()
    if reading is None:
        raise RuntimeError(
            "this reads data, and nothing runs yet: call it inside a function under @table,"
            " @materialized_view, @temporary_view or @append_flow, not while the file is loaded"
        )
    return reading
