"""Who is in a group: one leader while there are members, one member per instance id."""

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
