"""Jute, ZooKeeper's serialization: big-endian numbers, length-prefixed strings and vectors.

Decoding never trusts a length: a read past the end of the frame raises MalformedFrame.
"""

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


class MalformedFrame(ValueError):
    """The bytes violate the protocol; the connection that sent them is closed."""


class Decoder:
    """Decodes one frame from front to back."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _next(self, size: int) -> int:
        at = self._at
        if size < 0 or at + size > len(self._data):
            raise MalformedFrame(
                f"a field of {size} bytes at {at} in a frame of {len(self._data)} bytes"
            )
        self._at = at + size
        return at

    @property
    def remaining(self) -> int:
        return len(self._data) - self._at

    def int32(self) -> int:
        value: int = _INT.unpack_from(self._data, self._next(4))[0]
        return value

    def int64(self) -> int:
        value: int = _LONG.unpack_from(self._data, self._next(8))[0]
        return value

    def boolean(self) -> bool:
        return self._data[self._next(1)] != 0

    def buffer(self) -> bytes:
        """Return bytes; a length of -1, ZooKeeper's null, gives empty bytes."""
        size = self.int32()
        if size == -1:
            return b""
        at = self._next(size)
        return self._data[at : at + size]

    def text(self) -> str:
        try:
            return self.buffer().decode()
        except UnicodeDecodeError as broken:
            raise MalformedFrame("a string is not UTF-8") from broken

    def vector(self, item: Callable[[], T]) -> list[T]:
        count = self.int32()
        if count > self.remaining:
            raise MalformedFrame(f"{count} items in {self.remaining} bytes")
        return [item() for _ in range(count)]


class Encoder:
    """Collects the fields of one frame."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def int32(self, value: int) -> "Encoder":
        self._parts.append(_INT.pack(value))
        return self

    def int64(self, value: int) -> "Encoder":
        self._parts.append(_LONG.pack(value))
        return self

    def boolean(self, value: bool) -> "Encoder":
        self._parts.append(b"\1" if value else b"\0")
        return self

    def buffer(self, value: bytes) -> "Encoder":
        self._parts += (_INT.pack(len(value)), value)
        return self

    def text(self, value: str) -> "Encoder":
        return self.buffer(value.encode())

    def texts(self, values: Iterable[str]) -> "Encoder":
        listed = list(values)
        self.int32(len(listed))
        for value in listed:
            self.text(value)
        return self

    def raw(self, value: bytes) -> "Encoder":
        """Append bytes that are already encoded."""
        self._parts.append(value)
        return self

    def body(self) -> bytes:
        return b"".join(self._parts)

    def frame(self) -> bytes:
        """Return the collected fields, prefixed with their length."""
        body = self.body()
        return _INT.pack(len(body)) + body
