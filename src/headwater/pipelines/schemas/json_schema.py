"""Converts JSON Schema to columns: objects, arrays, nullable unions, local $ref, date formats."""

from collections.abc import Mapping
from typing import Any

from headwater.pipelines.schemas.ddl import (
    DdlColumn,
    SchemaError,
    at_most_nullable,
    distinct,
    struct,
)

_SCALARS = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
_FORMATS = {
    ("string", "date-time"): "TIMESTAMP",
    ("string", "date"): "DATE",
    ("integer", "int32"): "INT",
    ("number", "float"): "FLOAT",
}
_WIDEST = {"integer": 0, "number": 1}
_COMBINING = ("allOf", "not", "if", "patternProperties", "prefixItems", "dependentSchemas")
_OF_VALUES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def object_columns(schema: Mapping[str, Any]) -> list[DdlColumn]:
    """Return the properties of the object that `schema` describes."""
    node, path = _Reader(schema).resolved(schema, "$")
    if not isinstance(node.get("properties"), Mapping):
        raise SchemaError(path, "a table needs an object with properties (or an Avro record)")
    return _Reader(schema).columns(node, path)


class _Reader:
    """Converts one schema; keeps its root for $ref and the references that enclose it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._inside: list[str] = []

    def columns(self, node: Mapping[str, Any], path: str) -> list[DdlColumn]:
        """Return a column for each property."""
        properties = node["properties"]
        if not isinstance(properties, Mapping):
            raise SchemaError(f"{path}.properties", "it should be an object")
        required = node.get("required", ())
        if isinstance(required, str | bool):  # draft 3 had it on the property
            raise SchemaError(f"{path}.required", "it should be a list of names")
        found = [
            self._column(name, child, name in required, f"{path}.properties.{name}")
            for name, child in properties.items()
        ]
        return distinct(path, found)

    def _column(self, name: str, child: Any, required: bool, path: str) -> DdlColumn:
        kind, nullable = self._type(child, path)
        comment = child.get("description") if isinstance(child, Mapping) else None
        return DdlColumn(name, kind, nullable or not required, comment)

    def _type(self, node: Any, path: str) -> tuple[str, bool]:
        """Return DDL and nullability."""
        if node is True or node == {}:
            return "STRING", True  # any value, kept as JSON text
        if not isinstance(node, Mapping):
            raise SchemaError(path, f"expected a schema, not {node!r}")
        depth = len(self._inside)
        node, path = self.resolved(node, path)
        for word in _COMBINING:
            if word in node:
                raise SchemaError(f"{path}.{word}", f"{word} has no column type; write it out")
        branches = node.get("anyOf", node.get("oneOf"))
        kind, nullable = (
            self._union(branches, path) if branches is not None else self._typed(node, path)
        )
        del self._inside[depth:]
        return kind, nullable or node.get("nullable") is True

    def resolved(self, node: Mapping[str, Any], path: str) -> tuple[Mapping[str, Any], str]:
        """Return the target of a $ref within the same document."""
        while "$ref" in node:
            ref = node["$ref"]
            if not isinstance(ref, str) or not ref.startswith("#"):
                raise SchemaError(
                    path, f"$ref {ref!r} points outside of the document; write its schema here"
                )
            if ref in self._inside:
                raise SchemaError(path, f"$ref {ref} contains itself, which a column type cannot")
            self._inside.append(ref)
            found: Any = self._root
            for part in ref[1:].strip("/").split("/") if len(ref) > 1 else ():
                name = part.replace("~1", "/").replace("~0", "~")
                found = found.get(name) if isinstance(found, Mapping) else None
            if not isinstance(found, Mapping):
                raise SchemaError(path, f"$ref {ref} does not exist in the document")
            node = found
        return node, path

    def _union(self, branches: Any, path: str) -> tuple[str, bool]:
        if not isinstance(branches, list):
            raise SchemaError(path, "anyOf and oneOf take a list")
        branch, nullable = at_most_nullable(
            branches, lambda branch: branch == {"type": "null"}, path, {}
        )
        kind, inner = self._type(branch, path)
        return kind, nullable or inner

    def _typed(self, node: Mapping[str, Any], path: str) -> tuple[str, bool]:
        named = node.get("type", _implied(node))
        if named is None:
            raise SchemaError(path, "it has no type")
        names = named if isinstance(named, list) else [named]
        kind, nullable = at_most_nullable(names, lambda name: name == "null", path, _WIDEST)
        if kind == "object":
            return self._object(node, path), nullable
        if kind == "array":
            return self._array(node, path), nullable
        if kind not in _SCALARS:
            raise SchemaError(path, f"unknown type {kind!r}")
        if kind == "string" and node.get("contentEncoding") == "base64":
            return "BINARY", nullable
        return _FORMATS.get((kind, str(node.get("format"))), _SCALARS[kind]), nullable

    def _object(self, node: Mapping[str, Any], path: str) -> str:
        if node.get("properties"):
            return struct(self.columns(node, path))
        values = node.get("additionalProperties")
        if not isinstance(values, Mapping):
            return "MAP<STRING, STRING>"
        return f"MAP<STRING, {self._type(values, f'{path}.additionalProperties')[0]}>"

    def _array(self, node: Mapping[str, Any], path: str) -> str:
        items = node.get("items", True)
        if isinstance(items, list):
            raise SchemaError(f"{path}.items", "a tuple has no column type; give one type of items")
        return f"ARRAY<{self._type(items, f'{path}.items')[0]}>"


def _implied(node: Mapping[str, Any]) -> Any:
    """Return the type implied by enum, const or keywords if none is given."""
    if "properties" in node:
        return "object"
    if "items" in node:
        return "array"
    values = node.get("enum", [node["const"]] if "const" in node else None)
    if not isinstance(values, list) or not values:
        return None
    return list(dict.fromkeys(_OF_VALUES.get(type(value), "object") for value in values))
