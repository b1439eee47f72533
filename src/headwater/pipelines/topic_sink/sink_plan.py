"""The options and columns of a topic sink, checked before anything is written.

Option and column names are those of Spark's Kafka connector.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

import pyarrow
import pyarrow.compute
from pyspark.errors import PySparkValueError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from headwater.client.errors import ClientError
from headwater.config.client import AdminSettings, ProducerSettings
from headwater.config.client_tls import ALIASES
from headwater.config.keys import ConfigError, nearest
from headwater.errors import E
from headwater.model import topic_name_problem
from headwater.pipelines.connection_settings import CONFIG_FILE, with_config_file
from headwater.pipelines.topic_sink.origin import Pair, Pairs, without_origin

SERVERS: Final = "kafka.bootstrap.servers"
QUERY: Final = "originQuery"
BATCH: Final = "originBatch"
TRANSACTIONS: Final = "transactions"
OWN: Final = (SERVERS, CONFIG_FILE, "topic", "includeHeaders", QUERY, BATCH, TRANSACTIONS)
SPARKS: Final = frozenset({"checkpointlocation", "path", "outputmode", "queryname", "truncate"})
"""Options that Spark adds to the sink's own."""
PROMISED: Final = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}
"""Settings that the guarantees of the sink depend on."""

Row = tuple[str | None, int | None, bytes | None, bytes | None, Pairs]
"""Topic, partition, key, value and headers of a record."""


class SinkError(PySparkValueError):
    """The options or columns of a topic sink are wrong; the message says how."""


class TopicWriteError(ClientError):
    """Rows could not be stored; the message says why."""

    CODE = E.UNKNOWN_SERVER_ERROR


@dataclass(frozen=True)
class SinkPlan:
    """The checked options and columns of a sink, sent to every task."""

    producer: Mapping[str, Any] = field(repr=False)
    """Keywords of the producer."""
    topic: str | None
    """The topic of all rows; None if a column names it."""
    columns: frozenset[str]
    query: str | None = None
    batch: int | None = None
    transactional: bool = True
    """Whether to write transactions, if the brokers have them."""

    @property
    def client(self) -> dict[str, Any]:
        """The keywords that any other client accepts as well."""
        return {
            name: value
            for name, value in self.producer.items()
            if ALIASES.get(key := name.replace("_", "."), key) in AdminSettings.KEYS
        }

    @property
    def plain(self) -> bool:
        """Whether rows are keys and values, and nothing else but a topic."""
        return not self.columns & {"headers", "partition"}

    def by_topic(self, batch: Any) -> Iterator[tuple[str, Any]]:
        """Return the rows of an Arrow batch for each topic."""
        if self.topic is not None:
            yield self.topic, batch
            return
        names = batch.column("topic").cast(pyarrow.string())
        if names.null_count:
            raise TopicWriteError("the column topic of a row is null: name a topic for every row")
        chosen = names.unique().to_pylist()
        for name in chosen:
            whole = len(chosen) == 1
            yield name, batch if whole else batch.filter(pyarrow.compute.equal(names, name))

    def others(self, batch: Any) -> Iterator[tuple[int | None, Pairs]]:
        """Return the partition and the headers of each row of an Arrow batch."""
        return ((partition, headers) for _, partition, _, _, headers in self.rows(batch))

    def rows(self, batch: Any) -> Iterator[Row]:
        """Return the records of an Arrow batch."""
        return zip(
            repeat(self.topic) if self.topic is not None else self._texts(batch, "topic"),
            self._values(batch, "partition"),
            self._bytes(batch, "key"),
            self._bytes(batch, "value"),
            self._headers(batch),
            strict=False,
        )

    def _values(self, batch: Any, name: str) -> Any:
        return batch.column(name).to_pylist() if name in self.columns else repeat(None)

    def _bytes(self, batch: Any, name: str) -> Any:
        if name not in self.columns:
            return repeat(None)
        return batch.column(name).cast(pyarrow.binary()).to_pylist()

    def _texts(self, batch: Any, name: str) -> Any:
        return batch.column(name).cast(pyarrow.string()).to_pylist()

    def _headers(self, batch: Any) -> Any:
        if "headers" not in self.columns:
            return repeat(())
        return map(_pairs, batch.column("headers").to_pylist())


