"""Where rows go, as one word: `delta:PATH`, `iceberg:PATH`, `parquet:PATH` or `topic:NAME`.

Pure: it reads text and knows neither Spark nor a disk.
"""

import difflib
from typing import Final, Literal, NamedTuple, TypeGuard

Kind = Literal["delta", "iceberg", "parquet", "topic"]

TABLES: Final[tuple[Kind, ...]] = ("delta", "iceberg", "parquet")
KINDS: Final[tuple[Kind, ...]] = (*TABLES, "topic")


class TargetError(ValueError):
    """The text names no place that rows can go to."""


class Target(NamedTuple):
    """A place for rows: a table of some kind in a folder, or a topic by name."""

    kind: Kind
    place: str

    @property
    def is_table(self) -> bool:
        """Whether the rows become files of a table."""
        return self.kind != "topic"

    def __str__(self) -> str:
        """The text that `parse_target` understands."""
        return f"{self.kind}:{self.place}"


def parse_target(text: str) -> Target:
    """Reads `kind:place`; raises TargetError that says what was expected."""
    kind, colon, place = text.partition(":")
    if not colon or not _is_kind(kind):
        raise TargetError(f"{text!r} is no target{_nearest(kind)}: write {_ways()}")
    place = place.strip() if kind == "topic" else _folder(place.strip())
    if not place:
        raise TargetError(f"{text!r} names no place: write {_ways()}")
    return Target(kind, place)


def parse_table(text: str) -> Target:
    """Reads a target that is a table; raises TargetError for a topic as well."""
    target = parse_target(text)
    if not target.is_table:
        raise TargetError(f"{text!r} is no table: write delta:PATH, iceberg:PATH or parquet:PATH")
    return target


def _folder(place: str) -> str:
    """A folder of a file system that every machine of the pipeline sees, with no slash behind."""
    if place.startswith("file:"):
        place = "/" + place.removeprefix("file:").lstrip("/")
    if "://" in place:
        raise TargetError(f"{place!r} is not in a file system: give the path of a mounted folder")
    return place if place == "/" else place.rstrip("/")


def _is_kind(word: str) -> TypeGuard[Kind]:
    return word in KINDS


def _nearest(word: str) -> str:
    near = difflib.get_close_matches(word, KINDS, n=1)
    return f" (did you mean {near[0]}:?)" if near else ""


def _ways() -> str:
    return "delta:PATH, iceberg:PATH, parquet:PATH or topic:NAME"
