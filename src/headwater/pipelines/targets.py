"""Parses targets of rows: `delta:PATH`, `iceberg:PATH`, `parquet:PATH` or `topic:NAME`.

Pure: uses neither Spark nor a disk.
"""

import difflib
from typing import Final, Literal, NamedTuple, TypeGuard

Kind = Literal["delta", "iceberg", "parquet", "topic"]

TABLES: Final[tuple[Kind, ...]] = ("delta", "iceberg", "parquet")
KINDS: Final[tuple[Kind, ...]] = (*TABLES, "topic")


class TargetError(ValueError):
    """The text is not a target."""


class Target(NamedTuple):
    """A table of some format in a folder, or a topic by name."""

    kind: Kind
    place: str

    @property
    def is_table(self) -> bool:
        """Return whether the target is a table."""
        return self.kind != "topic"

    def __str__(self) -> str:
        """Return the text that `parse_target` parses."""
        return f"{self.kind}:{self.place}"


def parse_target(text: str) -> Target:
    """Parse `kind:place`; TargetError if the text is not a target."""
    kind, colon, place = text.partition(":")
    if not colon or not _is_kind(kind):
        raise TargetError(f"{text!r} is not a target{_nearest(kind)}: write {_ways()}")
    place = place.strip() if kind == "topic" else _folder(place.strip())
    if not place:
        raise TargetError(f"{text!r} has no path or name: write {_ways()}")
    return Target(kind, place)


def parse_table(text: str) -> Target:
    """Parse a target that must be a table; TargetError for a topic too."""
    target = parse_target(text)
    if not target.is_table:
        raise TargetError(
            f"{text!r} is not a table: write delta:PATH, iceberg:PATH or parquet:PATH"
        )
    return target


def _folder(place: str) -> str:
    """Return a path in a file system, without a trailing slash; TargetError for a URL."""
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
