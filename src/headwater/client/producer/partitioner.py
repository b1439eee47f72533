"""Which partition a record goes to. Pure: chance comes in as a function.

Explicit number, else the caller's own function, else murmur2 of the key over all partitions (as
every Java client does it), else sticky: records without a key stay with one partition until a
batch's worth of bytes went there, then move to one picked by chance, short queues more often than
long ones (KIP-794).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.records.codec import NAME, murmur2

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""A partitioner of the caller's: topic, key, value, number of partitions; gives the partition."""


Below = Callable[[int], int]
"""Draws a number from 0 up to, and not including, its argument."""


key_hash: Callable[[bytes], int] = murmur2 if NAME == "compiled" else lru_cache(16_384)(murmur2)
"""Keys come again, and in plain Python to remember a hash is far cheaper than to work it out."""


def partition_of_key(key: bytes, partitions: int) -> int:
    """Where Java's clients put `key`."""
    return (key_hash(key) & 0x7FFFFFFF) % partitions


def pick_sticky(loads: Sequence[int], adaptive: bool, below: Below) -> int:
    """The next partition for records without a key; `loads` are the lengths of the queues.

    A partition whose queue is shorter by n than the longest is n + 1 times as likely.
    """
    if len(loads) == 1:
        return 0
    if not adaptive:
        return below(len(loads))
    longest = max(loads)
    chances = list(accumulate(longest + 1 - load for load in loads))
    draw = below(chances[-1])
    return next(place for place, chance in enumerate(chances) if draw < chance)


def checked(topic: str, partition: int, partitions: int) -> int:
    """`partition`, if the topic has it."""
    if not 0 <= partition < partitions:
        raise UnknownTopicOrPartitionError(
            f"{topic} has partitions 0 to {partitions - 1}, not {partition!r}"
        )
    return partition
