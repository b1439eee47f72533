"""What a consumer wants and has."""

import pytest

from headwater.client.consumer.partition_state import PartitionState
from headwater.client.consumer.subscription import Subscription, SubscriptionType
from headwater.client.errors import IllegalStateError
from headwater.model import LATEST, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_places_that_stay_keep_their_positions() -> None:
    wish = Subscription()
    wish.assign([A, B])
    wish.state_of(A).seek(5)
    (added,) = wish.assign([A, TopicPartition("u", 0)])
    assert added.key == TopicPartition("u", 0)
    assert wish.state_of(A).position == 5
    with pytest.raises(IllegalStateError, match=r"t-1 is not assigned"):
        wish.state_of(B)


def test_the_three_ways_exclude_each_other_until_unsubscribed() -> None:
    wish = Subscription()
    wish.subscribe(["b", "a", "a"])
    assert wish.topics == ("a", "b")
    for other in (lambda: wish.assign([A]), lambda: wish.subscribe_pattern("x")):
        with pytest.raises(IllegalStateError, match=r"topics by name.*unsubscribe"):
            other()
    wish.unsubscribe()
    assert wish.type is SubscriptionType.NONE
    wish.subscribe_pattern("a.*")
    assert wish.match(["ab", "ba", "a"])
    assert wish.topics == ("a", "ab")
    assert not wish.match(["a", "ab"])


def test_one_name_in_place_of_a_list_and_impossible_names_are_refused() -> None:
    wish = Subscription()
    with pytest.raises(TypeError, match=r"subscribe\(\['t'\]\)"):
        wish.subscribe("t")
    with pytest.raises(ValueError, match="characters"):
        wish.subscribe(["a b"])


def test_a_jump_makes_what_was_fetched_stale_and_frees_its_room() -> None:
    state = PartitionState(A)
    state.seek(0)
    state.fetched, state.drained = 100, 40
    assert state.buffered == 60
    before = state.version
    state.seek_to_timestamp(LATEST)
    assert (state.buffered, state.position, state.reset) == (0, None, LATEST)
    assert state.version > before


def test_lag_and_lead_need_both_ends() -> None:
    state = PartitionState(A)
    assert (state.lag(False), state.lead()) == (None, None)
    state.seek(30)
    state.update_ends(high_watermark=100, last_stable=80, log_start=10)
    assert (state.lag(False), state.lag(True), state.lead()) == (70, 50, 20)
