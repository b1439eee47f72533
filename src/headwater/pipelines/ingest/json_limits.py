"""Finds values that `from_json` accepts but changes.

It multiplies seconds into microseconds without an overflow check, so a time in micro- or nanoseconds
becomes another time, and it turns a number that is too large into infinity. Both are found here, at
any depth of a schema. Times outside of the years 1 to 9999 are refused too, since other readers do not
support them.
"""

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf
from pyspark.sql import types as st

from headwater.pipelines.tables.folder_names import is_null_folder, is_too_long
from headwater.pipelines.tables.staging import NULL_FOLDER

if TYPE_CHECKING:
    from pyspark.sql import Column

    _Test = Callable[[Column], Column]

_FIRST_TIME: Final = "0001-01-01 00:00:00"
_LAST_TIME: Final = "9999-12-31 23:59:59.999999"
_FIRST_DATE: Final = "0001-01-01"
_LAST_DATE: Final = "9999-12-31"
_MOST_SECONDS: Final = (1 << 63) // 1_000_000
_MANY_DIGITS: Final = "[0-9]{13}"
"""The fewest digits of a number of seconds that overflows; few records need the second check."""


def beyond(row: "Column", text: "Column", schema: st.StructType) -> "list[Column]":
    """Return a reason for each field with a value out of bounds; NULL if there is none."""
    found = []
    for field in schema.fields:
        kind, value = field.dataType, row[field.name]
        if (late := _any(value, kind, st.TimestampType, _is_foreign)) is not None:
            wrong = sf.coalesce(late, sf.lit(False)) | _overflows(text, field)
            found.append(
                sf.when(wrong, f"field {field.name} has a time outside of the years 1 to 9999")
            )
        if (late := _any(value, kind, st.DateType, _is_foreign_date)) is not None:
            found.append(
                sf.when(late, f"field {field.name} has a date outside of the years 1 to 9999")
            )
        if (large := _any(value, kind, st.FractionalType, _is_infinite)) is not None:
            found.append(sf.when(large, f"field {field.name} has a number that is too large"))
    return found


def record_beyond(timestamp: "Column") -> "Column":
    """Return a reason if the record's own timestamp is out of bounds; else NULL."""
    return sf.when(
        _is_foreign(timestamp),
        "the record's timestamp is outside of the years 1 to 9999; timestamps are milliseconds",
    )


def unfit_folder(value: "Column", column: str) -> "Column":
    """Return a reason if a string cannot name a partition's folder; else NULL."""
    return sf.when(
        is_null_folder(value), f"field {column} is {NULL_FOLDER}, the folder of NULL"
    ).when(is_too_long(value, column), f"field {column} is too long to name a folder")


def _overflows(text: "Column", field: st.StructField) -> "Column":
    """Return whether a number of seconds, parsed again as text, overflows a timestamp."""
    plain = st.StructType([st.StructField(field.name, _as_text(field.dataType))])
    value = sf.from_json(text, plain)[field.name]
    found = _any(value, plain[field.name].dataType, st.StringType, _is_many)
    assert found is not None
    wrong = sf.when(text.rlike(_MANY_DIGITS), found)
    return sf.coalesce(wrong, sf.lit(False))


def _as_text(kind: st.DataType) -> st.DataType:
    """Return the type with strings for timestamps, without fields that have none."""
    if isinstance(kind, st.StructType):
        inner = [each for each in kind.fields if _holds(each.dataType, st.TimestampType)]
        return st.StructType([st.StructField(each.name, _as_text(each.dataType)) for each in inner])
    if isinstance(kind, st.ArrayType):
        return st.ArrayType(_as_text(kind.elementType))
    if isinstance(kind, st.MapType):
        return st.MapType(st.StringType(), _as_text(kind.valueType))
    return st.StringType()


def _holds(kind: st.DataType, leaf: type[st.DataType]) -> bool:
    if isinstance(kind, st.StructType):
        return any(_holds(each.dataType, leaf) for each in kind.fields)
    if isinstance(kind, st.ArrayType):
        return _holds(kind.elementType, leaf)
    return _holds(kind.valueType, leaf) if isinstance(kind, st.MapType) else isinstance(kind, leaf)


def _any(
    value: "Column", kind: st.DataType, leaf: type[st.DataType], is_so: "_Test"
) -> "Column | None":
    """Return whether `is_so` holds for a leaf at any depth; None if the type has no such leaf."""
    if not _holds(kind, leaf):
        return None
    if isinstance(kind, st.StructType):
        inner = (_any(value[each.name], each.dataType, leaf, is_so) for each in kind.fields)
        tests = [sf.coalesce(test, sf.lit(False)) for test in inner if test is not None]
        return reduce(lambda one, other: one | other, tests)
    if isinstance(kind, st.ArrayType):
        return _in_array(value, kind.elementType, leaf, is_so)
    if isinstance(kind, st.MapType):
        return _in_array(sf.map_values(value), kind.valueType, leaf, is_so)
    return is_so(value)


def _in_array(
    values: "Column", kind: st.DataType, leaf: type[st.DataType], is_so: "_Test"
) -> "Column":
    def test(value: "Column") -> "Column":
        found = _any(value, kind, leaf, is_so)
        assert found is not None
        return sf.coalesce(found, sf.lit(False))

    return sf.exists(values, test)


def _is_foreign(time: "Column") -> "Column":
    first, last = (sf.lit(moment).cast("timestamp") for moment in (_FIRST_TIME, _LAST_TIME))
    return (time < first) | (time > last)


def _is_foreign_date(day: "Column") -> "Column":
    first, last = (sf.lit(text).cast("date") for text in (_FIRST_DATE, _LAST_DATE))
    return (day < first) | (day > last)


def _is_infinite(number: "Column") -> "Column":
    return sf.abs(number).cast("double") == sf.lit(float("inf"))


def _is_many(text: "Column") -> "Column":
    return sf.abs(text.try_cast("decimal(38,0)")) > _MOST_SECONDS
