"""Random messages of any version, drawn from the schemas themselves."""

from random import Random
from types import ModuleType
from typing import Any

from headwater.wire.fields import (
    BOOL,
    BYTES,
    OWN_TAGS,
    RECORDS,
    STRING,
    UUID,
    Array,
    Field,
    Fixed,
    Nested,
)
from headwater.wire.messages import (
    cluster,
    configs,
    consumer_protocol,
    control,
    fetch,
    groups,
    headers,
    internal,
    metadata,
    offsets,
    produce,
    producers,
    reassignments,
    tokens,
    topics,
    transactions,
)
from headwater.wire.schema import Struct

FAMILIES = (
    cluster,
    configs,
    consumer_protocol,
    control,
    fetch,
    groups,
    headers,
    internal,
    metadata,
    offsets,
    produce,
    producers,
    reassignments,
    tokens,
    topics,
    transactions,
)

_RANGES = {
    "b": (-(1 << 7), (1 << 7) - 1),
    "h": (-(1 << 15), (1 << 15) - 1),
    "i": (-(1 << 31), (1 << 31) - 1),
    "q": (-(1 << 63), (1 << 63) - 1),
    "H": (0, (1 << 16) - 1),
    "I": (0, (1 << 32) - 1),
}
_TEXTS = ("", "a", "topic-1", "größe", "名前", "\U0001f40b", "x" * 126, "y" * 127, "z" * 300)


def _messages(family: ModuleType) -> list[type[Struct]]:
    mine = [value for value in vars(family).values() if isinstance(value, type)]
    return [kind for kind in mine if kind.__module__ == family.__name__]


MESSAGES = [kind for family in FAMILIES for kind in _messages(family)]
VERSIONS = [(kind, version) for kind in MESSAGES for version in kind.__schema__.versions.all()]


def sample(kind: type[Struct], version: int, random: Random) -> Any:
    """A message with values only where `version` can carry them."""
    return kind(**{f.name: _field(f, version, random) for f in kafkas_fields(kind, version)})


def kafkas_fields(kind: type[Struct], version: int) -> list[Field]:
    """The fields of a version, without those that Kafka does not have."""
    held = [f for f in kind.__schema__.fields if f.versions.holds(version)]
    return [f for f in held if f.tag is None or f.tag < OWN_TAGS]


def _field(field: Field, version: int, random: Random) -> Any:
    if random.random() < 0.1 and field.nullable.holds(version):
        return None
    if random.random() < 0.15 and (field.default is not None or field.nullable.holds(version)):
        return field.fresh()
    return _value(field.type, version, random)


def _value(kind: Any, version: int, random: Random) -> Any:
    if isinstance(kind, Nested):
        return sample(kind.struct, version, random)
    if isinstance(kind, Array):
        count = random.choice((0, 1, 1, 2, 3, 130 if isinstance(kind.of, Fixed) else 2))
        return [_value(kind.of, version, random) for _ in range(count)]
    if kind is BOOL:
        return random.random() < 0.5
    if kind is UUID:
        return random.randbytes(16)
    if isinstance(kind, Fixed):
        return _number(kind.code, random)
    if kind is STRING:
        return random.choice(_TEXTS)
    content = random.randbytes(random.choice((0, 1, 20, 127, 200)))
    assert kind in (BYTES, RECORDS)
    return memoryview(content) if kind is RECORDS else content


def _number(code: str, random: Random) -> int | float:
    if code == "d":
        return random.uniform(-1e9, 1e9)
    lowest, highest = _RANGES[code]
    return random.choice((0, 1, lowest, highest, random.randint(lowest, highest)))
