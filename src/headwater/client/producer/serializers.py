"""Serializers: functions from objects to the bytes of keys and values.

Numbers are big endian, as in Kafka's own serializers. None stays None: a null.
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from headwater.client.errors import SerializationError
from headwater.config.keys import ConfigError, nearest

if TYPE_CHECKING:
    import uuid

Serializer = Callable[[Any], bytes | None]
SerializerName = Literal["string", "bytes", "int", "long", "double", "uuid", "json"]

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")


def string(value: str) -> bytes:
    """UTF-8."""
    return value.encode()


def raw(value: bytes | bytearray | memoryview) -> bytes:
    """Bytes as they are."""
    return bytes(value)


def integer(value: int) -> bytes:
    """32 bits."""
    return _INT.pack(value)


def long(value: int) -> bytes:
    """64 bits."""
    return _LONG.pack(value)


def double(value: float) -> bytes:
    """64 bits."""
    return _DOUBLE.pack(value)


def uuid_text(value: "uuid.UUID") -> bytes:
    """The 36 characters of a UUID."""
    return str(value).encode()


def as_json(value: Any) -> bytes:
    """JSON without blanks, in UTF-8."""
    import json  # imported here: most producers do not need it

    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


BY_NAME: dict[str, Serializer] = {
    "string": string,
    "bytes": raw,
    "int": integer,
    "long": long,
    "double": double,
    "uuid": uuid_text,
    "json": as_json,
}
"""The names that `key_serializer` and `value_serializer` accept."""


def named_serializer(name: str, given: Serializer | str | None) -> Serializer | None:
    """Return the serializer that a setting names; it may also be a function."""
    if given is None or callable(given):
        return given
    found = BY_NAME.get(given)
    if found is None:
        raise ConfigError(
            f"{name} is a function or one of {', '.join(BY_NAME)}, not {given!r}"
            f"{nearest(str(given), BY_NAME)}"
        )
    return found


def serialized(what: str, serialize: Serializer | None, value: Any, topic: str) -> bytes | None:
    """Return the bytes of a key or value; SerializationError names it and the topic."""
    if value is None:
        return None
    if serialize is not None:
        try:
            value = serialize(value)
        except Exception as fault:
            raise SerializationError(
                f"the {what} of a record for {topic} could not be serialized: {fault!r}"
            ) from fault
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise SerializationError(
        f"the {what} of a record for {topic} is {type(value).__name__}, not bytes: set "
        f"{what}_serializer ('string', 'json', ... or a function)"
    )
