"""Columns: which types tables keep, and what a batch may change in them.

Pure. Every refusal here comes before anything is written.
"""

from collections.abc import Iterable, Sequence

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
_PARTITION_TYPES = frozenset(
    [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.date32()]
)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in one form, so that equal tables have equal schemas; refuses what none keep.

    Names of list and map parts, nullability inside of columns and large layouts differ between
    libraries that mean the same, so they are levelled. Annotations are dropped.
    """
    seen: dict[str, str] = {}
    for name in schema.names:
        if other := seen.get(name.lower()):
            raise TableError(f"columns {other!r} and {name!r} differ only in case, or not at all")
        seen[name.lower()] = name
    return pa.schema([pa.field(f.name, plain_type(f.type, f.name), f.nullable) for f in schema])


def plain_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The type in the form of `plain_schema`; `column` is for the refusal."""
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
        f"column {column!r} is of type {kind}, which tables do not keep: {_advice(kind)}"
    )


def _is_variant(kind: pa.DataType) -> bool:
    return any((field.metadata or {}).get(b"variant") == b"true" for field in kind)


def _advice(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "cast it to a timestamp of microseconds"
    if pa.types.is_null(kind):
        return "cast it to the type that its values will have"
    return "cast it to a string or to numbers"


def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema with every column optional, as Spark itself writes files."""
    return pa.schema([field.with_nullable(True) for field in schema])


def check_partitions(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Refuses partition columns that are missing, of an unfit type, or all there is."""
    for name in partition_by:
        if name not in schema.names:
            raise TableError(f"partition column {name!r} is not among {', '.join(schema.names)}")
        if (kind := schema.field(name).type) not in _PARTITION_TYPES:
            raise TableError(
                f"partition column {name!r} is of type {kind}: folders are named after strings, "
                "whole numbers, booleans and dates"
            )
    if len(set(partition_by)) == len(schema.names):
        raise TableError("every column is a partition column: the files would hold none")


def new_columns(table: pa.Schema, batch: pa.Schema, place: str) -> list[pa.Field]:
    """The columns that a batch adds to the table; refuses any other difference."""
    by_lower = {name.lower(): name for name in table.names}
    fresh: list[pa.Field] = []
    for field in batch:
        known = by_lower.get(field.name.lower())
        if known is None:
            fresh.append(field.with_nullable(True))
        elif known != field.name:
            raise TableError(f"{place} has column {known!r}: write {field.name!r} in the same case")
        elif table.field(known).type != field.type:
            raise TableError(
                f"column {known!r} of {place} is of type {table.field(known).type}, "
                f"and the batch has {field.type}: cast it, or write to another table"
            )
    for field in table:
        if not field.nullable and field.name not in batch.names:
            raise TableError(f"column {field.name!r} of {place} is required; the batch lacks it")
    return fresh


def same_partitions(
    existing: Sequence[str], asked: Sequence[str], place: str, files: Iterable[StagedFile] = ()
) -> tuple[str, ...]:
    """The partition columns of a table that exists; refuses others, asked for or written."""
    if asked and tuple(asked) != tuple(existing):
        has = f"is partitioned by {', '.join(existing)}" if existing else "has no partitions"
        raise TableError(f"{place} {has}, not by {', '.join(asked)}: write to another table")
    for file in files:
        if tuple(name for name, _ in file.partition) != tuple(existing):
            raise TableError(f"{file.path} was not written for the partitions of {place}")
    return tuple(existing)
