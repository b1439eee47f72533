"""IncrementalAlterConfigs: what a list of operations makes of the stored overrides."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from headwater.config.keys import LIST, ConfigError, Key, Settings
from headwater.errors import E, KafkaError


class Op(IntEnum):
    """What to do with a key, by its number on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One operation on one key."""

    name: str
    op: int
    value: str | None


def apply_changes(
    table: type[Settings], current: Mapping[str, str], changes: Iterable[Change]
) -> dict[str, str]:
    """The overrides after `changes`; KafkaError (and nothing changed) where one cannot be made.

    Whether the outcome is a good set of values is `table.check`'s to say.
    """
    after = dict(current)
    seen = set()
    for change in changes:
        if change.name in seen:
            raise KafkaError(E.INVALID_REQUEST, f"{change.name} is changed twice in one request")
        seen.add(change.name)
        _apply(table, after, change)
    return after


def _apply(table: type[Settings], after: dict[str, str], change: Change) -> None:
    if change.op not in list(Op):
        raise KafkaError(E.INVALID_REQUEST, f"unknown operation {change.op} for {change.name}")
    if change.op == Op.DELETE:
        after.pop(change.name, None)  # also of a key that is unknown by now
        return
    key = table.key(change.name)
    if change.value is None:
        raise KafkaError(E.INVALID_REQUEST, f"{change.name} needs a value; to unset it, delete it")
    if change.op == Op.SET:
        after[change.name] = change.value
    else:
        after[change.name] = _edited(key, after.get(change.name), change)


def _edited(key: Key, current: str | None, change: Change) -> str:
    if key.type is not LIST:
        raise ConfigError(f"{key.name} is no list: set it instead of adding to it")
    text = current if current is not None else key.text(key.default) or ""
    entries = text.split(",") if text else []
    named = (change.value or "").split(",")
    if change.op == Op.APPEND:
        entries += [entry for entry in named if entry not in entries]
    else:
        entries = [entry for entry in entries if entry not in named]
    return ",".join(entries)
