"""Rows that were refused, as records of a dead letter topic and as rows of a quarantine table.

The headers are those of the consumer's dead letters (`Consumer.process`), so that one tool reads
both: `dead-letter.topic`, `.partition`, `.offset`, `.timestamp` where the row still knows its
origin, `.error-class` and `.error-message` with the reasons, `.attempts`, and `.flow`.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf
from pyspark.sql import types as st

from headwater.pipelines.running.quality import REASONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HEADER: Final = "dead-letter."
ERROR_CLASS: Final = "headwater.pipelines.ExpectationFailed"
_ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
_MESSAGE_LIMIT: Final = 1000


def as_records(rows: "DataFrame", flow: str) -> "DataFrame":
    """Refused rows as key, value and headers; a row that is no record any more becomes JSON."""
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
    """Refused rows as they were, then why (`_reasons`), by which flow, and when."""
    return rows.withColumns({"_flow": sf.lit(flow), "_refused_at": sf.current_timestamp()})


def headers(rows: "DataFrame", flow: str) -> "Column":
    """The record's own headers, then where it came from and why it was set aside."""
    told = {
        "error-class": sf.lit(ERROR_CLASS),
        "error-message": sf.substring(sf.array_join(REASONS, "; "), 1, _MESSAGE_LIMIT),
        "attempts": sf.lit("1"),
        "flow": sf.lit(flow),
        **_origin(rows),
    }
    fresh = sf.array(*(_header(name, text) for name, text in told.items()))
    fresh = sf.filter(fresh, lambda header: header["value"].isNotNull())
    own = _types(rows).get("headers")
    if isinstance(own, st.ArrayType):
        return sf.concat(sf.coalesce(sf.col("headers"), sf.array().cast(own)), fresh)
    return fresh


def _origin(rows: "DataFrame") -> "dict[str, Column]":
    """Topic, partition, offset and timestamp, from columns of these names or with a `_` before."""
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
