"""Who is in a group: one leader while there are members, one member per instance id."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.coordination.groups.commands import Join
from headwater.coordination.groups.roster import Member, Roster


def member(member_id, instance=None, protocols=(("range", b""),)):
    return Member(member_id, instance, "c", "/h", 10, 20, protocols)


def roster_of(*members):
    roster = Roster()
    for each in members:
        roster.add(each)
    return roster


def test_when_the_leader_goes_the_next_oldest_leads():
    roster = roster_of(member("a"), member("b"), member("c"))
    roster.remove("a")
    assert roster.leader == "b"
    roster.remove("c")
    roster.remove("b")
    assert roster.leader is None


def test_a_replaced_static_member_keeps_its_place():
    roster = roster_of(member("a"), member("b", "i"), member("c"))
    roster.replace("b", "b2")
    assert list(roster.members) == ["a", "b2", "c"]
    assert roster.static_member_id("i") == "b2"
    roster.remove("b2")
    assert roster.static_member_id("i") is None


def test_a_tie_of_votes_goes_to_the_choice_of_the_oldest():
    both = (("x", b""), ("y", b""))
    roster = roster_of(member("a", protocols=both), member("b", protocols=both[::-1]))
    assert roster.choose_protocol() == "x"


def test_without_members_nothing_is_supported():
    assert Roster().candidates() == set()
    assert Roster().rebalance_timeout_ms() == 0


def recounted(roster):
    """What a walk over the members says."""
    waiting = sum(one.join_token is not None for one in roster.members.values())
    supported = [{name for name, _ in one.protocols} for one in roster.members.values()]
    return waiting, set.intersection(*supported) if supported else set()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "update", "answer", "remove", "replace"]),
            st.integers(0, 5),
            st.sets(st.sampled_from("xyz"), min_size=1),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_counts_equal_a_walk_over_the_members(steps):
    roster = Roster()
    for number, (what, who, protocols, waits) in enumerate(steps):
        name = f"m{who}"
        known = tuple((protocol, b"") for protocol in sorted(protocols))
        if what == "add" and name not in roster:
            new = member(name, protocols=known)
            new.join_token = number if waits else None
            roster.add(new)
        elif name not in roster:
            continue
        elif what == "update":
            join = Join("g", name, None, "c", known, 1, 1, "c", "/h", False, False)
            roster.take_join_token(roster.members[name])
            roster.update(roster.members[name], join, number)
        elif what == "answer":
            roster.take_join_token(roster.members[name])
        elif what == "replace":
            roster.replace(name, name)
        else:
            gone = roster.remove(name)
            roster.take_join_token(gone)
        waiting, candidates = recounted(roster)
        assert roster.waiting() == waiting
        assert roster.candidates() == candidates
        assert roster.all_joined() == (waiting == len(roster))
