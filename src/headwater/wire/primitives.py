"""The smallest pieces of the wire: unsigned varints, tag sections, runs of integers.

Generated code is inline on its fast path and calls these functions on its slow path. Nothing here
trusts a length: each is checked against the bytes left.
"""

import struct
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

_MAX_VARINT_SHIFT = 28
_READY = 64


class _NoItems(list[Any]):
    """The empty array that all requests decoded in steps share; nothing can be added to it."""

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("an array of a request that was decoded in steps cannot be added to")

    append = extend = insert = __iadd__ = _refuse


NO_ITEMS: list[Any] = _NoItems()


class WireError(ValueError):
    """Bytes that are not such a message, or a value that the wire cannot carry."""


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return the unsigned varint at `pos` (at most five bytes) and the position after it."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        if shift == _MAX_VARINT_SHIFT:
            raise WireError(f"a varint of more than five bytes at byte {pos}")
        shift += 7


def finish_uvarint(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint whose `first` byte (over 127) is just before `pos`."""
    rest, pos = read_uvarint(buf, pos)
    if rest >> 28:
        raise WireError(f"a varint of more than five bytes at byte {pos}")
    return rest << 7 | first & 0x7F, pos


def uvarint(value: int) -> bytes:
    """Return `value` as an unsigned varint; two and three bytes, the usual sizes of batches, are fast."""
    if 0x80 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 0x4000 <= value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


LONGEST_STRING = 0x7FFF
"""Bytes of a string, whatever the length before it can say; bytes and records may be longer."""
MAX_TAGS = 64
"""No message has more tagged fields; skipping millions of them would hold the loop for seconds
(CVE-2026-111115)."""


def skip_tags(buf: Buffer, pos: int, end: int, first: int) -> int:
    """Skip a tag section whose count begins with byte `first`, and return the position after it."""
    count, pos = (first, pos) if first < 0x80 else finish_uvarint(buf, pos, first)
    if count > MAX_TAGS:
        raise too_many("tagged fields", count, pos, end)
    for _ in range(count):
        pos = pos + 1 if buf[pos] < 0x80 else read_uvarint(buf, pos)[1]
        size = buf[pos]
        pos += 1
        if size > 0x7F:
            size, pos = finish_uvarint(buf, pos, size)
        pos += size
        if pos > end:
            raise cut_short("a tagged field", pos, end)
    return pos


def too_many(what: str, count: int, pos: int, end: int) -> WireError:
    """Return the error for a count of more items than the bytes left can hold."""
    return WireError(f"{what}: a count of {count} with {max(0, end - pos)} bytes left")


def beyond_limit(what: str, limit: int) -> WireError:
    """Return the error for a message with more array items than its reader accepts."""
    return WireError(f"{what}: the message has more than {limit} array items")


def cut_short(what: str, need: int, end: int) -> WireError:
    """Return the error for a value that reaches past the end."""
    return WireError(f"{what}: cut short, {need - end} bytes are missing")


def too_long(what: str, size: int) -> WireError:
    """Return the error for a string of more bytes than Kafka writes."""
    return WireError(f"{what}: a string of {size} bytes, at most {LONGEST_STRING} are allowed")


def is_null(what: str) -> WireError:
    """Return the error for a null that the version does not allow."""
    return WireError(f"{what}: null is not allowed here")


class Packers(dict[int, Callable[..., Any]]):
    """Struct methods for `count` items of one code, made on first use.

    Those for more than a few dozen items are rare and are not kept, so that the table stays small
    whatever a client sends.
    """

    def __init__(self, prefix: str, code: str, method: str) -> None:
        super().__init__()
        self._prefix = prefix
        self._code = code
        self._method = method

    def __missing__(self, count: int) -> Callable[..., Any]:
        layout = struct.Struct(f">{self._prefix}{count}{self._code}")
        made: Callable[..., Any] = getattr(layout, self._method)
        if count < _READY:
            self[count] = made
        return made
