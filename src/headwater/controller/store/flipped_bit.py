"""Finds the one wrong bit that explains a wrong CRC-32.

A torn write lacks far more than a bit, so a single wrong bit is damage to data that was complete. What a
wrong bit changes in a checksum depends only on its distance from the end: each byte in between shifts
the change on. `flipped_bit` undoes these shifts from the end on, until the change is that of one bit.
"""

import zlib

_POLYNOMIAL = 0xEDB88320
_BITS = 0xFFFFFFFF


def _shifted(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = [_shifted(byte) for byte in range(256)]
_BY_TOP = {entry >> 24: byte for byte, entry in enumerate(_TABLE)}
_ONE_BIT = {_TABLE[1 << bit]: bit for bit in range(8)}
"""What a wrong bit in the last byte changes."""


def flipped_bit(data: bytes | bytearray, checksum: int) -> int | None:
    """Return the bit of `data` that is wrong if `checksum` is right; None unless one bit explains it."""
    change = zlib.crc32(data) ^ checksum
    for at in range(len(data) - 1, -1, -1):
        if change in _ONE_BIT:
            return 8 * at + _ONE_BIT[change]
        byte = _BY_TOP[change >> 24]
        change = (change ^ _TABLE[byte]) << 8 & _BITS | byte
    return None
