"""The hash with which Java's clients choose a partition: murmur2 over the bytes of a key.

All clients must choose the same partition for a key, so the hash is part of the format:
partition = (murmur2(key) & 0x7fffffff) % partitions.
"""

from struct import Struct

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_BITS = 0xFFFFFFFF
_WORDS = [Struct(f"<{count}I").unpack_from for count in range(17)]
"""Readers of the whole words of keys up to 67 bytes; those of longer keys are made on demand."""


def murmur2(key: bytes) -> int:
    """Return Java's `Utils.murmur2`: a signed 32-bit number."""
    size = len(key)
    count = size >> 2
    words = _WORDS[count] if count < len(_WORDS) else Struct(f"<{count}I").unpack_from
    state = _SEED ^ size
    for word in words(key):
        mixed = word * _MIX & _BITS
        state = (state * _MIX ^ (mixed ^ mixed >> 24) * _MIX) & _BITS
    if size & 3:
        rest = int.from_bytes(key[size & ~3 :], "little")
        state = (state ^ rest) * _MIX & _BITS
    state = (state ^ state >> 13) * _MIX & _BITS
    state ^= state >> 15
    return state - (1 << 32) if state >> 31 else state
