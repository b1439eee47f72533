"""Chooses the partition of a record. Pure: randomness is passed in as a function.

An explicit number comes first, then the caller's own function, then murmur2 of the key over all
partitions, as in Java. Records without a key are sticky: they stay with one partition for a batch's
worth of bytes, then move to a random one, short queues more often than long ones (KIP-794).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.records.codec import NAME, murmur2

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""A custom partitioner: from topic, key, value and number of partitions to a partition."""


Below = Callable[[int], int]
"""Returns a random number from 0 to its argument, exclusive."""


key_hash: Callable[[bytes], int] = murmur2 if NAME == "compiled" else lru_cache(16_384)(murmur2)
"""Keys repeat, and in plain Python a cached hash is far cheaper than computing it."""


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition that Java's clients choose for `key`."""
    return (key_hash(key) & 0x7FFFFFFF) % partitions


def pick_sticky(loads: Sequence[int], adaptive: bool, below: Below) -> int:
    """Return the next partition for records without a key; `loads` are the lengths of the queues.

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
    """Return `partition` if the topic has it."""
    if not 0 <= partition < partitions:
        raise UnknownTopicOrPartitionError(
            f"{topic} has partitions 0 to {partitions - 1}, not {partition!r}"
        )
    return partition
