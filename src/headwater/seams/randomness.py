"""Randomness: ids, nonces and jitter come from here, so that a seed can replay them."""

import os
import random
from typing import Protocol

from headwater.model import Uuid


class Randomness(Protocol):
    """A source of random numbers."""

    def uuid(self) -> Uuid:
        """Return a new random id (version 4), never zero."""

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""


class SystemRandomness:
    """The operating system's randomness."""

    def uuid(self) -> Uuid:
        """Return a new random id, never one that starts with '-': tools take that for an option."""
        while True:
            raw = bytearray(os.urandom(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if raw[0] >> 2 != 62:
                return bytes(raw)

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        return random.SystemRandom().randrange(limit)
