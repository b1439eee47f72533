"""Fetch sessions by the rules of KIP-227."""

import itertools

import pytest

from headwater.broker.fetch_session import (
    EVICTION_MS,
    FINAL_EPOCH,
    FULL_EPOCH,
    PARTITIONS_PER_SLOT,
    FetchPartition,
    FetchSessionCache,
)
from headwater.errors import E, KafkaError

LAST_EPOCH = 2**31 - 1


def want(partition: int, offset: int = 0, topic: str | bytes = "t") -> FetchPartition:
    return FetchPartition((topic, partition), offset, 1000, -1, -1, -1)


def sessions(slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots, itertools.count(1))


def full(cache: FetchSessionCache, *partitions: int, now=0, old=0, by_id=False, privileged=False):
    wanted = [want(partition) for partition in partitions]
    return cache.begin(now, old, FULL_EPOCH, by_id, wanted, [], privileged)


def more(cache, turn, epoch, *partitions, forgotten=(), now=0, by_id=False):
    wanted = [want(partition) for partition in partitions]
    keys = [("t", partition) for partition in forgotten]
    return cache.begin(now, turn.session_id, epoch, by_id, wanted, keys)


def meant(turn) -> list[int]:
    return [wanted.key[1] for wanted in turn.partitions]


def refusal(call) -> E:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code


def test_a_full_fetch_begins_a_session_and_an_incremental_one_means_all_of_it():
    cache = sessions()
    first = full(cache, 0, 1, 2)
    assert first.session_id > 0
    assert not first.incremental
    second = more(cache, first, 1)
    assert second.incremental
    assert second.session_id == first.session_id
    assert meant(second) == [0, 1, 2]


def test_an_incremental_fetch_adds_changes_and_forgets():
    cache = sessions()
    first = full(cache, 0, 1)
    turn = cache.begin(0, first.session_id, 1, False, [want(1, 77), want(5)], [("t", 0)])
    assert [(wanted.key[1], wanted.fetch_offset) for wanted in turn.partitions] == [(1, 77), (5, 0)]


def test_each_fetch_needs_the_next_epoch():
    cache = sessions()
    first = full(cache, 0)
    more(cache, first, 1)
    for wrong in (1, 3):
        assert refusal(lambda w=wrong: more(cache, first, w)) is E.INVALID_FETCH_SESSION_EPOCH
    more(cache, first, 2)


def test_the_epoch_wraps_past_the_largest_number_to_one():
    cache = sessions()
    first = full(cache, 0)
    first.session.epoch = LAST_EPOCH
    more(cache, first, LAST_EPOCH)
    assert more(cache, first, 1).incremental


def test_an_unknown_session_is_refused():
    assert (
        refusal(lambda: sessions().begin(0, 99, 1, False, [], [])) is E.FETCH_SESSION_ID_NOT_FOUND
    )


def test_a_full_fetch_with_an_old_id_replaces_that_session():
    cache = sessions()
    first = full(cache, 0)
    second = full(cache, 1, old=first.session_id)
    assert second.session_id != first.session_id
    assert len(cache) == 1
    assert refusal(lambda: more(cache, first, 1)) is E.FETCH_SESSION_ID_NOT_FOUND


def test_the_final_epoch_ends_the_session_and_fetches_without_one():
    cache = sessions()
    first = full(cache, 0)
    last = more(cache, first, FINAL_EPOCH, 0)
    assert (last.session_id, last.incremental, meant(last)) == (0, False, [0])
    assert len(cache) == 0


def test_a_full_fetch_of_nothing_begins_a_session_that_can_be_filled():
    cache = sessions()
    assert full(cache).session_id != 0
    assert len(cache) == 1


def test_a_session_that_forgets_everything_ends():
    cache = sessions()
    first = full(cache, 0)
    last = more(cache, first, 1, forgotten=[0])
    assert (last.session_id, meant(last), len(cache)) == (0, [], 0)


def test_a_session_by_name_cannot_go_on_by_id_nor_the_other_way():
    cache = sessions()
    by_name, by_id = full(cache, 0), full(cache, 0, by_id=True)
    assert refusal(lambda: more(cache, by_name, 1, by_id=True)) is E.FETCH_SESSION_TOPIC_ID_ERROR
    assert refusal(lambda: more(cache, by_id, 1)) is E.FETCH_SESSION_TOPIC_ID_ERROR
    assert more(cache, by_name, 1).incremental, "the session itself is unharmed"


def test_ids_of_living_sessions_are_not_given_twice():
    cache = FetchSessionCache(10, iter([5, 5, 5, 6]))
    assert [full(cache, 0).session_id, full(cache, 0).session_id] == [5, 6]


