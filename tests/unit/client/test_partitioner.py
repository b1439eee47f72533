"""Java's own vectors, and chances that can be counted."""

from collections import Counter

import pytest

from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.producer.partitioner import checked, partition_of_key, pick_sticky
from headwater.records.codec import murmur2

# From UtilsTest.testMurmur2 of Apache Kafka.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), VECTORS.items())
def test_a_key_goes_where_java_puts_it(key, hashed) -> None:
    assert murmur2(key) == hashed
    assert partition_of_key(key, 17) == (hashed & 0x7FFFFFFF) % 17


def test_every_draw_of_an_adaptive_pick_is_shared_by_the_lengths_of_queues() -> None:
    loads = [0, 3, 1]
    chances = sum(max(loads) + 1 - load for load in loads)
    picks = Counter(pick_sticky(loads, True, lambda _, d=draw: d) for draw in range(chances))
    assert picks == {0: 4, 1: 1, 2: 3}


def test_a_plain_pick_looks_at_no_lengths() -> None:
    picks = Counter(pick_sticky([0, 9, 9], False, lambda _, d=draw: d) for draw in range(3))
    assert picks == {0: 1, 1: 1, 2: 1}


def test_one_partition_needs_no_draw() -> None:
    assert pick_sticky([7], True, lambda _: pytest.fail("drawn")) == 0


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_is_not_there_is_named(partition) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=f"0 to 2, not {partition}"):
        checked("t", partition, 3)
