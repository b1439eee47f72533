"""A slow and simple codec that walks a schema field by field.

Tests compare the compiled code with it; a broker never runs it. Where the two differ, this one is
right.
"""

import struct
from typing import Any, TypeVar, cast

from headwater.wire.fields import BYTES, RECORDS, STRING, Array, Field, Fixed, Nested, WireType
from headwater.wire.primitives import (
    LONGEST_STRING,
    MAX_TAGS,
    Buffer,
    WireError,
    cut_short,
    is_null,
    read_uvarint,
    too_long,
    too_many,
    uvarint,
)
from headwater.wire.schema import Struct

S = TypeVar("S", bound=Struct)


def encode(message: Struct, version: int) -> bytes:
    """Return the message's bytes in `version`."""
    try:
        return _Writer(type(message), version).struct(message)
    except (struct.error, UnicodeEncodeError, TypeError, AttributeError) as wrong:
        raise WireError(f"{message.__schema__.name} v{version}: {wrong}") from wrong


def decode(kind: type[S], version: int, buf: Buffer, pos: int = 0) -> tuple[S, int]:
    """Return the message at `pos` and the position after it."""
    reader = _Reader(kind, version, buf, pos)
    try:
        return cast(S, reader.struct(kind)), reader.pos
    except (struct.error, IndexError, UnicodeDecodeError) as wrong:
        raise WireError(f"{kind.__schema__.name} v{version}: {wrong}") from wrong


class _Walk:
    """What reading and writing share: the version, and which fields it has."""

    def __init__(self, kind: type[Struct], version: int) -> None:
        schema = kind.__schema__
        if not schema.versions.holds(version):
            raise WireError(f"{schema.name} has no version {version}")
        self.version = version
        self.flexible = schema.flexible.holds(version)

    def compact(self, field: Field) -> bool:
        return self.flexible and not field.never_compact

    def plain_fields(self, kind: type[Struct]) -> list[Field]:
        fields = kind.__schema__.fields
        return [f for f in fields if f.tag is None and f.versions.holds(self.version)]

    def tagged_fields(self, kind: type[Struct]) -> dict[int, Field]:
        fields = kind.__schema__.fields
        found = {f.tag: f for f in fields if f.tag is not None and f.versions.holds(self.version)}
        return dict(sorted(found.items()))


class _Writer(_Walk):
    def struct(self, value: Struct) -> bytes:
        self.refuse_what_the_version_lacks(value)
        kind = type(value)
        out = b"".join(self.field(f, getattr(value, f.name)) for f in self.plain_fields(kind))
        return out + self.tags(value) if self.flexible else out

    def refuse_what_the_version_lacks(self, value: Struct) -> None:
        for field in value.__schema__.fields:
            absent = not field.versions.holds(self.version) and not field.ignorable
            if absent and getattr(value, field.name) != field.default:
                name = f"{value.__schema__.name}.{field.name}"
                raise WireError(f"{name}: version {self.version} cannot carry it")

    def tags(self, value: Struct) -> bytes:
        out = []
        for tag, field in self.tagged_fields(type(value)).items():
            content = getattr(value, field.name)
            if content != field.default:
                body = self.field(field, content)
                out.append(uvarint(tag) + uvarint(len(body)) + body)
        return uvarint(len(out)) + b"".join(out)

    def field(self, field: Field, value: Any) -> bytes:
        if value is None:
            if not field.nullable.holds(self.version):
                raise is_null(field.name)
            return self.null(field)
        if isinstance(field.type, Nested) and field.nullable.holds(self.version):
            return b"\x01" + self.struct(value)
        return self.value(field.type, value, self.compact(field))

    def null(self, field: Field) -> bytes:
        if isinstance(field.type, Nested):
            return b"\xff" if field.tag is None else b"\x00"
        if self.compact(field):
            return b"\x00"
        return b"\xff\xff" if field.type is STRING else b"\xff\xff\xff\xff"

    def value(self, kind: WireType, value: Any, compact: bool) -> bytes:
        if isinstance(kind, Nested):
            return self.struct(value)
        if isinstance(kind, Fixed):
            return struct.pack(">" + kind.code, self.checked(kind, value))
        if isinstance(kind, Array):
            items = b"".join(self.value(kind.of, item, compact) for item in value)
            return self.length("i", len(value), compact) + items
        if kind is STRING:
            text: bytes = value.encode()
            return self.length("h", len(text), compact) + text
        content = b"".join(value) if isinstance(value, list) else bytes(value)
        return self.length("i", len(content), compact) + content

    def checked(self, kind: Fixed, value: Any) -> Any:
        if kind.code == "16s" and len(value) != 16:
            raise WireError(f"a uuid of {len(value)} bytes")
        return value

    def length(self, code: str, count: int, compact: bool) -> bytes:
        return uvarint(count + 1) if compact else struct.pack(">" + code, count)


