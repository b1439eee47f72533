"""Zigzag varints, the numbers inside a record: small magnitudes of either sign take one byte.

(The varints of the protocol are unsigned: see `wire`.)
"""

from typing import Final

from headwater.errors import E, KafkaError
from headwater.records.batch import Buffer

INT32_BYTES: Final = 5
INT64_BYTES: Final = 10


def read_varint(buf: Buffer, pos: int, longest: int = INT32_BYTES) -> tuple[int, int]:
    """Return the number at `pos` and the position after it; IndexError if the buffer ends first.

    `longest` is INT32_BYTES or INT64_BYTES, the most bytes of the number. A number that needs more
    bits than the type has raises INVALID_RECORD.
    """
    byte = buf[pos]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), pos + 1
    value = byte & 0x7F | (buf[pos + 1] & 0x7F) << 7
    if buf[pos + 1] < 0x80:
        return value >> 1 ^ -(value & 1), pos + 2
    for index in range(2, longest):
        byte = buf[pos + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value >> (32 if longest == INT32_BYTES else 64):
                break
            return value >> 1 ^ -(value & 1), pos + index + 1
    raise KafkaError(E.INVALID_RECORD, f"the number at byte {pos} of the records is too long")


def write_varint(value: int) -> bytes:
    """Encode `value` in as few bytes as possible."""
    bits = value << 1 if value >= 0 else ~(value << 1)
    if bits < 0x80:
        return _ONE_BYTE[bits]
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


_ONE_BYTE: Final = [bytes((bits,)) for bits in range(0x80)]
