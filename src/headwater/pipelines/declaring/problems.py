"""What is wrong with a declaration: one line with its place and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.config.keys import nearest
from headwater.pipelines.declaring.declare import SourceLocation


@dataclass(frozen=True)
class Problem:
    """One line that a person can act on."""

    origin: SourceLocation
    text: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.text}"


def hint(name: str, names: Mapping[str, object], otherwise: str) -> str:
    """The end of a problem with a name: the nearest one, or else what to do."""
    return nearest(name, names) or f". {otherwise}"
