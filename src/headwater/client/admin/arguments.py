"""Converts and checks the arguments of admin calls before any request is sent."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
V = TypeVar("V")
ConfigValue = str | int | float | bool


def as_list(call: str, given: Iterable[T]) -> list[T]:
    """Return the items given to `call`; TypeError for a string, bytes, a mapping or no iterable."""
    if isinstance(given, str | bytes):
        raise TypeError(f"{call} takes a list: {call}([{given!r}])")
    if isinstance(given, Mapping):
        raise TypeError(f"{call} takes a list, not a mapping: {call}({list(given)!r})")
    if not isinstance(given, Iterable):
        raise TypeError(f"{call} takes a list, not {given!r}")
    return list(given)


def as_names(call: str, given: Iterable[str]) -> list[str]:
    """Return the names given to `call`; TypeError if one is not a string."""
    return [checked_text(f"a name given to {call}", name) for name in as_list(call, given)]


def as_mapping(call: str, given: Mapping[T, V], form: str) -> Mapping[T, V]:
    """Return the mapping given to `call`; TypeError with the expected `form` for anything else."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{call} takes {form}, not {given!r}")
    return given


def checked_text(what: str, value: Any) -> str:
    """Return `value` if UTF-8 can encode it; TypeError or ValueError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}: give it as str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is {value!r}, which is not valid Unicode") from None
    return value


def whole_number(what: str, value: Any, bits: int = 32) -> int:
    """Return an integer that fits into `bits`; TypeError or ValueError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} is {value!r}: give a whole number")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{what} is {value}, which does not fit into {bits} bits")
    return value


def config_text(name: str, value: object) -> str:
    """Return a config's value as text, as brokers expect it; numbers and booleans are converted."""
    if isinstance(value, str):
        return checked_text(f"config {name}", value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    kind = type(value).__name__  # not the value: it may be a password
    raise TypeError(f"config {name} cannot be of type {kind}: it takes text, a number or a boolean")
