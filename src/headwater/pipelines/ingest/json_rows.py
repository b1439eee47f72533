"""Parses JSON values into typed rows; no invalid value silently becomes NULL.

`from_json` alone gives NULL for a field of the wrong type, takes the first of two objects, and
ignores text after an object. Here a value is parsed inside an array, between two marks that no value
can contain, so that any text around its object is an error too. A record that does not fit is refused
whole, with a reason for each invalid field. A column accepts only its own JSON type, except that a
STRING keeps any JSON value as text and a TIMESTAMP also accepts seconds since 1970 as a number.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf
from pyspark.sql import types as st

from headwater.pipelines.ingest.json_limits import beyond, record_beyond, unfit_folder
from headwater.pipelines.ingest.unknown_fields import unknown_fields
from headwater.pipelines.running.progress import QUALITY
from headwater.pipelines.running.quality import REASONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REFUSED: Final = "dead letters"
"""The name that counts refused records."""
UNKNOWN: Final = "_unknown"
ORIGIN: Final = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_key": "key",
}
DATE: Final = "_date"

_DAY_US: Final = 86_400_000_000
_UTC_DATE: Final = (
    "date_from_unix_date(CAST((unix_micros(timestamp) - pmod(unix_micros(timestamp),"
    f" {_DAY_US})) DIV {_DAY_US} AS INT))"
)
"""The day in UTC; `to_date` would use the session's time zone."""

_CORRUPT: Final = "__corrupt"
_PARSED: Final = "__parsed"
_UNDECLARED: Final = "__undeclared"
_MARK: Final = "__mark"
_STRICT: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_SHOWN: Final = 60
_REGISTRY_MARK: Final = b"\x00\x00"
_REGISTRY: Final = (
    "the value is not JSON: it begins like Avro or Protobuf of a schema registry (a zero byte)"
)


class JsonRows:
    """Checks records against a schema: columns for the good ones, reasons for the others."""

    drops = True
    fails = False

    def __init__(
        self,
        schema: st.StructType,
        *,
        unknown: str = "keep",
        partition_by: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
    ) -> None:
        """Keep a schema and the treatment of unknown fields.

        Args:
            schema: The columns; fields that are not nullable are required.
            unknown: `keep` fields that the schema does not know in the column `_unknown`, `drop`
                them, or `refuse` their records.
            partition_by: Partition columns; `_date`, the day of the record's timestamp, is
                added if it is among them.
            rename: Column names for fields whose own name is not a valid column name.
        """
        self._schema = schema
        self._columns = {name: (rename or {}).get(name, name) for name in schema.names}
        self._unknown = unknown
        self._dated = DATE in partition_by
        self._folders = [
            field.name
            for field in schema.fields
            if self._columns[field.name] in partition_by
            and isinstance(field.dataType, st.StringType)
        ]

    def judged(self, records: "DataFrame") -> "DataFrame":
        """Return the records of the source with their parsed values and the reasons for refusal."""
        text = sf.col("value").cast("string")
        fields = st.StructType([_nullable(field) for field in self._schema.fields])
        fields = fields.add(_MARK, st.StringType())
        wrapper = st.StructType(
            [st.StructField("v", st.ArrayType(fields)), st.StructField(_CORRUPT, st.StringType())]
        )
        mark = sf.concat(sf.lit(f'{{"{_MARK}":"'), _mark(text), sf.lit('"}'))
        wrapped = sf.concat(
            sf.lit('{"v":['), mark, sf.lit(","), text, sf.lit(","), mark, sf.lit("]}")
        )
        parsed = records.withColumn(_PARSED, sf.from_json(wrapped, wrapper, _STRICT))
        undeclared = sf.lit(None)
        if self._unknown != "drop":
            undeclared = unknown_fields(text, self._schema, _STRICT)
        parsed = parsed.withColumn(_UNDECLARED, undeclared.cast("map<string,string>"))
        judged = parsed.withColumn(REASONS, self._reasons(text))
        counts = sf.count_if(sf.size(REASONS) > 0).alias("e0")
        return judged.observe(QUALITY, sf.count(sf.lit(1)).alias("rows"), counts)

    def refuse(self, judged: "DataFrame") -> None:
        """Do nothing: bad records go to the dead letters and never fail a batch."""

    def good(self, judged: "DataFrame") -> "DataFrame":
        """Return the typed columns, then the origin of each row."""
        row = sf.col(_PARSED)["v"][1]
        columns = [row[field].alias(column) for field, column in self._columns.items()]
        if self._unknown == "keep":
            columns.append(sf.col(_UNDECLARED).alias(UNKNOWN))
        columns += [sf.col(source).alias(name) for name, source in ORIGIN.items()]
        if self._dated:
            columns.append(sf.expr(_UTC_DATE).alias(DATE))
        return judged.where(sf.size(REASONS) == 0).select(*columns)

    def bad(self, judged: "DataFrame") -> "DataFrame":
        """Return the records that do not fit, unchanged, with the reasons."""
        return judged.where(sf.size(REASONS) > 0).drop(_PARSED, _UNDECLARED)

    def _reasons(self, text: "Column") -> "Column":
        """Return the reasons to refuse a record; empty if there are none."""
        parsed, rows = sf.col(_PARSED), sf.col(_PARSED)["v"]
        marked = (rows[0][_MARK] == _mark(text)) & (rows[2][_MARK] == _mark(text))
        fits = parsed[_CORRUPT].isNull() & (sf.size(rows) == 3) & marked & rows[1].isNotNull()
        return (
            sf.when(sf.col("value").isNull(), _told("the record has no value"))
            .when(sf.startswith(sf.col("value"), sf.lit(_REGISTRY_MARK)), _told(_REGISTRY))
            .when(~sf.is_valid_utf8(text), _told("the value is not UTF-8 text"))
            .when(~sf.coalesce(fits, sf.lit(False)), self._misfits(text))
            .otherwise(_present(self._shortcomings(rows[1], text)))
        )

    def _misfits(self, text: "Column") -> "Column":
        """Return the invalid fields; only refused records pay for parsing each field alone."""
        values = sf.from_json(text, st.MapType(st.StringType(), st.StringType()), _STRICT)
        faults = _present([_fault(text, values, field) for field in self._schema.fields])
        return sf.when(sf.size(faults) > 0, faults).otherwise(
            _told("the value is not a JSON object")
        )

    def _shortcomings(self, row: "Column", text: "Column") -> "list[Column]":
        """Return the problems of a record whose fields all have valid types."""
        found = [
            sf.when(missing, f"field {name} is required and missing")
            for name, missing in _required(row, self._schema)
        ]
        found += beyond(row, text, self._schema)
        found.append(record_beyond(sf.col("timestamp")))
        found += [unfit_folder(row[name], name) for name in self._folders]
        if self._unknown == "refuse":
            names = sf.array_join(sf.map_keys(sf.col(_UNDECLARED)), ", ")
            found.append(sf.concat(sf.lit("not in the schema: "), names))
        return found