# -- what an answer mentions


def test_an_incremental_answer_mentions_only_what_is_new():
    cache = sessions()
    first = full(cache, 0)
    (wanted,) = first.partitions
    assert first.mentions(wanted, 10, 0, news=False), "a full answer mentions all"
    second = more(cache, first, 1)
    assert not second.mentions(wanted, 10, 0, news=False)
    assert second.mentions(wanted, 11, 0, news=False), "the high watermark moved"
    assert second.mentions(wanted, 11, 3, news=False), "the log start moved"
    assert second.mentions(wanted, 11, 3, news=True), "records or an error"
    assert not second.mentions(wanted, 11, 3, news=False)


def test_partitions_that_got_bytes_go_to_the_end():
    cache = sessions()
    first = full(cache, 0, 1, 2)
    first.served([first.partitions[0]])
    assert meant(more(cache, first, 1)) == [1, 2, 0]


def test_a_partition_forgotten_meanwhile_is_not_brought_back_by_being_served():
    cache = sessions()
    first = full(cache, 0, 1)
    served = first.partitions[0]
    more(cache, first, 1, forgotten=[0])
    first.served([served])
    assert meant(more(cache, first, 2)) == [1]


# -- a full cache


def test_a_newcomer_without_merit_gets_no_session_which_is_legal():
    cache = sessions(slots=1)
    first = full(cache, 0, 1)
    assert full(cache, 0, 1).session_id == 0
    assert more(cache, first, 1).session_id == first.session_id


def test_an_idle_session_makes_room():
    cache = sessions(slots=1)
    first = full(cache, 0, 1)
    assert full(cache, 0, now=EVICTION_MS).session_id == 0
    assert full(cache, 0, now=EVICTION_MS + 1).session_id > 0
    assert cache.evictions == 1
    assert refusal(lambda: more(cache, first, 1)) is E.FETCH_SESSION_ID_NOT_FOUND


def test_a_larger_session_displaces_a_smaller_one():
    cache = sessions(slots=1)
    full(cache, 0)
    assert full(cache, 0, 1).session_id > 0
    assert len(cache) == 1


def test_use_keeps_a_session_young():
    cache = sessions(slots=2)
    first, second = full(cache, 0), full(cache, 0)
    more(cache, first, 1, now=EVICTION_MS)
    assert full(cache, 0, now=EVICTION_MS + 1).session_id > 0
    assert refusal(lambda: more(cache, second, 1)) is E.FETCH_SESSION_ID_NOT_FOUND
    assert more(cache, first, 2).incremental


def test_followers_displace_consumers_but_not_the_other_way():
    cache = sessions(slots=1)
    full(cache, 0, 1, 2)
    follower = full(cache, 0, privileged=True)
    assert follower.session_id > 0
    assert full(cache, 0, 1, 2, 3).session_id == 0


def test_a_request_with_a_partition_that_does_not_exist_gets_no_session():
    cache = sessions()
    wanted = [want(0), want(7)]
    turn = cache.begin(0, 0, FULL_EPOCH, False, wanted, [], exists=lambda key: key[1] < 5)
    assert (turn.session_id, meant(turn), len(cache)) == (0, [0, 7], 0)


def test_a_session_that_is_to_take_in_what_does_not_exist_ends():
    cache = sessions()
    first = full(cache, 0, 1)

    def add(epoch, partition):
        return cache.begin(
            0, first.session_id, epoch, False, [want(partition)], [], exists=lambda key: key[1] < 5
        )

    assert meant(add(1, 2)) == [0, 1, 2]
    assert refusal(lambda: add(2, 7)) == E.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partitions) == (0, 0)


def test_all_sessions_together_remember_so_many_partitions():
    cache = sessions(slots=2)
    most = 2 * PARTITIONS_PER_SLOT
    first = full(cache, *range(most - 1))
    assert full(cache, 0, 1).session_id == 0, "too many for the cache: none granted"
    small = full(cache, 0)
    assert small.session_id
    assert meant(more(cache, small, 1, 0)) == [0], "what is known already costs nothing"
    assert refusal(lambda: more(cache, small, 2, 1)) == E.FETCH_SESSION_ID_NOT_FOUND
    assert cache.partitions == most - 1
    more(cache, first, 1, forgotten=range(most - 3))
    assert cache.partitions == 2
    later = EVICTION_MS + 1
    assert full(cache, *range(most), now=later).session_id, "idle ones make room"
    assert (len(cache), cache.partitions) == (1, most)
