"""The hash by which Java's clients choose a partition: murmur2 over the bytes of a key.

Every client must place a key where all the others do, so this is a matter of format, not of taste:
partition = (murmur2(key) & 0x7fffffff) % partitions.
"""

from struct import Struct

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_BITS = 0xFFFFFFFF
_WORDS = [Struct(f"<{count}I").unpack_from for count in range(17)]
"""Readers of the whole words of keys up to 67 bytes; longer keys have theirs made when they come."""


def murmur2(key: bytes) -> int:
    """Java's `Utils.murmur2`: 32 bits with a sign."""
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
