"""Converts schemas to Spark DDL: from JSON Schema, from Avro-style records, from samples.

A type without an exact column type is refused with its path inside the schema; nothing silently
becomes a STRING. Names that are not plain identifiers are backquoted.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.pipelines.schemas.avro import record_columns
from headwater.pipelines.schemas.ddl import DdlColumn, SchemaError
from headwater.pipelines.schemas.infer import infer_columns
from headwater.pipelines.schemas.json_schema import object_columns

__all__ = ["DdlColumn", "SchemaError", "columns", "infer", "load_schema", "to_ddl"]


def to_ddl(schema: Mapping[str, Any]) -> str:
    """Return the columns of a JSON Schema object or of an Avro-style record as DDL."""
    return ", ".join(column.ddl() for column in columns(schema))


def columns(schema: Mapping[str, Any]) -> list[DdlColumn]:
    """Return the columns of a schema, see `to_ddl`."""
    if not isinstance(schema, Mapping):
        raise SchemaError("$", "it should be an object")
    if schema.get("type") == "record":
        return record_columns(schema)
    return object_columns(schema)


def load_schema(text: str | bytes) -> Mapping[str, Any]:
    """Parse a schema from the content of its file."""
    try:
        loaded = json.loads(text)
    except ValueError as problem:
        raise SchemaError("$", f"it is not JSON: {problem}") from None
    except RecursionError:
        raise SchemaError("$", "it is nested too deeply") from None
    if not isinstance(loaded, dict):
        raise SchemaError("$", "it should be an object")
    return loaded


def infer(samples: Iterable[bytes]) -> str:
    """Infer columns from JSON samples, each of the narrowest type that holds all its values."""
    return ", ".join(column.ddl() for column in infer_columns(samples))