def _fault(text: "Column", values: "Column", field: st.StructField) -> "Column":
    alone = st.StructType([_nullable(field), st.StructField(_CORRUPT, st.StringType())])
    wrong = sf.from_json(text, alone, _STRICT)[_CORRUPT].isNotNull()
    shown = sf.substring(values[field.name], 1, _SHOWN)
    told = sf.concat(sf.lit(f"field {field.name} is not {type_name(field.dataType)}: "), shown)
    return sf.when(wrong & values[field.name].isNotNull(), told)


def _required(row: "Column", schema: st.StructType, above: str = "") -> "list[tuple[str, Column]]":
    """Return the full names of required fields, through structs, and when they are missing."""
    found = []
    for field in schema.fields:
        value = row[field.name]
        if not field.nullable:
            found.append((above + field.name, value.isNull()))
        if isinstance(field.dataType, st.StructType):
            inner = _required(value, field.dataType, f"{above}{field.name}.")
            found += [(name, value.isNotNull() & missing) for name, missing in inner]
    return found


def _nullable(field: st.StructField) -> st.StructField:
    """Return the field as nullable: `from_json` returns NULL for missing fields, checked by name later."""
    return st.StructField(field.name, _nullable_type(field.dataType), nullable=True)


def _nullable_type(kind: st.DataType) -> st.DataType:
    if isinstance(kind, st.StructType):
        return st.StructType([_nullable(field) for field in kind.fields])
    if isinstance(kind, st.ArrayType):
        return st.ArrayType(_nullable_type(kind.elementType), containsNull=True)
    return kind


def type_name(kind: st.DataType) -> str:
    """Return a type as in SQL: BIGINT, STRUCT<x: INT>."""
    if isinstance(kind, st.StructType):
        inner = (f"{field.name}: {type_name(field.dataType)}" for field in kind.fields)
        return f"STRUCT<{', '.join(inner)}>"
    if isinstance(kind, st.ArrayType):
        return f"ARRAY<{type_name(kind.elementType)}>"
    return kind.simpleString().upper()


def _mark(text: "Column") -> "Column":
    """Return a mark that depends on the value, so that no value can contain its own."""
    return sf.xxhash64(text).cast("string")


def _told(text: str) -> "Column":
    return sf.array(sf.lit(text))


def _present(texts: "list[Column]") -> "Column":
    if not texts:
        return sf.array().cast("array<string>")
    return sf.filter(sf.array(*texts), lambda text: text.isNotNull())
