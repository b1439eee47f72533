"""Arguments as callers may write them, checked before anything is asked of a broker."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")
ConfigValue = str | int | float | bool


def as_list(call: str, given: Iterable[T]) -> list[T]:
    """What `call` got; TypeError for a text, whose letters would count as names, or a mapping."""
    if isinstance(given, str | bytes):
        raise TypeError(f"{call} takes a list: {call}([{given!r}])")
    if isinstance(given, Mapping):
        raise TypeError(f"{call} takes a list, not a mapping: {call}({list(given)!r})")
    return list(given)


def config_text(name: str, value: object) -> str:
    """A config's value as brokers take it: numbers and booleans become text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(f"config {name} cannot be {value!r}: it takes text, a number or a boolean")
