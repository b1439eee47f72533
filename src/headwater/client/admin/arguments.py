"""Arguments as callers may write them, checked before anything is asked of a broker."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
V = TypeVar("V")
ConfigValue = str | int | float | bool


def as_list(call: str, given: Iterable[T]) -> list[T]:
    """The items that `call` was given; TypeError for a string, bytes, a mapping or no iterable."""
    if isinstance(given, str | bytes):
        raise TypeError(f"{call} takes a list: {call}([{given!r}])")
    if isinstance(given, Mapping):
        raise TypeError(f"{call} takes a list, not a mapping: {call}({list(given)!r})")
    if not isinstance(given, Iterable):
        raise TypeError(f"{call} takes a list, not {given!r}")
    return list(given)


def as_names(call: str, given: Iterable[str]) -> list[str]:
    """The names that `call` was given; TypeError if one is not a string."""
    return [checked_text(f"a name given to {call}", name) for name in as_list(call, given)]


def as_mapping(call: str, given: Mapping[T, V], form: str) -> Mapping[T, V]:
    """What `call` was given; TypeError that shows the `form` if it is not a mapping."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{call} takes {form}, not {given!r}")
    return given


def checked_text(what: str, value: Any) -> str:
    """A string that UTF-8 can encode; TypeError or ValueError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}: give it as str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is {value!r}, which is not valid Unicode") from None
    return value


def whole_number(what: str, value: Any, bits: int = 32) -> int:
    """An integer that fits into the request; TypeError or ValueError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} is {value!r}: give a whole number")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{what} is {value}, which does not fit into {bits} bits")
    return value


def config_text(name: str, value: object) -> str:
    """A config's value as brokers take it: numbers and booleans become text."""
    if isinstance(value, str):
        return checked_text(f"config {name}", value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(f"config {name} cannot be {value!r}: it takes text, a number or a boolean")
