"""Every assignor, on any group: each partition to one member that wants it, and evenly."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.client.consumer.assignors import (
    CooperativeStickyAssignor,
    GroupMember,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from headwater.model import TopicPartition

TOPICS = ["a", "b", "c"]
_STICKY = StickyAssignor()

partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
topic_sets = st.frozensets(st.sampled_from(TOPICS), min_size=1)
groups = st.lists(topic_sets, min_size=1, max_size=6)
alike = st.integers(1, 6).flatmap(
    lambda size: topic_sets.map(lambda topics: [topics for _ in range(size)])
)


def members_of(wishes):
    return [GroupMember(f"m{number}", topics) for number, topics in enumerate(wishes)]


def everything(counts, members):
    wanted = frozenset().union(*(member.topics for member in members))
    return {
        TopicPartition(t, n) for t, count in counts.items() if t in wanted for n in range(count)
    }


def check_whole(counts, members, shares):
    given_out = [name for share in shares.values() for name in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == everything(counts, members)
    for member in members:
        assert {name.topic for name in shares[member.member_id]} <= member.topics


def after(members, shares, generation, told=_STICKY):
    """The members as they come to the next rebalance with what they got."""
    return [
        member._replace(
            owned=tuple(shares[member.member_id]),
            generation=generation,
            user_data=told.user_data(shares[member.member_id], generation),
        )
        for member in members
        if member.member_id in shares
    ]


@given(counts=partition_counts, wishes=groups)
def test_each_partition_goes_to_one_member_that_wants_it(counts, wishes) -> None:
    members = members_of(wishes)
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor()):
        check_whole(counts, members, assignor.assign(counts, members))


@given(counts=partition_counts, wishes=alike)
def test_members_that_want_the_same_differ_by_one_at_most(counts, wishes) -> None:
    members = members_of(wishes)
    for assignor in (RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor()):
        sizes = [len(share) for share in assignor.assign(counts, members).values()]
        assert max(sizes) - min(sizes) <= 1


@given(counts=partition_counts, wishes=groups)
def test_sticky_shares_cannot_be_evened_out_by_any_single_move(counts, wishes) -> None:
    members = members_of(wishes)
    shares = StickyAssignor().assign(counts, members)
    for giver in members:
        for name in shares[giver.member_id]:
            for taker in members:
                if name.topic in taker.topics:
                    assert len(shares[taker.member_id]) + 1 >= len(shares[giver.member_id])


@given(counts=partition_counts, wishes=alike, leaves=st.booleans())
def test_sticky_moves_no_more_than_it_must(counts, wishes, leaves) -> None:
    members = members_of(wishes)
    first = StickyAssignor().assign(counts, members)
    returning = after(members, first, 1)
    if leaves and len(returning) > 1:
        gone = returning.pop()
        must_move = len(first[gone.member_id])
    else:
        newcomer = GroupMember("new", wishes[0])
        returning.append(newcomer)
        must_move = len(everything(counts, members)) // len(returning)
    second = StickyAssignor().assign(counts, returning)
    check_whole(counts, returning, second)
    kept = sum(
        len(set(first.get(member.member_id, [])) & set(second[member.member_id]))
        for member in returning
    )
    assert kept >= len(everything(counts, members)) - must_move - len(returning)
    sizes = [len(share) for share in second.values()]
    assert max(sizes) - min(sizes) <= 1


@given(counts=partition_counts, wishes=groups, extra=topic_sets)
def test_cooperative_members_never_own_one_partition_twice(counts, wishes, extra) -> None:
    assignor = CooperativeStickyAssignor()
    members = members_of(wishes)
    owned = {member.member_id: [] for member in members} | {"new": []}
    members.append(GroupMember("new", extra))
    for generation in range(1, 6):
        told = after(members, owned, generation, assignor)
        shares = assignor.assign(counts, told)
        for member in told:
            for other in told:
                if other is not member:
                    assert not set(shares[member.member_id]) & set(owned[other.member_id])
        settled = shares == {key: sorted(value) for key, value in owned.items()}
        owned = {key: sorted(value) for key, value in shares.items()}
        if settled:
            break
    check_whole(counts, members, owned)


@given(counts=partition_counts, wishes=alike)
def test_a_claim_of_an_older_generation_yields_to_a_newer_one(counts, wishes) -> None:
    assignor = CooperativeStickyAssignor()
    members = members_of(wishes)
    everything_there = tuple(sorted(everything(counts, members)))
    claims = [
        member._replace(owned=everything_there, generation=number)
        for number, member in enumerate(members)
    ]
    shares = assignor.assign(counts, claims)
    given_out = [name for share in shares.values() for name in share]
    assert len(given_out) == len(set(given_out))
