"""Asks kio for the bytes of our messages.

kio turns some numbers into richer types (errors, durations, dates) that cannot hold all of them:
`written` first changes our message to what kio can say.
"""

import dataclasses
import importlib
import io
import types
import typing
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

from headwater.wire.fields import UUID, Array, Nested
from headwater.wire.schema import Struct
from tests.unit.wire.samples import kafkas_fields

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 4_000_000_000_000
_LAST_ERROR = 100


def knows(kind: type[Struct], version: int) -> bool:
    """Whether kio has the message in this version."""
    return _entity(kind, version) is not None


def written(message: Struct, version: int) -> bytes:
    """The message as kio writes it, once it holds only what kio can say."""
    entity = _entity(type(message), version)
    out = io.BytesIO()
    entity_writer(entity)(out, _built(entity, message, version))
    return out.getvalue()


def _entity(kind: type[Struct], version: int) -> Any:
    name = kind.__name__
    part: Any = EntityType.data
    if name.endswith("Header"):
        part = EntityType.header
    elif kind.__schema__.api_key is not None:
        part = EntityType.request if name.endswith("Request") else EntityType.response
        name = name.removesuffix("Request").removesuffix("Response")
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
    path = schema_name_map.get(snake, {}).get(version, {}).get(part)
    if path is None:
        return None
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _built(entity: Any, message: Struct, version: int) -> Any:
    """kio's object; its fields stand in the same order under other names."""
    hints = typing.get_type_hints(entity)
    our_fields = kafkas_fields(type(message), version)
    values = {}
    for their, our in zip(dataclasses.fields(entity), our_fields, strict=True):
        said = their.metadata.get("kafka_type", "")
        if said in _BENT and getattr(message, our.name) is not None:
            setattr(message, our.name, _BENT[said](getattr(message, our.name)))
        value = getattr(message, our.name)
        values[their.name] = _value(said, hints[their.name], our.type, value, version)
    return entity(**values)


def _value(said: str, hint: Any, kind: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, Nested):
        return _built(_inner(hint), value, version)
    if isinstance(kind, Array):
        return tuple(_value(said, _inner(hint), kind.of, item, version) for item in value)
    if kind is UUID:
        return uuid.UUID(bytes=value) if any(value) else None
    return _RICHER.get(said, lambda plain: plain)(value)


def _inner(hint: Any) -> Any:
    """The entity inside `X | None` and `tuple[X, ...]`."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union, tuple):
        return _inner(typing.get_args(hint)[0])
    return hint


_BENT: dict[str, Callable[[int], int]] = {
    "error_code": lambda value: value % _LAST_ERROR,
    "timedelta_i64": lambda value: value % _LAST_MS,
    "datetime_i64": lambda value: value % _LAST_MS,
}
_RICHER: dict[str, Callable[[Any], Any]] = {
    "error_code": ErrorCode,
    "timedelta_i32": lambda value: timedelta(milliseconds=value),
    "timedelta_i64": lambda value: timedelta(milliseconds=value),
    "datetime_i64": lambda value: _EPOCH + timedelta(milliseconds=value),
    "records": bytes,
}
