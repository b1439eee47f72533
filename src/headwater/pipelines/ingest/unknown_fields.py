"""Finds fields of JSON values that a schema lacks, by path: `note`, `buyer.nick`, `lines[2].tax`."""

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf
from pyspark.sql import types as st

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

_TEXT_BY_NAME = st.MapType(st.StringType(), st.StringType())
_TEXTS = st.ArrayType(st.StringType())


def unknown_fields(text: "Column", schema: st.StructType, options: "Mapping[str, Any]") -> "Column":
    """Return a map from the fields that the schema lacks to their JSON; NULL if there are none."""
    found = _entries(text, schema, sf.lit(""), options)
    names = sf.transform(found, lambda entry: entry["key"])
    first = sf.filter(found, lambda entry, at: sf.array_position(names, entry["key"]) == at + 1)
    return sf.when(sf.size(found) > 0, sf.map_from_entries(first))


def _entries(
    text: "Column", kind: st.DataType, path: "Column", options: "Mapping[str, Any]"
) -> "Column":
    """Return the path and JSON of each field that `kind` lacks, as an array of entries."""
    if isinstance(kind, st.ArrayType):
        return _of_elements(text, kind.elementType, path, options)
    assert isinstance(kind, st.StructType)
    values = sf.from_json(text, _TEXT_BY_NAME, options)
    known = sf.array(*(sf.lit(name) for name in kind.names)).cast("array<string>")
    other = sf.map_filter(values, lambda name, _: ~sf.array_contains(known, name))
    parts = [
        sf.transform(
            sf.map_entries(other),
            lambda entry: sf.struct(
                sf.concat(path, entry["key"]).alias("key"), entry["value"].alias("value")
            ),
        )
    ]
    for field in kind.fields:
        if _has_fields(field.dataType):
            dot = "" if isinstance(field.dataType, st.ArrayType) else "."
            below = sf.concat(path, sf.lit(f"{field.name}{dot}"))
            parts.append(_entries(values[field.name], field.dataType, below, options))
    return sf.concat(*(sf.coalesce(part, _nothing()) for part in parts))


def _of_elements(
    text: "Column", kind: st.DataType, path: "Column", options: "Mapping[str, Any]"
) -> "Column":
    dot = "" if isinstance(kind, st.ArrayType) else "."

    def of_element(element: "Column", at: "Column") -> "Column":
        below = sf.concat(path, sf.lit("["), at.cast("string"), sf.lit(f"]{dot}"))
        return _entries(element, kind, below, options)

    return sf.flatten(sf.transform(sf.from_json(text, _TEXTS, options), of_element))


def _has_fields(kind: st.DataType) -> bool:
    if isinstance(kind, st.ArrayType):
        return _has_fields(kind.elementType)
    return isinstance(kind, st.StructType)


def _nothing() -> "Column":
    return sf.array().cast("array<struct<key: string, value: string>>")
