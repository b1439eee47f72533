"""Converts the statistics of a Parquet footer to the JSON of Delta's log.

A bound is exact, or a truncated string that is still a bound, or left out. deltalake's dataset reads
a missing bound of one column beside bounds of others as `column >= null`, which no row meets. So if
one bound cannot be written the file has none at all, which costs readers time instead of rows.
"""

import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

INDEXED_COLUMNS: Final = 32
"""The number of columns that Delta's own writers keep statistics for."""
LONGEST_TEXT: Final = 32
"""Longer strings are truncated; in upper bounds the last character is incremented."""
_LAST_LETTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)

Json = dict[str, Any]
Path = tuple[str, ...]


def delta_statistics(footer: pq.FileMetaData, schema: pa.Schema) -> str:
    """Return row count, minimum, maximum and null count per column, as JSON.

    Columns of the schema that the file lacks are all null in it. The schema must not contain
    partition columns: their values are in the log.
    """
    least: Json = {}
    greatest: Json = {}
    nulls: Json = {}
    complete = True
    held = {footer.schema.column(index).path: index for index in range(footer.num_columns)}
    for path, kind in _indexed(schema):
        index = held.get(".".join(path))
        parts = [] if index is None else _parts(footer, index)
        count = footer.num_rows if index is None else _null_count(parts)
        _put(nulls, path, count)
        if count == footer.num_rows or pa.types.is_binary(kind):
            continue  # readers expect no bounds
        low, high = _bounds(parts)
        complete = complete and low is not None and high is not None
        _put(least, path, low)
        _put(greatest, path, high)
    bounds = {"minValues": least, "maxValues": greatest} if complete else {}
    return json.dumps({"numRecords": footer.num_rows, **bounds, "nullCount": nulls})


def columns_beyond(footer: pq.FileMetaData) -> set[str]:
    """Return dotted paths of columns with times outside the years 1 to 9999 of Python's types."""
    return {
        footer.schema.column(index).path
        for index in range(footer.num_columns)
        if any(_is_beyond(part) for part in _parts(footer, index))
    }


def _is_beyond(part: Any) -> bool:
    if part is None or not part.has_min_max:
        return False
    try:
        return part.min is None or part.max is None
    except (OverflowError, ValueError):
        return True


def _indexed(schema: pa.Schema) -> list[tuple[Path, pa.DataType]]:
    """Return the columns with statistics, without those that share a dotted path."""
    leaves = list(_leaves(schema, ()))[:INDEXED_COLUMNS]
    texts = [".".join(path) for path, _ in leaves]
    return [leaf for leaf, text in zip(leaves, texts, strict=True) if texts.count(text) == 1]


def _parts(footer: pq.FileMetaData, index: int) -> list[Any]:
    groups = range(footer.num_row_groups)
    return [footer.row_group(group).column(index).statistics for group in groups]


def _leaves(fields: pa.Schema | pa.StructType, above: Path) -> Iterator[tuple[Path, pa.DataType]]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, (*above, field.name))
        elif not pa.types.is_nested(field.type):
            yield (*above, field.name), field.type


def _null_count(parts: list[Any]) -> int | None:
    if any(part is None or not part.has_null_count for part in parts):
        return None
    return sum(int(part.null_count) for part in parts)


def _bounds(parts: list[Any]) -> tuple[Any, Any]:
    """Return minimum and maximum over all row groups as JSON values; None for an unknown bound.

    Bounds are those of Spark's writer, which keeps none for a column with NaN.
    """
    lows, highs = [], []
    for part in parts:
        if part is None:
            return None, None
        if part.has_min_max:
            try:
                lows.append(part.min)
                highs.append(part.max)
            except (OverflowError, ValueError):  # a time outside the years 1 to 9999
                return None, None
        elif not (part.has_null_count and part.num_values == 0):
            return None, None
    if not lows:
        return None, None
    return _written(min(lows), upper=False), _written(max(highs), upper=True)


def _written(value: Any, *, upper: bool) -> Any:
    """Return the value as Delta's JSON writes it; None if it cannot be written."""
    match value:
        case bool() | int():
            return value
        case str():
            return _text(value, upper=upper)
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            number = float(value)
            return number if Decimal(repr(number)) == value else None
        case datetime():
            return _instant(value)
        case date():
            return value.isoformat()
        case _:
            return None


def _text(value: str, *, upper: bool) -> str | None:
    if len(value) <= LONGEST_TEXT:
        return value
    return _raised(value[:LONGEST_TEXT]) if upper else value[:LONGEST_TEXT]


def _raised(text: str) -> str | None:
    """Return the smallest string of at most this length that is above all strings that start so."""
    kept = text.rstrip(chr(_LAST_LETTER))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _instant(value: datetime) -> str:
    """Format with microseconds, and a Z if the column has a time zone."""
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _put(into: Json, path: Path, value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value
