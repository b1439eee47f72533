"""Converts the rows of one file to the columns of the table: adds columns, partition values, casts."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc


def shaped(
    batch: pa.RecordBatch, wanted: pa.Schema, partition: Mapping[str, str | None]
) -> pa.RecordBatch:
    """Return the batch with exactly the wanted columns and types."""
    columns = [_column(batch, field, partition) for field in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _column(
    batch: pa.RecordBatch, field: pa.Field, partition: Mapping[str, str | None]
) -> pa.Array:
    if field.name in batch.schema.names:
        found = batch.column(field.name)
        return found if found.type == field.type else found.cast(field.type)
    if (text := partition.get(field.name)) is not None:
        value = pc.cast(pa.scalar(text, pa.string()), field.type)
        return pa.repeat(value, batch.num_rows)
    return pa.nulls(batch.num_rows, field.type)
