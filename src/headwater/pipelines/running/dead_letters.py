"""Writes refused rows to a dead letter topic or a quarantine table, exactly once.

The headers are those of the consumer's dead letters (`Consumer.process`), so that one tool reads
both: `dead-letter.topic`, `.partition`, `.offset`, `.timestamp` where the row still has its origin,
`.error-class` and `.error-message` with the reasons, `.attempts`, and `.flow`.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf
from pyspark.sql import types as st

from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.running.quality import REASONS
from headwater.pipelines.tables.writing import TableSink, query_id
from headwater.pipelines.targets import Target
from headwater.pipelines.topic_sink.topic_sink import write_batch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headwater.pipelines.running.quality import BatchWriter

HEADER: Final = "dead-letter."
ERROR_CLASS: Final = "headwater.pipelines.ExpectationFailed"
_ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
_MESSAGE_LIMIT: Final = 1000


class RefusedRows:
    """Creates writers for the refused rows of a flow, each exactly once by (app, rules, batch).

    The rules are part of the name: rows that a repeated batch refuses under other rules are written
    as well. They may appear twice, and are never lost.

    Args:
        flow: What the quarantine table names.
        query: What the dead letters name: the flow's query.
        rules: A digest of what decides which rows are refused.
        app: The application of the batches; by default the streaming query that writes.
    """

    def __init__(self, flow: str, query: str, rules: str, app: str | None = None) -> None:
        self._flow = flow
        self._query = query
        self._rules = rules
        self._app = app

    def into_table(self, target: Target) -> "BatchWriter":
        """Return a writer that appends refused rows to a quarantine table."""
        sinks: list[TableSink] = []

        def write(rows: "DataFrame", batch: int) -> None:
            if not sinks:
                sinks.append(TableSink(target, app=self._name(rows)))
            sinks[0](as_rows(rows, self._flow), batch)

        return write

    def into_topic(self, connection: ConnectionSettings, topic: str) -> "BatchWriter":
        """Return a writer that sends refused rows to a dead letter topic."""

        def write(rows: "DataFrame", batch: int) -> None:
            write_batch(
                as_records(rows, self._query),
                bootstrap_servers=connection.bootstrap_servers,
                topic=topic,
                query=self._name(rows),
                batch_id=batch,
                options=connection.options,
            )

        return write

    def _name(self, rows: "DataFrame") -> str:
        return f"{self._app or query_id(rows.sparkSession)}.{self._rules}"


def as_records(rows: "DataFrame", flow: str) -> "DataFrame":
    """Return refused rows as key, value and headers; a row without a binary value becomes JSON."""
    columns = _types(rows)
    own = [name for name in rows.columns if name != REASONS]
    raw = isinstance(columns.get("value"), st.BinaryType)
    value = sf.col("value") if raw else sf.to_json(sf.struct(*own)).cast("binary")
    key = sf.col("key") if isinstance(columns.get("key"), st.BinaryType) else sf.lit(None)
    return rows.select(
        key.cast("binary").alias("key"),
        value.alias("value"),
        headers(rows, flow).alias("headers"),
    )


def as_rows(rows: "DataFrame", flow: str) -> "DataFrame":
    """Return refused rows unchanged, with the reasons, the flow and the time as columns."""
    return rows.withColumns({"_flow": sf.lit(flow), "_refused_at": sf.current_timestamp()})


def headers(rows: "DataFrame", flow: str) -> "Column":
    """Return the record's own headers, followed by its origin and the reasons."""
    added = {
        "error-class": sf.lit(ERROR_CLASS),
        "error-message": sf.substring(sf.array_join(REASONS, "; "), 1, _MESSAGE_LIMIT),
        "attempts": sf.lit("1"),
        "flow": sf.lit(flow),
        **_origin(rows),
    }
    fresh = sf.array(*(_header(name, text) for name, text in added.items()))
    fresh = sf.filter(fresh, lambda header: header["value"].isNotNull())
    own = _types(rows).get("headers")
    if isinstance(own, st.ArrayType):
        return sf.concat(sf.coalesce(sf.col("headers"), sf.array().cast(own)), fresh)
    return fresh


def _origin(rows: "DataFrame") -> "dict[str, Column]":
    """Return topic, partition, offset and timestamp, from columns with or without a leading `_`."""
    found = {}
    for name in _ORIGIN:
        column = next((each for each in (name, f"_{name}") if each in rows.columns), None)
        if column is not None:
            found[name] = _text(rows, column)
    return found


def _text(rows: "DataFrame", column: str) -> "Column":
    if isinstance(_types(rows)[column], st.TimestampType):
        return sf.unix_millis(sf.col(column)).cast("string")
    return sf.col(column).cast("string")


def _header(name: str, text: "Column") -> "Column":
    return sf.struct(sf.lit(HEADER + name).alias("key"), text.cast("binary").alias("value"))


def _types(rows: "DataFrame") -> dict[str, st.DataType]:
    return {field.name: field.dataType for field in rows.schema.fields}
