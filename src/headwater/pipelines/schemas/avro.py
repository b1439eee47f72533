"""Converts Avro-style records to columns: logical types, enums, unions with null, maps, arrays."""

from collections.abc import Mapping
from typing import Any

from headwater.pipelines.schemas.ddl import (
    DdlColumn,
    SchemaError,
    at_most_nullable,
    distinct,
    struct,
)

_PRIMITIVES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}
_LOGICAL = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}
_WIDEST = {"int": 0, "long": 1, "float": 2, "double": 3}
_LARGEST_PRECISION = 38


def record_columns(schema: Mapping[str, Any]) -> list[DdlColumn]:
    """Return a column for each field of a record."""
    return _Reader().fields(schema, "$")


class _Reader:
    """Converts one schema; keeps the named types seen so far."""

    def __init__(self) -> None:
        self._named: dict[str, str | None] = {}
        """Types by name; None while the type is being converted."""

    def fields(self, record: Mapping[str, Any], path: str) -> list[DdlColumn]:
        """Return the fields of a record."""
        fields = record.get("fields")
        if not isinstance(fields, list):
            raise SchemaError(path, "a record needs a list of fields")
        names = _names(record)
        self._named |= dict.fromkeys(names)
        found = [self._field(field, f"{path}.fields[{i}]") for i, field in enumerate(fields)]
        self._named |= dict.fromkeys(names, struct(found) if found else None)
        return distinct(path, found)

    def _field(self, field: Any, path: str) -> DdlColumn:
        if not isinstance(field, Mapping) or not isinstance(field.get("name"), str):
            raise SchemaError(path, "a field needs a name and a type")
        if "type" not in field:
            raise SchemaError(path, f"the field {field['name']} has no type")
        kind, nullable = self._type(field["type"], f"{path}.{field['name']}")
        return DdlColumn(field["name"], kind, nullable, field.get("doc"))

    def _type(self, node: Any, path: str) -> tuple[str, bool]:
        """Return DDL and nullability."""
        if isinstance(node, list):
            branch, nullable = at_most_nullable(
                node, lambda branch: branch in ("null", {"type": "null"}), path, _WIDEST
            )
            return self._type(branch, path)[0], nullable
        if isinstance(node, str):
            return self._by_name(node, path), False
        if not isinstance(node, Mapping) or "type" not in node:
            raise SchemaError(path, f"expected a type, not {node!r}")
        return self._complex(node, path)

    def _complex(self, node: Mapping[str, Any], path: str) -> tuple[str, bool]:
        kind = node["type"]
        if kind == "record":
            fields = self.fields(node, path)
            if not fields:
                raise SchemaError(path, "a record without fields has no column type")
            return struct(fields), False
        if kind == "array":
            return f"ARRAY<{self._type(node.get('items'), f'{path}.items')[0]}>", False
        if kind == "map":
            return f"MAP<STRING, {self._type(node.get('values'), f'{path}.values')[0]}>", False
        if kind in ("enum", "fixed"):
            plain = "STRING" if kind == "enum" else _logical(node, "fixed", path) or "BINARY"
            self._named |= dict.fromkeys(_names(node), plain)
            return plain, False
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return _logical(node, kind, path) or _PRIMITIVES[kind], False
        return self._type(kind, path)

    def _by_name(self, name: str, path: str) -> str:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        if name not in self._named:
            raise SchemaError(path, f"unknown type {name!r}")
        known = self._named[name]
        if known is None:
            raise SchemaError(path, f"{name} contains itself, which a column type cannot")
        return known


def _logical(node: Mapping[str, Any], kind: str, path: str) -> str | None:
    """Return the type of a logicalType; an unknown one is ignored, as Avro specifies."""
    logical = node.get("logicalType")
    if logical != "decimal" or kind not in ("bytes", "fixed"):
        return _LOGICAL.get((kind, str(logical)))
    precision, scale = node.get("precision"), node.get("scale", 0)
    if not isinstance(precision, int) or not 0 < precision <= _LARGEST_PRECISION:
        raise SchemaError(path, f"a decimal needs a precision of 1 to {_LARGEST_PRECISION}")
    if not isinstance(scale, int) or not 0 <= scale <= precision:
        raise SchemaError(path, f"the scale of a decimal is 0 to its precision, not {scale!r}")
    return f"DECIMAL({precision}, {scale})"


def _names(node: Mapping[str, Any]) -> list[str]:
    """Return the short and the full name of a named type."""
    name = node.get("name")
    if not isinstance(name, str):
        return []
    namespace = node.get("namespace")
    return [name, f"{namespace}.{name}"] if namespace else [name, name.rpartition(".")[2]]
