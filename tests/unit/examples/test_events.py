"""The made-up evening: repeatable, counted rightly, and with the troubles that it promises."""

import json
from collections import Counter

import pytest
from examples.behavior.events import FESTIVAL_MINUTES, HOURS, LEVELS, Shop, Truth

from tests.unit.examples.recount import recount

START_MS = 1_700_000_000_000 // 60_000 * 60_000
EVENTS = 10_000


@pytest.fixture(scope="module")
def evening():
    truth = Truth()
    return Shop(3).arrivals(EVENTS, START_MS, truth), truth


@pytest.fixture(scope="module")
def whole_events(evening):
    """Those that are whole JSON."""
    arrivals, _ = evening
    return [json.loads(arrival.value) for arrival in arrivals if arrival.value.endswith(b"}")]


def most_of(names, share):
    """What part of all goes to this share of the names, the busiest ones."""
    counts = sorted(Counter(names).values(), reverse=True)
    return sum(counts[: round(len(counts) * share)]) / sum(counts)


def test_the_same_seed_makes_the_same_evening_and_another_seed_another(evening):
    arrivals, truth = evening
    again = Truth()
    assert Shop(3).arrivals(EVENTS, START_MS, again) == arrivals
    assert again == truth
    assert Shop(4).arrivals(EVENTS, START_MS, Truth()) != arrivals


def test_what_was_counted_while_making_is_what_a_stranger_counts(evening):
    arrivals, truth = evening
    assert recount(arrivals) == truth
    assert len(arrivals) == truth.arrivals == EVENTS + truth.repeated
    assert min(truth.repeated, truth.too_late, *truth.broken.values()) > 0
    assert len(truth.broken) == 5


def test_records_come_in_order_of_arrival_and_carry_their_user_as_key(evening):
    arrivals, _ = evening
    assert [arrival.time_ms for arrival in arrivals] == sorted(each.time_ms for each in arrivals)
    for arrival in arrivals:
        if arrival.value.endswith(b"}"):
            user = json.loads(arrival.value).get("user_id")
            assert arrival.key == (user.encode() if user else None)


def test_few_people_and_few_items_make_most_of_the_traffic(whole_events):
    assert most_of((event.get("user_id") for event in whole_events), 0.2) > 0.4
    assert most_of((event["item_id"] for event in whole_events), 0.2) > 0.5


def test_the_festival_brings_about_five_times_the_visits(evening):
    arrivals, _ = evening
    minutes = Counter((arrival.time_ms - START_MS) // 60_000 for arrival in arrivals)
    peak = sum(minutes[minute] for minute in FESTIVAL_MINUTES) / len(FESTIVAL_MINUTES)
    others = [minute for minute in range(HOURS * 60) if minute not in FESTIVAL_MINUTES]
    calm = sum(minutes[minute] for minute in others) / len(others)
    assert 3 < peak / calm < 6


def test_profiles_are_sent_again_when_they_change_and_ended_when_they_are_deleted():
    profiles = list(Shop(3, users=200).profiles(START_MS))
    times = Counter(profile.key for profile in profiles)
    assert len(times) == 200
    assert sorted(times.values()) == [1] * 178 + [2] * 22
    assert sum(profile.value is None for profile in profiles) == 2
    levels = {json.loads(profile.value)["level"] for profile in profiles if profile.value}
    assert levels == set(LEVELS)
