"""Problems of a declaration: one line with its place and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.config.keys import nearest
from headwater.pipelines.declaring.declare import SourceLocation


@dataclass(frozen=True)
class Problem:
    """One problem, its place and what to do."""

    origin: SourceLocation
    text: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.text}"


def hint(name: str, names: Mapping[str, object], otherwise: str) -> str:
    """Return the end of a problem text: the nearest known name, or else what to do."""
    return nearest(name, names) or f". {otherwise}"
