"""Asks kafka-python for the bytes of our messages."""

import importlib
import uuid
import warnings
from typing import Any

from headwater.wire.fields import UUID, Array, Nested
from headwater.wire.schema import Struct
from tests.unit.wire.samples import kafkas_fields

_HOMES = (
    "admin.cluster",
    "admin.configs",
    "admin.groups",
    "admin.topics",
    "admin.transactions",
    "consumer.fetch",
    "consumer.group",
    "consumer.metadata",
    "consumer.offsets",
    "metadata.api_versions",
    "metadata.find_coordinator",
    "metadata.metadata",
    "producer.produce",
    "producer.transaction",
)


def _classes() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own tables
        homes = [importlib.import_module(f"kafka.protocol.{home}") for home in _HOMES]
    return {
        name: value
        for home in homes
        for name, value in vars(home).items()
        if isinstance(value, type) and name.endswith(("Request", "Response"))
    }


CLASSES = _classes()


def knows(kind: type[Struct], version: int) -> bool:
    """Whether kafka-python has the message in this version."""
    theirs = CLASSES.get(kind.__name__)
    return theirs is not None and theirs.min_version <= version <= theirs.max_version


def written(message: Struct, version: int) -> bytes:
    """The message as kafka-python writes it."""
    theirs = CLASSES[type(message).__name__]
    return bytes(theirs(version=version, **_values(theirs, message, version)).encode())


def _values(theirs: Any, message: Struct, version: int) -> dict[str, Any]:
    """Their keywords for our values; their fields stand in the same order under other names."""
    their_fields = [f for f in theirs._struct.fields.values() if f.for_version_q(version)]
    our_fields = kafkas_fields(type(message), version)
    return {
        their.name: _value(their, our.type, getattr(message, our.name), version)
        for their, our in zip(their_fields, our_fields, strict=True)
        if our.tag is None or getattr(message, our.name) != our.default
    }


def _value(theirs: Any, kind: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, Nested):
        return theirs.data_class(version=version, **_values(theirs.data_class, value, version))
    if isinstance(kind, Array):
        return [_value(theirs, kind.of, item, version) for item in value]
    if kind is UUID:
        return uuid.UUID(bytes=value)
    if theirs.type_str == "bitfield":
        return {bit for bit in range(32) if value >> bit & 1}
    return value
