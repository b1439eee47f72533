"""Chance from a seed: each part of a run draws from a stream of its own.

Streams are named, so that one more draw in the network does not change what the disk does.
"""

import random  # noqa: TID251 - this is the simulated door to chance

from headwater.model import Uuid

Stream = random.Random


def stream(seed: int, name: str) -> Stream:
    """The random numbers that one part of the run with this seed draws."""
    return random.Random(f"{seed}/{name}")


class SimRandomness:
    """A broker's ids and jitter."""

    def __init__(self, source: Stream) -> None:
        self._source = source

    def uuid(self) -> Uuid:
        """An id that looks like a random one and never begins with '-' as text."""
        raw = bytearray(self._source.randbytes(16))
        raw[0] &= 0x7F
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        return self._source.randrange(limit)
