"""Who is in a group: one leader while there are members, one member per instance id."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.coordination.groups.commands import JoinGroup
from headwater.coordination.groups.members import Member, Members


def member(member_id, instance=None, protocols=(("range", b""),)):
    return Member(member_id, instance, "c", "/h", 10, 20, protocols)


def members_of(*given):
    members = Members()
    for each in given:
        members.add(each)
    return members


def test_when_the_leader_goes_the_next_oldest_leads():
    members = members_of(member("a"), member("b"), member("c"))
    members.remove("a")
    assert members.leader == "b"
    members.remove("c")
    members.remove("b")
    assert members.leader is None


def test_a_replaced_static_member_keeps_its_place():
    members = members_of(member("a"), member("b", "i"), member("c"))
    members.replace("b", "b2")
    assert list(members.by_id) == ["a", "b2", "c"]
    assert members.static_member_id("i") == "b2"
    members.remove("b2")
    assert members.static_member_id("i") is None


def test_a_tie_of_votes_goes_to_the_choice_of_the_oldest():
    both = (("x", b""), ("y", b""))
    members = members_of(member("a", protocols=both), member("b", protocols=both[::-1]))
    assert members.choose_protocol() == "x"


def test_without_members_nothing_is_supported():
    assert Members().candidates() == set()
    assert Members().rebalance_timeout_ms() == 0


def recounted(members):
    """What a walk over the members says."""
    waiting = sum(one.join_token is not None for one in members.by_id.values())
    supported = [{name for name, _ in one.protocols} for one in members.by_id.values()]
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
    members = Members()
    for number, (what, who, protocols, waits) in enumerate(steps):
        name = f"m{who}"
        known = tuple((protocol, b"") for protocol in sorted(protocols))
        if what == "add" and name not in members:
            new = member(name, protocols=known)
            new.join_token = number if waits else None
            members.add(new)
        elif name not in members:
            continue
        elif what == "update":
            join = JoinGroup("g", name, None, "c", known, 1, 1, "c", "/h", False, False)
            members.pop_join_token(members.by_id[name])
            members.update(members.by_id[name], join, number)
        elif what == "answer":
            members.pop_join_token(members.by_id[name])
        elif what == "replace":
            members.replace(name, name)
        else:
            gone = members.remove(name)
            members.pop_join_token(gone)
        waiting, candidates = recounted(members)
        assert members.waiting() == waiting
        assert members.candidates() == candidates
        assert members.all_joined() == (waiting == len(members))
