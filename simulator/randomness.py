"""Random numbers from a seed: each part of a run has its own stream.

Streams are named, so that one more draw in the network does not change what the disk does.
"""

import random  # noqa: TID251 - this is the simulated door to chance

from headwater.model import Uuid

Stream = random.Random


def stream(seed: int, name: str) -> Stream:
    """Return the random numbers of one part of the run with this seed."""
    return random.Random(f"{seed}/{name}")


class SimRandomness:
    """A broker's ids and jitter."""

    def __init__(self, source: Stream) -> None:
        self._source = source

    def uuid(self) -> Uuid:
        """Return a random id whose text never begins with '-'."""
        raw = bytearray(self._source.randbytes(16))
        raw[0] &= 0x7F
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        return self._source.randrange(limit)