class _Reader(_Walk):
    def __init__(self, kind: type[Struct], version: int, buf: Buffer, pos: int) -> None:
        super().__init__(kind, version)
        self._limits_strings = kind.__schema__.limits_strings
        self.view = memoryview(buf)
        self.pos = pos
        self.end = len(buf)

    def struct(self, kind: type[Struct]) -> Struct:
        values = {f.name: self.field(f) for f in self.plain_fields(kind)}
        if self.flexible:
            values |= self.tags(kind)
        return kind(**values)

    def tags(self, kind: type[Struct]) -> dict[str, Any]:
        known, found = self.tagged_fields(kind), {}
        count = self.uvarint()
        if count > MAX_TAGS:
            raise too_many("tagged fields", count, self.pos, self.end)
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            after = self.pos + self.room("a tagged field", size)
            if tag in known:
                found[known[tag].name] = self.field(known[tag])
            else:
                self.pos = after
            if self.pos != after:
                raise WireError(f"tagged field {tag}: its size is not the {size} bytes it states")
        return found

    def field(self, field: Field) -> Any:
        nullable = field.nullable.holds(self.version)
        if isinstance(field.type, Nested) and nullable:
            null_up_to = -1 if field.tag is None else 0
            return self.struct(field.type.struct) if self.fixed("b") > null_up_to else None
        value = self.value(field.type, self.compact(field))
        if value is None and not nullable:
            raise is_null(field.name)
        return value

    def value(self, kind: WireType, compact: bool) -> Any:
        if isinstance(kind, Nested):
            return self.struct(kind.struct)
        if isinstance(kind, Fixed):
            return self.fixed(kind.code)
        length = self.length("h" if kind is STRING else "i", compact)
        if length < 0:
            return None
        if isinstance(kind, Array):
            return self.items(kind, length, compact)
        if kind is STRING and length > LONGEST_STRING and self._limits_strings:
            raise too_long("a string", length)
        content = self.view[self.pos : self.pos + self.room(kind.name, length)]
        self.pos += length
        if kind is RECORDS:
            return content
        return bytes(content) if kind is BYTES else str(content, "utf-8")

    def items(self, kind: Array, count: int, compact: bool) -> list[Any]:
        if count > self.end - self.pos:
            raise too_many("an array", count, self.pos, self.end)
        found = [self.value(kind.of, compact) for _ in range(count)]
        if None in found:
            raise is_null("an item of an array")
        return found

    def fixed(self, code: str) -> Any:
        (value,) = struct.unpack_from(">" + code, self.view, self.pos)
        self.pos += struct.calcsize(">" + code)
        return value

    def length(self, code: str, compact: bool) -> int:
        return self.uvarint() - 1 if compact else cast(int, self.fixed(code))

    def uvarint(self) -> int:
        value, self.pos = read_uvarint(self.view, self.pos)
        return value

    def room(self, what: str, size: int) -> int:
        if self.pos + size > self.end:
            raise cut_short(what, self.pos + size, self.end)
        return size
