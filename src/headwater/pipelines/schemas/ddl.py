"""A column and its DDL, and the checks that all kinds of schemas share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.pipelines.declaring.columns import column_name


class SchemaError(ValueError):
    """A schema that cannot become columns: one line with the path inside it."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"schema at {path}: {text}")
        self.path = path


@dataclass(frozen=True)
class DdlColumn:
    """One column or field: its type as DDL."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None

    def ddl(self, separator: str = " ") -> str:
        """Return the DDL of a table's column, or with ": " of a STRUCT's field."""
        null = "" if self.nullable else " NOT NULL"
        comment = f" COMMENT {_text(self.comment)}" if self.comment else ""
        return f"{column_name(self.name)}{separator}{self.type}{null}{comment}"


def struct(fields: list[DdlColumn]) -> str:
    """Return the type of a nested object."""
    return f"STRUCT<{', '.join(field.ddl(': ') for field in fields)}>"


def distinct(path: str, found: list[DdlColumn]) -> list[DdlColumn]:
    """Return `found`; SchemaError if two names differ only in case, which Spark ignores."""
    seen: dict[str, str] = {}
    for column in found:
        lower = column.name.lower()
        if lower in seen:
            both = f"{seen[lower]} and {column.name}"
            raise SchemaError(path, f"{both} are one column to Spark; drop one")
        seen[lower] = column.name
    return found


def at_most_nullable(
    types: list[Any], is_null: Callable[[Any], bool], path: str, widest: Mapping[Any, int]
) -> tuple[Any, bool]:
    """Return the type of a union and whether it includes null; numbers widen by `widest`."""
    rest = [kind for kind in types if not is_null(kind)]
    nullable = len(rest) < len(types)
    if len(rest) == 1:
        return rest[0], nullable
    if not rest:
        raise SchemaError(path, "nothing but null is allowed here; leave it out")
    if all(isinstance(kind, str) and kind in widest for kind in rest):
        return max(rest, key=widest.__getitem__), nullable
    shown = " or ".join(str(kind) for kind in rest)
    raise SchemaError(path, f"a column has one type, not {shown}; choose one, such as string")


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
