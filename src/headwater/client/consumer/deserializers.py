"""Deserializers: functions from the bytes of keys and values to objects.

Each reads what the producer's serializer of the same name wrote. A null stays None and is never
passed to a deserializer.
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from headwater.client.consumer.fetching.completed_fetch import Reshape
from headwater.client.consumer.record import ConsumerRecord
from headwater.client.errors import SerializationError
from headwater.config.keys import ConfigError, nearest

if TYPE_CHECKING:
    import uuid

Deserializer = Callable[[bytes], Any]
DeserializerName = Literal["string", "bytes", "int", "long", "double", "uuid", "json"]

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")


def string(data: bytes) -> str:
    """UTF-8."""
    return data.decode()


def integer(data: bytes) -> int:
    """32 bits."""
    number: int = _INT.unpack(data)[0]
    return number


def long(data: bytes) -> int:
    """64 bits."""
    number: int = _LONG.unpack(data)[0]
    return number


def double(data: bytes) -> float:
    """64 bits."""
    number: float = _DOUBLE.unpack(data)[0]
    return number


def uuid_text(data: bytes) -> "uuid.UUID":
    """The 36 characters of a UUID."""
    import uuid  # imported here: most consumers need neither this nor JSON

    return uuid.UUID(data.decode())


def as_json(data: bytes) -> Any:
    """JSON in UTF-8."""
    import json

    return json.loads(data)


BY_NAME: dict[str, Deserializer | None] = {
    "string": string,
    "bytes": None,
    "int": integer,
    "long": long,
    "double": double,
    "uuid": uuid_text,
    "json": as_json,
}
"""The names that `key_deserializer` and `value_deserializer` accept."""


def deserializer(option: str, given: Deserializer | str | None) -> Deserializer | None:
    """Return the deserializer that `option` names; None if records stay bytes."""
    if not isinstance(given, str):
        if given is not None and not callable(given):
            raise ConfigError(f"{option} takes a function of bytes, or a name")
        return given
    if given not in BY_NAME:
        raise ConfigError(f"{option} knows no {given!r}{nearest(given, BY_NAME)}")
    return BY_NAME[given]


def reshaping(key: Deserializer | None, value: Deserializer | None) -> Reshape | None:
    """Return a function that deserializes a record; None if there is nothing to do."""
    if key is None and value is None:
        return None

    def reshape(record: ConsumerRecord[Any, Any]) -> ConsumerRecord[Any, Any]:
        what, raw = "key", record.key
        try:
            new_key = raw if key is None or raw is None else key(raw)
            what, raw = "value", record.value
            new_value = raw if value is None or raw is None else value(raw)
        except Exception as problem:
            raise SerializationError(
                f"the {what} of {record.topic}-{record.partition} at offset {record.offset} cannot "
                f"be deserialized ({type(problem).__name__}: {problem}); seek past it to continue"
            ) from problem
        return record._replace(key=new_key, value=new_value)

    return reshape
