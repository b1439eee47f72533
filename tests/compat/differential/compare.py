"""Where two transcripts part: one line per value, with the way to it."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from tests.compat.differential.scene import Step

MISSING = "nothing"
UNSEEN = "the broker was always too quick to be asked meanwhile"
"""Noted by a scene that could not bring about what it asks for; it is compared with nothing."""


class Difference(NamedTuple):
    """One value on which the brokers do not agree."""

    label: str
    path: str
    apache: object
    ours: object

    def __str__(self) -> str:
        where = f"{self.label}: {self.path}" if self.path else self.label
        return f"{where}\n    Apache Kafka: {self.apache!r}\n    Headwater:    {self.ours!r}"


def differences(apache: Sequence[Step], ours: Sequence[Step]) -> Iterator[Difference]:
    """All of them, in the order of the scene."""
    for theirs, mine in zip_longest(apache, ours):
        if theirs is None or mine is None or theirs.label != mine.label:
            yield Difference("the scene went another way", "", theirs, mine)
            return
        if UNSEEN in (theirs.answer, mine.answer):
            continue
        for path, left, right in _values(theirs.answer, mine.answer, ""):
            yield Difference(theirs.label, path, left, right)


def compared(apache: Sequence[Step], ours: Sequence[Step]) -> int:
    """The number of steps that both brokers have an answer for."""
    return sum(
        UNSEEN not in (one.answer, other.answer) for one, other in zip(apache, ours, strict=False)
    )


def _values(left: object, right: object, path: str) -> Iterator[tuple[str, object, object]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in {**left, **right}:
            inner = f"{path}.{key}" if path else str(key)
            yield from _values(left.get(key, MISSING), right.get(key, MISSING), inner)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _values(one, other, f"{path}[{index}]")
    elif left != right:
        yield path, left, right
