"""One row per config key: its name, its type and bounds, and what it does.

A table of keys is a class whose attributes are rows (`retention_ms: int = key("retention.ms", ...)`).
Parsing, DescribeConfigs, AlterConfigs, the command line and the reference page all derive from the
rows. Code reads `settings.retention_ms`, never a string; a settings object never changes.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, ClassVar, TypeAlias

from headwater.errors import E, KafkaError

Value: TypeAlias = "bool | int | float | str | tuple[str, ...] | None"

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_URL_WITH_LOGIN = re.compile(r"://[^/]*@")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")


class Type(IntEnum):
    """The type of a value, with its number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = Type
_BITS = {INT: 31, SHORT: 15, LONG: 63}
_NEEDED = {BOOLEAN: "true or false", DOUBLE: "a number"}


class Mode(Enum):
    """How a broker key may be changed: not at all, for one broker, or for the cluster."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


CLUSTER_WIDE = Mode.CLUSTER_WIDE


class ConfigError(KafkaError):
    """A bad key or value; the message names the key, where it was set, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(E.INVALID_CONFIG, message)


class Key:
    """One row. `synonyms` are the broker keys that give a topic key its default, best first."""

    __slots__ = (
        "at_least", "at_most", "check", "default", "differs", "doc", "idle", "mode", "name", "one_of",
        "per_listener", "synonyms", "type",
    )  # fmt: skip

    def __init__(self, name: str, type: Type, default: Value, doc: str) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.doc = doc
        self.at_least: float | None = None
        self.at_most: float | None = None
        self.one_of: tuple[str, ...] = ()
        self.check: Callable[[Any], str | None] | None = None
        self.synonyms: tuple[str, ...] = ()
        self.mode = Mode.READ_ONLY
        self.differs = ""
        self.idle = ""
        self.per_listener = False

    def called(self, name: str) -> "Key":
        """This row under another name, for its messages."""
        row = copy(self)
        row.name = name
        return row

    @property
    def attribute(self) -> str:
        """The attribute of the settings that holds the value."""
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret, which is never shown."""
        return self.type is PASSWORD

    @property
    def explanation(self) -> str:
        """What the key does, or why it has no effect."""
        return f"{self.doc} Has no effect here: {self.idle}." if self.idle else self.doc

    def parse(self, text: str) -> Value:
        """Parse `text`; ConfigError if the row does not allow it."""
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError:
            raise self._refused(
                text, f"it takes {_NEEDED.get(self.type, 'a whole number')}"
            ) from None
        problem = self._problem(value)
        if problem:
            raise self._refused(text, problem)
        return value

    def text(self, value: Value) -> str | None:
        """The value as Kafka prints it."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return _double_text(value) if isinstance(value, float) else str(value)

    def bounds(self) -> str:
        """The allowed values, as text."""
        if self.one_of:
            return ", ".join(self.one_of)
        low, high = self.at_least, self.at_most
        if low is None and high is None:
            return ""
        if high is None:
            return f"at least {low}"
        return f"at most {high}" if low is None else f"{low} to {high}"

    def _problem(self, value: Value) -> str | None:
        if isinstance(value, str | tuple) and self.one_of:
            if not set(self.one_of).issuperset((value,) if isinstance(value, str) else value):
                return f"it takes {self.bounds()}"
        elif isinstance(value, int | float) and not isinstance(value, bool):
            bits = _BITS.get(self.type)
            if bits is not None and not -(1 << bits) <= value < 1 << bits:
                return f"it does not fit in {bits + 1} bits"
            low, high = self.at_least, self.at_most
            if (low is not None and value < low) or (high is not None and value > high):
                return f"it must be {self.bounds()}"
        if isinstance(value, tuple) and len(set(value)) < len(value):
            return "duplicate entry"
        return self.check(value) if self.check else None

    def _refused(self, text: str, reason: str) -> ConfigError:
        shown = "[hidden]" if self.sensitive or _URL_WITH_LOGIN.search(text) else repr(text)
        return ConfigError(f"{self.name} cannot be {shown}: {reason}")


def key(
    name: str,
    type: Type,
    *,
    default: Value,
    doc: str,
    mode: Mode = Mode.READ_ONLY,
    at_least: float | None = None,
    at_most: float | None = None,
    one_of: tuple[str, ...] = (),
    check: Callable[[Any], str | None] | None = None,
    synonyms: tuple[str, ...] = (),
    differs: str = "",
    idle: str = "",
    per_listener: bool = False,
) -> Any:
    """Declare a row; the table turns it into an attribute that holds the value.

    `differs` explains a default or bound that is not Kafka's, for the reference page. `idle` explains
    why a key has no effect although it is accepted and shown, because tools set or expect it.
    `per_listener` allows other values for single listeners (`listener.name.NAME.KEY`).
    """
    row = Key(name, type, default, doc)
    row.at_least, row.at_most, row.one_of, row.check = at_least, at_most, one_of, check
    row.synonyms, row.mode, row.differs, row.idle = synonyms, mode, differs, idle
    row.per_listener = per_listener
    return row


class SettingsBase:
    """The base of a table: immutable values, one attribute per row.

    A table that names other tables as its bases has their rows first, in that order.
    """

    KEYS: ClassVar[Mapping[str, Key]] = {}

    def __init_subclass__(cls) -> None:
        rows = {n: row for n, row in vars(cls).items() if isinstance(row, Key)}
        for attribute, row in rows.items():
            if attribute != row.attribute:
                raise TypeError(f"{row.name} must be declared as {row.attribute}")
            delattr(cls, attribute)  # so that reading goes straight to the instance
        tables = [base.KEYS.values() for base in cls.__bases__ if issubclass(base, SettingsBase)]
        cls.KEYS = {row.name: row for table in [*tables, rows.values()] for row in table}

    def __init__(self, values: Mapping[str, Value]) -> None:
        for row in self.KEYS.values():
            self.__dict__[row.attribute] = values[row.name]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings do not change; make new ones to alter {name}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def key(cls, name: str) -> Key:
        """The row called `name`; the ConfigError for an unknown one suggests the nearest name."""
        row = cls.KEYS.get(name)
        if row is None:
            shown = name if name.isprintable() else repr(name)
            raise ConfigError(f"unknown config {shown}{nearest(name, cls.KEYS)}")
        return row

    @classmethod
    def parse(cls, overrides: Mapping[str, str]) -> dict[str, Value]:
        """Parse `overrides`; ConfigError for the first unknown or bad one."""
        return {name: cls.key(name).parse(text) for name, text in overrides.items()}


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """A hint with the closest known name, or an empty text."""
    from difflib import get_close_matches  # slow to import, and needed only after a typo

    close = get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in {"true", "false"}:
        raise ValueError
    return lowered == "true"


def _integer(text: str) -> int:
    if not _INTEGER.match(text):
        raise ValueError
    return int(text)


def _double(text: str) -> float:
    value = float(text)
    if value != value:
        raise ValueError
    return value


def _double_text(value: float) -> str:
    """The number as Java prints it: 1.0E-4 for 0.0001, 1.0E7 for 10000000.0."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    digits, _, exponent = f"{Decimal(str(value)).normalize():E}".partition("E")
    if not exponent:
        return digits  # infinite
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


_PARSERS: dict[Type, Callable[[str], Value]] = {
    BOOLEAN: _boolean, STRING: str, INT: _integer, SHORT: _integer, LONG: _integer,
    DOUBLE: _double, LIST: _list, CLASS: str, PASSWORD: str,
}  # fmt: skip
