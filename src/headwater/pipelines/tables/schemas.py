"""Column types that tables store, and how a batch may change them.

Pure. Every refusal here comes before anything is written.
"""

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa

from headwater.pipelines.tables.table import StagedFile, TableError

_LEAVES = frozenset(
    [
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.string(), pa.binary(), pa.date32()),
        *(pa.timestamp("us"), pa.timestamp("us", "UTC")),
    ]
)
_OTHER_LAYOUTS = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
DELTA_FORBIDDEN = " ,;{}()\n\t="
"""Characters that a column name of a Delta table must not have."""
_LADDERS = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
)
"""Number types by width: each holds every value of those before it."""
_PARTITION_TYPES = frozenset(
    [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.date32()]
)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Normalize a schema, so that equal tables have equal schemas; refuse unsupported types.

    Names of list and map parts, nullability inside columns and large layouts differ between
    libraries that mean the same. Metadata is dropped.
    """
    seen: dict[str, str] = {}
    for name in schema.names:
        if other := seen.get(name.lower()):
            raise TableError(
                f"columns {other!r} and {name!r} are the same except for case: rename one"
            )
        seen[name.lower()] = name
    return pa.schema([pa.field(f.name, plain_type(f.type, f.name), f.nullable) for f in schema])


def plain_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Normalize a type as `plain_schema` does; `column` is for the error message."""
    kind = _OTHER_LAYOUTS.get(kind, kind)
    if kind in _LEAVES or pa.types.is_decimal128(kind):
        return kind
    if pa.types.is_struct(kind) and kind.num_fields and not _is_variant(kind):
        inner = [pa.field(f.name, plain_type(f.type, f"{column}.{f.name}")) for f in kind]
        return pa.struct(inner)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type, f"{column}.element")))
    if pa.types.is_map(kind):
        key = pa.field("key", plain_type(kind.key_type, f"{column}.key"), nullable=False)
        return pa.map_(key, pa.field("value", plain_type(kind.item_type, f"{column}.value")))
    raise TableError(
        f"column {column!r} has type {kind}, which tables cannot store: {_advice(kind)}"
    )


def _is_variant(kind: pa.DataType) -> bool:
    return any((field.metadata or {}).get(b"variant") == b"true" for field in kind)


def _advice(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "cast it to a timestamp of microseconds"
    if pa.types.is_null(kind):
        return "cast it to the type of its future values"
    return "cast it to a string or to numbers"


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with every column nullable, as Spark itself writes files."""
    return pa.schema([field.with_nullable(True) for field in schema])


def check_partitions(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Refuse partition columns that are missing or unsupported, and tables without other columns."""
    for name in partition_by:
        if name not in schema.names:
            raise TableError(f"partition column {name!r} is not among {', '.join(schema.names)}")
        if (kind := schema.field(name).type) not in _PARTITION_TYPES:
            raise TableError(
                f"partition column {name!r} has type {kind}: use a string, an integer, a boolean or "
                "a date"
            )
    if len(set(partition_by)) == len(schema.names):
        raise TableError("every column is a partition column: at least one must not be")


def evolved_schema(
    table: pa.Schema, batch: pa.Schema, place: str, *, widens: bool, fixed: Collection[str] = ()
) -> pa.Schema:
    """Return the columns of a table after a batch; raise TableError for unsupported changes.

    Columns and fields of structs may be new or missing. Numbers of a narrower type are cast; those
    of a wider type widen the column where `widens` says that this kind of table can.

    Args:
        table: The columns of the table.
        batch: The columns of the batch.
        place: The table, for messages.
        widens: Whether a column may take a wider type.
        fixed: Columns that keep their type, such as those of partitions.
    """
    by_lower = {name.lower(): name for name in table.names}
    fields = {field.name: field for field in table}
    for field in batch:
        known = by_lower.get(field.name.lower())
        if known is None:
            fields[field.name] = field.with_nullable(True)
        elif known != field.name:
            raise TableError(f"{place} has column {known!r}: write {field.name!r} in the same case")
        else:
            merging = _Merging(place, widens and known not in fixed)
            fields[known] = fields[known].with_type(
                merging.type_of(known, fields[known].type, field.type)
            )
    for field in table:
        if not field.nullable and field.name not in batch.names:
            raise TableError(f"column {field.name!r} of {place} is required; the batch lacks it")
    return pa.schema(list(fields.values()))


def changed_fields(before: pa.Schema, after: pa.Schema) -> list[pa.Field]:
    """Return the columns of `after` that are new or have another type."""
    return [
        field
        for field in after
        if field.name not in before.names or before.field(field.name).type != field.type
    ]


class _Merging:
    """Finds the type that holds the values of a column and those of a batch."""

    def __init__(self, place: str, widens: bool) -> None:
        self._place = place
        self._widens = widens

    def type_of(self, column: str, known: pa.DataType, given: pa.DataType) -> pa.DataType:
        if known == given or _is_wider(known, given):
            return known
        if pa.types.is_struct(known) and pa.types.is_struct(given):
            return self._struct(column, known, given)
        if pa.types.is_list(known) and pa.types.is_list(given):
            element = self.type_of(f"{column}.element", known.value_type, given.value_type)
            return pa.list_(known.value_field.with_type(element))
        if pa.types.is_map(known) and pa.types.is_map(given) and known.key_type == given.key_type:
            value = self.type_of(f"{column}.value", known.item_type, given.item_type)
            return pa.map_(known.key_field, known.item_field.with_type(value))
        if not _is_wider(given, known):
            raise self._refusal(column, known, given, "the types do not fit")
        if not self._widens:
            raise self._refusal(column, known, given, "it cannot be widened in place")
        return given

    def _struct(self, column: str, known: pa.StructType, given: pa.StructType) -> pa.StructType:
        fields = {field.name: field for field in known}
        by_lower = {name.lower(): name for name in fields}
        for field in given:
            path, there = f"{column}.{field.name}", by_lower.get(field.name.lower())
            if there is None:
                fields[field.name] = field.with_nullable(True)
            elif there != field.name:
                raise TableError(
                    f"{self._place} has field '{column}.{there}': write {path!r} in the same case"
                )
            else:
                merged = self.type_of(path, fields[there].type, field.type)
                fields[there] = fields[there].with_type(merged)
        return pa.struct(list(fields.values()))

    def _refusal(self, column: str, known: pa.DataType, given: pa.DataType, why: str) -> TableError:
        return TableError(
            f"column {column!r} of {self._place} has type {known} and the batch has {given}: "
            f"{why}. Cast the column to {known} in the query, or fill the table again "
            "(in a pipeline: --refresh with the flow's name)"
        )


def _is_wider(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a number type holds every value of another one, and is not the same."""
    for ladder in _LADDERS:
        if one in ladder and other in ladder:
            return ladder.index(one) > ladder.index(other)
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other):
        return bool(one.scale == other.scale and one.precision > other.precision)
    return False


def same_partitions(
    existing: Sequence[str], asked: Sequence[str], place: str, files: Iterable[StagedFile] = ()
) -> tuple[str, ...]:
    """Return the partition columns of an existing table; refuse other requested or written ones."""
    if asked and tuple(asked) != tuple(existing):
        has = f"is partitioned by {', '.join(existing)}" if existing else "has no partitions"
        raise TableError(f"{place} {has}, not {', '.join(asked)}: write to another table")
    for file in files:
        if tuple(name for name, _ in file.partition) != tuple(existing):
            raise TableError(f"{file.path} was not written for the partitions of {place}")
    return tuple(existing)
