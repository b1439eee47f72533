"""Reads and checks pipeline.yml.

Values come from yaml's safe loader. `${VAR}` and `${VAR:-default}` are replaced inside values
afterwards, so a variable cannot change the structure. The error for an unknown key names the nearest
known one.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from headwater.config.keys import nearest
from headwater.pipelines.declaring.arguments import table_format, table_options
from headwater.pipelines.declaring.declare import (
    TABLE_OPTIONS,
    DeclarationError,
    Declarations,
    ProjectSettings,
    SourceLocation,
)
from headwater.pipelines.declaring.registry import Override

NAME = "pipeline.yml"
KEYS = (
    "name",
    "storage",
    "bootstrap_servers",
    "definitions",
    "format",
    "target_batch_time",
    "dead_letter_topic",
    "trigger",
    "spark",
    "tables",
)
TABLE_KEYS = ("format", "partition_by", "comment", *TABLE_OPTIONS)
_VARIABLE = re.compile(r"(\$?)\$\{(\w+)(?::-([^}]*))?\}")
_UNLIMITED = "unlimited"
_DURATION = re.compile(r"\d+(\.\d+)?\s*(ms|s|m|h|milliseconds?|seconds?|minutes?|hours?)")
_PROJECT_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class ProjectFile:
    """The checked content of pipeline.yml."""

    name: str
    root: Path
    storage: Path
    bootstrap_servers: str
    definitions: tuple[Path, ...]
    settings: ProjectSettings
    spark: Mapping[str, str]
    tables: Mapping[str, Override]

    def refuse_unknown_tables(self, declarations: Declarations) -> None:
        """Raise DeclarationError for settings of a table that is not declared."""
        for name, override in self.tables.items():
            if name not in declarations.datasets:
                hint = nearest(name, declarations.datasets)
                raise DeclarationError(override.origin, f"no file declares a table {name}{hint}")


def read_project_file(
    root: Path,
    text: str,
    file: str,
    overrides: Mapping[str, str],
    *,
    definitions: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    default_servers: str | None = None,
) -> ProjectFile:
    """Parse the text of a pipeline.yml in `root`; DeclarationError if it is invalid."""
    environment = os.environ if environment is None else environment
    page = _Page(text, file, environment)
    page.override(overrides)
    page.refuse_unknown(page.values, KEYS)
    patterns = definitions or page.texts("definitions") or ("*.py", "*.sql")
    root = root.absolute()
    name = page.text("name") or (Path(file).stem if definitions else root.name)
    if not _PROJECT_NAME.fullmatch(name):
        page.fail("name", f"{name!r} cannot be a name: use letters, digits, -, _ and .")
    return ProjectFile(
        name=name,
        root=root,
        storage=root / Path(page.text("storage") or "storage").expanduser(),
        bootstrap_servers=page.text("bootstrap_servers")
        or environment.get("HEADWATER_BOOTSTRAP")
        or default_servers
        or "localhost:9092",
        definitions=_definitions(page, Path(file).parent, patterns),
        settings=_settings(page),
        spark=_spark(page),
        tables={
            name: _override(page, name, values) for name, values in page.mapping("tables").items()
        },
    )


class _Page:
    """The values of the file and the line of each key."""

    def __init__(self, text: str, file: str, environment: Mapping[str, str]) -> None:
        self._file = file
        self._environment = environment
        self._lines: dict[tuple[str, ...], int] = {}
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            loaded = yaml.safe_load(text)
        except yaml.YAMLError as problem:
            mark = getattr(problem, "problem_mark", None)
            line = mark.line + 1 if mark else 1
            what = getattr(problem, "problem", None) or "it cannot be read"
            raise DeclarationError(
                SourceLocation(file, line), f"this is not valid YAML: {what}"
            ) from None
        if loaded is not None and not isinstance(loaded, dict):
            raise DeclarationError(SourceLocation(file, 1), "this should be `key: value` lines")
        try:
            self._note_lines(root, ())
            self.values: dict[str, Any] = self._expanded(loaded or {}, ())
        except RecursionError:
            raise DeclarationError(
                SourceLocation(file, 1), "a value contains itself. Write it without the alias"
            ) from None

    def _note_lines(self, node: Any, path: tuple[str, ...]) -> None:
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            inner = (*path, str(key.value))
            if inner in self._lines:
                first = self._lines[inner]
                place = SourceLocation(self._file, key.start_mark.line + 1)
                raise DeclarationError(
                    place, f"duplicate key {'.'.join(inner)}, first at line {first}"
                )
            self._lines[inner] = key.start_mark.line + 1
            self._note_lines(value, inner)

    def _expanded(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {str(key): self._expanded(v, (*path, str(key))) for key, v in value.items()}
        if isinstance(value, list):
            return [self._expanded(item, path) for item in value]
        if not isinstance(value, str):
            return value

        def variable(match: re.Match[str]) -> str:
            escaped, name, default = match.groups()
            if escaped:
                return match[0][1:]
            found = self._environment.get(name) or default
            if found is None:
                text = f"the environment has no {name}. Set it, or write ${{{name}:-default}}"
                raise DeclarationError(self.origin(*path), text)
            return found

        return _VARIABLE.sub(variable, value)

    def origin(self, *path: str) -> SourceLocation:
        """Return the line of a key, or of the nearest enclosing key."""
        while path and path not in self._lines:
            path = path[:-1]
        return SourceLocation(self._file, self._lines.get(path, 1))

    def override(self, given: Mapping[str, str]) -> None:
        """Replace values of the file by settings given by name."""
        for key, value in given.items():
            if key.startswith("spark."):
                self.values.setdefault("spark", {})[key] = value
            elif key.startswith("tables.") and key.count(".") == 2:
                _, table, setting = key.split(".")
                self.values.setdefault("tables", {}).setdefault(table, {})[setting] = value
            else:
                self.values[key] = value
        self.refuse_unknown(self.values, KEYS)

    def refuse_unknown(self, given: Mapping[str, Any], known: Collection[str], *path: str) -> None:
        """Raise DeclarationError for the first key that is not in `known`."""
        for key in given:
            if key not in known:
                hint = nearest(key, dict.fromkeys(known))
                raise DeclarationError(self.origin(*path, key), f"unknown key {key}{hint}")

    def text(self, key: str) -> str | None:
        """Return a value that must be a scalar."""
        value = self.values.get(key)
        if isinstance(value, dict | list):
            self.fail(key, f"{key} takes one value")
        return None if value is None else str(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a value that must be a scalar or a list of scalars."""
        value = self.values.get(key) or ()
        return (value,) if isinstance(value, str) else tuple(str(item) for item in value)

    def mapping(self, key: str) -> dict[str, Any]:
        """Return a value that must be a mapping."""
        value = self.values.get(key) or {}
        if not isinstance(value, dict):
            self.fail(key, f"{key} takes `key: value` lines")
        return value

    def fail(self, key: str, text: str) -> NoReturn:
        """Raise DeclarationError at a key."""
        raise DeclarationError(self.origin(key), text)


