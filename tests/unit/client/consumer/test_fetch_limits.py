"""How much of a partition is asked for at a time."""

import pytest

from headwater.client.consumer.fetching.fetch_limits import FetchLimits
from headwater.config.client import ConsumerSettings

MIB = 1 << 20


def limits(**settings):
    return FetchLimits(ConsumerSettings.of({"bootstrap_servers": "127.0.0.1:1", **settings}))


@pytest.mark.parametrize(
    ("partitions", "most"), [(0, 2 * MIB), (1, 2 * MIB), (25, 2 * MIB), (40, 50 * MIB // 40)]
)
def test_few_partitions_send_more_than_the_default_within_the_limit_of_an_answer(partitions, most):
    assert limits().partition_bytes(partitions) == most
    assert most * partitions <= 50 * MIB


def test_many_partitions_send_the_default():
    assert limits().partition_bytes(1000) == MIB


@pytest.mark.parametrize("chosen", [700, MIB, 8 * MIB])
def test_a_limit_that_was_set_is_kept(chosen):
    found = limits(max_partition_fetch_bytes=chosen)
    assert found.partition_bytes(1) == found.partition_bytes(1000) == chosen
    assert found.room == 3 * chosen


def test_a_profile_may_ask_for_more():
    assert limits(profile="throughput").partition_bytes(1) == 4 * MIB


def test_what_waits_is_bound_by_the_setting():
    assert limits().room == 3 * MIB
