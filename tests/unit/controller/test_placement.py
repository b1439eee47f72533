"""Where replicas go: even over brokers, wide over racks, next to what is already there."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.controller.placement import Placement, Site, rack_problem


def spread(counts: Counter[int], brokers: list[int]) -> int:
    numbers = [counts[broker] for broker in brokers]
    return max(numbers) - min(numbers)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Site], int, int]:
    """Racks of equal size, a number of partitions, a replication factor."""
    racks = draw(st.integers(1, 4))
    per_rack = draw(st.integers(1, 4))
    ids = draw(st.permutations(range(racks * per_rack)))
    sites = [Site(broker, f"r{place % racks}") for place, broker in enumerate(ids)]
    return sites, draw(st.integers(1, 60)), draw(st.integers(1, racks * per_rack))


@given(clusters())
def test_replicas_are_distinct_and_span_as_many_racks_as_can_be(cluster):
    sites, partitions, factor = cluster
    racks = {site.broker_id: site.rack for site in sites}
    placement = Placement(sites, {})
    for _ in range(partitions):
        replicas = placement.next(factor)
        assert len(set(replicas)) == factor
        in_rack = Counter(racks[broker] for broker in replicas)
        assert len(in_rack) == min(len(set(racks.values())), factor)
        assert max(in_rack.values()) - min(in_rack.values()) <= 1


@given(clusters())
def test_leaders_and_replicas_are_spread_evenly(cluster):
    sites, partitions, factor = cluster
    brokers = [site.broker_id for site in sites]
    placement = Placement(sites, {})
    placed = [placement.next(factor) for _ in range(partitions)]
    assert spread(Counter(replicas[0] for replicas in placed), brokers) <= 1
    assert spread(Counter(broker for replicas in placed for broker in replicas), brokers) <= 2


def test_small_topics_go_where_least_is():
    load: dict[int, tuple[int, int]] = {}
    sites = [Site(0), Site(1), Site(2)]
    leaders = []
    for _ in range(6):
        (leader,) = Placement(sites, load).next(1)
        leaders.append(leader)
        led, held = load.get(leader, (0, 0))
        load[leader] = (led + 1, held + 1)
    assert leaders == [0, 1, 2, 0, 1, 2]


def test_added_partitions_take_the_present_ones_into_account():
    placement = Placement([Site(0), Site(1), Site(2)], {}, taken=[(0, 1), (1, 0)])
    assert placement.next(2)[0] == 2


def test_the_partitions_of_one_leader_are_followed_by_many():
    placement = Placement([Site(broker) for broker in range(5)], {})
    placed = [placement.next(2) for _ in range(20)]
    followers = {follower for leader, follower in placed if leader == 0}
    assert len(followers) >= 3


def test_more_replicas_than_brokers_cannot_be_placed():
    with pytest.raises(ValueError, match="2 replicas, 1 brokers"):
        Placement([Site(0)], {}).next(2)


@pytest.mark.parametrize(
    ("sites", "word"),
    [
        ([Site(0), Site(1)], None),
        ([Site(0, "a"), Site(1, "b")], None),
        ([Site(0, "a"), Site(1)], "without broker.rack"),
        ([Site(0, "a"), Site(1, "a"), Site(2, "b")], "unequal"),
    ],
)
def test_uneven_racks_are_reported(sites, word):
    problem = rack_problem(sites)
    assert (problem is None) if word is None else (word in problem)