def _definitions(page: _Page, root: Path, patterns: Sequence[str]) -> tuple[Path, ...]:
    files: dict[Path, None] = {}
    for pattern in patterns:
        if Path(pattern).is_absolute():
            page.fail("definitions", f"{pattern} should be relative to this folder")
        found = [path for path in sorted(root.glob(pattern)) if path.suffix in (".py", ".sql")]
        if not found and "definitions" in page.values:
            page.fail("definitions", f"no .py or .sql file matches {pattern}")
        files |= dict.fromkeys(path for path in found if path.name != "__init__.py")
    if not files:
        page.fail("definitions", f"no file of {', '.join(patterns)} declares anything. Add one")
    return tuple(files)


def _settings(page: _Page) -> ProjectSettings:
    batch_time = page.text("target_batch_time")
    unlimited = batch_time == _UNLIMITED
    for key, value in {"target_batch_time": batch_time, "trigger": page.text("trigger")}.items():
        if value is None or (key == "target_batch_time" and unlimited):
            continue
        if not _DURATION.fullmatch(value.strip()):
            page.fail(key, f"{key} is a time such as 5s or 10 seconds, not {value!r}")
    return ProjectSettings(
        format=table_format(page.origin("format"), page.text("format")) or "delta",
        dead_letter_topic=page.text("dead_letter_topic"),
        target_batch_time="" if unlimited else batch_time or ProjectSettings.target_batch_time,
        trigger=page.text("trigger"),
    )


def _spark(page: _Page) -> dict[str, str]:
    found = {}
    for key, value in page.mapping("spark").items():
        if not key.startswith("spark."):
            raise DeclarationError(
                page.origin("spark", key), f"settings of Spark begin with spark., not {key}"
            )
        found[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _override(page: _Page, name: str, values: Any) -> Override:
    origin = page.origin("tables", name)
    if not isinstance(values, dict):
        raise DeclarationError(origin, f"tables.{name} takes `key: value` lines")
    page.refuse_unknown(values, TABLE_KEYS, "tables", name)
    given = values.get("partition_by")
    columns = [given] if isinstance(given, str) else given
    return Override(
        origin=origin,
        format=table_format(origin, values.get("format")),
        partition_by=None if columns is None else tuple(str(column) for column in columns),
        comment=values.get("comment"),
        options=table_options(origin, {k: v for k, v in values.items() if k in TABLE_OPTIONS}),
    )