def _pairs(row: list[dict[str, Any]] | None) -> Pairs:
    pairs: list[Pair] = [(pair["key"], pair["value"]) for pair in row or ()]
    return without_origin(pairs)


def plan_sink(options: Mapping[str, str], schema: StructType) -> SinkPlan:
    """Check options and columns; SinkError says what is wrong and what would be right.

    Columns without a meaning for a topic are ignored, as the connector does.
    """
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    try:
        given = with_config_file(given)
    except ConfigError as wrong:
        raise SinkError(f"option {CONFIG_FILE}: {wrong}") from wrong
    topic = given.get("topic")
    if topic is not None and (problem := topic_name_problem(topic)):
        raise SinkError(f"option topic: {problem}")
    columns = _columns(schema, topic)
    return SinkPlan(
        _producer(given),
        topic,
        columns,
        given.get(QUERY.lower()),
        _batch(given),
        transactional=_transactions(given),
    )


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OWN}
    for name in given:
        if name not in known and name not in SPARKS and not name.startswith("kafka."):
            raise SinkError(f"unknown option {name} of the topic sink{nearest(name, known)}")


def _batch(given: Mapping[str, str]) -> int | None:
    query, batch = given.get(QUERY.lower()), given.get(BATCH.lower())
    if (query is None) != (batch is None):
        raise SinkError(f"{QUERY} and {BATCH} belong together: set both or none")
    if batch is not None and not batch.isdigit():
        raise SinkError(f"{BATCH} must be the number of a batch, not {batch!r}")
    return None if batch is None else int(batch)


def _transactions(given: Mapping[str, str]) -> bool:
    chosen = given.get(TRANSACTIONS, "auto")
    if chosen not in ("auto", "off"):
        raise SinkError(
            f"option {TRANSACTIONS} is auto (if the brokers have them) or off, not {chosen!r}"
        )
    return chosen == "auto"


def _producer(given: Mapping[str, str]) -> dict[str, str]:
    if SERVERS not in given:
        raise SinkError(f"option {SERVERS} is missing: name at least one broker, HOST:PORT")
    settings = {
        name.removeprefix("kafka."): value
        for name, value in given.items()
        if name.startswith("kafka.")
    }
    for name, allowed in PROMISED.items():
        if settings.get(name, allowed[0]).lower() not in allowed:
            raise SinkError(
                f"kafka.{name} must be {allowed[0]}: the sink's guarantees depend on it"
            )
    if "transactional.id" in settings:
        raise SinkError(
            "kafka.transactional.id cannot be set: every task has a producer of its own, and producers "
            "with the same id fence each other"
        )
    keywords = {name.replace(".", "_"): value for name, value in settings.items()}
    try:
        ProducerSettings.of(keywords)
    except ConfigError as problem:
        raise SinkError(f"options kafka.*: {problem}") from problem
    return keywords


# -- columns


def _columns(schema: StructType, topic: str | None) -> frozenset[str]:
    names = frozenset(schema.fieldNames())
    if "value" not in names:
        raise SinkError(
            f"a topic sink needs a column value, string or binary; there "
            f"{'is' if len(names) == 1 else 'are'} {', '.join(sorted(names)) or 'none'}"
        )
    if topic is None and "topic" not in names:
        raise SinkError("no topic is given: set the option topic, or add a column topic")
    for name, (fits, wanted) in _TYPES.items():
        if name in names and not fits(kind := schema[name].dataType):
            raise SinkError(
                f"column {name} is {kind.simpleString()}; it must be {wanted}: cast it, or write a "
                f"struct with to_json"
            )
    return names & _TYPES.keys()


def _text_or_bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_headers(kind: DataType) -> bool:
    pair = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(pair, StructType) or pair.fieldNames() != ["key", "value"]:
        return False
    return isinstance(pair["key"].dataType, StringType) and isinstance(
        pair["value"].dataType, BinaryType
    )


_TYPES: Final[dict[str, tuple[Callable[[DataType], bool], str]]] = {
    "value": (_text_or_bytes, "string or binary"),
    "key": (_text_or_bytes, "string or binary"),
    "topic": (lambda kind: isinstance(kind, StringType), "string"),
    "partition": (lambda kind: isinstance(kind, IntegerType), "int"),
    "headers": (_is_headers, "array<struct<key:string,value:binary>>"),
}
