"""Checks the arguments of declarations in Python, SQL and YAML.

Each function returns the checked value or raises DeclarationError with the place and what to do.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from headwater.config.keys import nearest
from headwater.pipelines.declaring.declare import (
    TABLE_OPTIONS,
    DeclarationError,
    Format,
    SourceLocation,
    quoted,
)
from headwater.pipelines.targets import TargetError, parse_target

FORMATS: tuple[Format, ...] = ("delta", "iceberg", "parquet")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TAKEN = {"_checkpoints": "checkpoints", "_logs": "Spark's log", "lock": "its lock"}
"""Names of files and folders in the storage, and what they are; some disks ignore the case."""
_REFUSED = {
    "spark_conf": "settings are for the whole pipeline: put them under spark: in pipeline.yml",
    "cluster_by": "clustering is not supported: use partition_by",
    "path": "tables live in the pipeline's storage: set storage in pipeline.yml",
}


def text_of(file: Path) -> str:
    """Return the text of a file of a project; DeclarationError with the line that is not UTF-8."""
    content = file.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise DeclarationError(
            SourceLocation(str(file), line), "this is not UTF-8 text. Save the file as UTF-8"
        ) from None


def table_format(origin: SourceLocation, given: Any) -> Format | None:
    """Return a format by its name; None if none was given."""
    for known in FORMATS:
        if given == known:
            return known
    if given is None:
        return None
    hint = nearest(str(given), dict.fromkeys(FORMATS))
    raise DeclarationError(origin, f"format is one of {', '.join(FORMATS)}, not {given!r}{hint}")


def table_options(origin: SourceLocation, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of a table as text; DeclarationError for an unknown option."""
    for key in given:
        if key not in TABLE_OPTIONS:
            hint = nearest(str(key), dict.fromkeys(TABLE_OPTIONS))
            raise DeclarationError(origin, f"a table has no option {key}{hint}")
        if not str(given[key]).isdecimal():
            raise DeclarationError(origin, f"{key} is a whole number, not {given[key]!r}")
    return {key: str(value) for key, value in given.items()}


def schema_ddl(origin: SourceLocation, schema: Any) -> str | None:
    """Return a schema as DDL; a StructType is converted without a Spark session."""
    if schema is None or isinstance(schema, str):
        return schema
    if not hasattr(schema, "fields"):
        raise DeclarationError(origin, "schema is DDL such as 'a BIGINT, b STRING' or a StructType")
    return ", ".join(
        f"{quoted(field.name)} {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"
        for field in schema.fields
    )


def sink_target(
    origin: SourceLocation, text: str, options: dict[str, str]
) -> tuple[str, dict[str, str]]:
    """Return the target and the other options of a sink, written as `topic:NAME` or in Spark's way."""
    if text in ("headwater", "kafka", *FORMATS):
        key = "path" if text in FORMATS else "topic"
        place = options.pop(key, "")
        if not place:
            raise DeclarationError(origin, f"a sink of format {text} needs the option {key}")
        text = f"{'topic' if key == 'topic' else text}:{place}"
    try:
        return str(parse_target(text)), options
    except TargetError as problem:
        raise DeclarationError(origin, f"the sink's {problem}") from None


def name_list(origin: SourceLocation, what: str, given: Any) -> tuple[str, ...]:
    """Return a list of names; a string is refused, since it would be read letter by letter."""
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise DeclarationError(origin, f'{what} is a list of names, like {what}=["a"]')
    return tuple(given)


def checked_name(origin: SourceLocation, name: Any) -> str:
    """Return a name that is valid for a table, a folder and a view; else DeclarationError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeclarationError(
            origin,
            f"{name!r} cannot be a name: it becomes a table, a folder and a view, so only"
            " letters, digits and _ are allowed. Give it another",
        )
    if name.lower() in _TAKEN:
        raise DeclarationError(
            origin,
            f"{name!r} cannot be a name: a run keeps {_TAKEN[name.lower()]} under it in the storage."
            " Give it another",
        )
    return name


def refuse_unknown(origin: SourceLocation, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise DeclarationError for the first argument that is not in `known`."""
    for key in given:
        if key not in known:
            _refuse(origin, key, known)


def _refuse(origin: SourceLocation, key: str, known: Sequence[str]) -> NoReturn:
    why = _REFUSED.get(key)
    if why:
        raise DeclarationError(origin, f"{key} has no effect here: {why}")
    raise DeclarationError(origin, f"unknown argument {key}{nearest(key, dict.fromkeys(known))}")
