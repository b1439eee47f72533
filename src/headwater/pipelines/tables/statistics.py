"""Statistics of a file, from its Parquet footer, in the JSON that Delta's log keeps.

A bound that cannot be said exactly is left out: a missing one costs a reader time, a wrong one
costs rows.
"""

import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

INDEXED_COLUMNS = 32
"""As many columns as Delta's own writers keep statistics for."""
LONGEST_TEXT = 32
"""Longer strings are cut in lower bounds and left out of upper ones."""

Json = dict[str, Any]


def delta_statistics(footer: pq.FileMetaData, schema: pa.Schema) -> str:
    """Rows, least and greatest values and counts of nulls, per column."""
    least: Json = {}
    greatest: Json = {}
    nulls: Json = {}
    paths = _paths_by_text(schema)
    for index in range(footer.num_columns):
        path = paths.get(footer.schema.column(index).path)
        if path is None:
            continue
        chunks = [footer.row_group(group).column(index) for group in range(footer.num_row_groups)]
        statistics = [chunk.statistics for chunk in chunks]
        _put(nulls, path, _null_count(statistics))
        low, high = _bounds(statistics)
        _put(least, path, _written(low, cut=True))
        _put(greatest, path, _written(high, cut=False))
    return json.dumps(
        {
            "numRecords": footer.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        }
    )


def _paths_by_text(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Columns by their dotted path; a path that two columns share is nobody's."""
    found: dict[str, tuple[str, ...] | None] = {}
    for path in list(_leaves(schema, ()))[:INDEXED_COLUMNS]:
        text = ".".join(path)
        found[text] = None if text in found else path
    return {text: path for text, path in found.items() if path is not None}


def _leaves(fields: pa.Schema | pa.StructType, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, (*above, field.name))
        elif not pa.types.is_nested(field.type):
            yield (*above, field.name)


def _null_count(statistics: list[Any]) -> int | None:
    if any(part is None or not part.has_null_count for part in statistics):
        return None
    return sum(int(part.null_count) for part in statistics)


def _bounds(statistics: list[Any]) -> tuple[Any, Any]:
    """Least and greatest value over all row groups; None where a group does not tell."""
    lows, highs = [], []
    for part in statistics:
        if part is None:
            return None, None
        if part.has_min_max:
            lows.append(part.min)
            highs.append(part.max)
        elif not (part.has_null_count and part.num_values == 0):
            return None, None
    return (min(lows), max(highs)) if lows else (None, None)


def _written(value: Any, *, cut: bool) -> Any:
    """The value as Delta's JSON writes it; None where no exact bound can be written."""
    match value:
        case bool() | bytes() | None:
            return None
        case str():
            return _text(value, cut=cut)
        case float() | Decimal():
            number = float(value)
            return number if math.isfinite(number) and number == value else None
        case int():
            return value
        case datetime():
            return _instant(value)
        case date():
            return value.isoformat()
        case _:
            return None


def _text(value: str, *, cut: bool) -> str | None:
    if len(value) <= LONGEST_TEXT:
        return value
    return value[:LONGEST_TEXT] if cut else None


def _instant(value: datetime) -> str:
    """Microseconds; with a Z where the column has a time zone."""
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _put(into: Json, path: tuple[str, ...], value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value
