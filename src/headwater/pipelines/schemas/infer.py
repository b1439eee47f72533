"""Infers columns from samples of JSON: each type is the narrowest that holds all values seen.

Types form a lattice with STRING on top (BIGINT below DOUBLE, DATE below TIMESTAMP), so the order
of the samples does not matter. Samples that are not JSON objects are skipped; the ingest sends such
records to the dead letter topic. Whole numbers are always BIGINT, and every column is nullable: small
values without nulls in the samples say nothing about the next record.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from headwater.pipelines.schemas.ddl import DdlColumn, SchemaError, distinct, struct

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_WIDER = {("BIGINT", "DOUBLE"): "DOUBLE", ("DATE", "TIMESTAMP"): "TIMESTAMP"}
_LONG = 1 << 63


@dataclass(frozen=True)
class _Struct:
    fields: dict[str, "_Shape"]


@dataclass(frozen=True)
class _Array:
    items: "_Shape"


_Shape: TypeAlias = str | _Struct | _Array | None
"""A scalar type, a nested type, or None if only null was seen."""


def infer_columns(samples: Iterable[bytes]) -> list[DdlColumn]:
    """Return the columns of all samples that are JSON objects; SchemaError if none is."""
    shape: _Shape = None
    for sample in samples:
        value = _object(sample)
        if value is not None:
            shape = _join(shape, _shape(value))
    found = _columns(shape, "$") if isinstance(shape, _Struct) else []
    if not found:
        raise SchemaError(
            "$", "no sample is a JSON object with named fields; give a schema instead"
        )
    return found


def _object(sample: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(sample)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
        return None
    return value if isinstance(value, dict) else None


def _shape(value: Any) -> _Shape:
    if isinstance(value, dict):
        return _Struct({name: _shape(child) for name, child in value.items()})
    if isinstance(value, list):
        items: _Shape = None
        for item in value:
            items = _join(items, _shape(item))
        return _Array(items)
    return _scalar(value)


def _scalar(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -_LONG <= value < _LONG else "STRING"
    return "DOUBLE" if isinstance(value, float) else _of_text(value)


def _of_text(text: str) -> str:
    kind = "DATE" if _DATE.fullmatch(text) else "TIMESTAMP" if _TIMESTAMP.fullmatch(text) else ""
    try:
        datetime.fromisoformat(text) if kind else None
    except ValueError:  # such as February 31
        return "STRING"
    return kind or "STRING"


def _join(one: _Shape, other: _Shape) -> _Shape:
    """Return the narrowest type that holds both."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if isinstance(one, _Struct) and isinstance(other, _Struct):
        names = dict.fromkeys([*one.fields, *other.fields])
        return _Struct({n: _join(one.fields.get(n), other.fields.get(n)) for n in names})
    if isinstance(one, _Array) and isinstance(other, _Array):
        return _Array(_join(one.items, other.items))
    if isinstance(one, str) and isinstance(other, str):
        return _WIDER.get((min(one, other), max(one, other)), "STRING")
    return "STRING"


def _columns(shape: _Struct, path: str) -> list[DdlColumn]:
    found = [
        DdlColumn(name, _ddl(child, f"{path}.{name}"))
        for name, child in shape.fields.items()
        if name
    ]
    return distinct(path, found)


def _ddl(shape: _Shape, path: str) -> str:
    if isinstance(shape, _Struct):
        fields = _columns(shape, path)
        return struct(fields) if fields else "MAP<STRING, STRING>"
    if isinstance(shape, _Array):
        return f"ARRAY<{_ddl(shape.items, path)}>"
    return shape or "STRING"
