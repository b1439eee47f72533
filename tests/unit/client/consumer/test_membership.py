"""A member of a group: what it does in which order, and when it gives up."""

import pytest

from headwater.client.consumer.group.membership import Due, Membership, MemberState, PollAction
from headwater.client.consumer.listener import ListenerCall, RebalanceEvent
from headwater.errors import E
from headwater.model import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def member(cooperative=False, share=(A, B)):
    """One that has joined and told its first share."""
    made = Membership(heartbeat_ms=3000, poll_interval_ms=10_000, cooperative=cooperative)
    made.wants("start")
    join(made, share)
    assert tell(made) == ListenerCall(RebalanceEvent.ASSIGNED, list(share))
    return made


def join(made, share, generation=1, now=0):
    assert made.next(["t"]) is PollAction.JOIN
    assert made.asks()
    assert made.joined(E.NONE, generation, "me", "me") is None
    assert made.synced(E.NONE, list(share), now) is None


def tell(made):
    call = made.next(["t"])
    assert isinstance(call, ListenerCall)
    assert made.next(["t"]) is call  # offered until it is told
    made.listener_called(call)
    return call


def test_a_new_member_takes_the_id_it_is_given() -> None:
    made = Membership(heartbeat_ms=1, poll_interval_ms=1)
    made.wants("start")
    assert made.next(["t"]) is PollAction.JOIN
    assert made.joined(E.MEMBER_ID_REQUIRED, -1, "given", "") is None
    assert made.member_id == "given"
    assert made.next(["t"]) is PollAction.JOIN


def test_an_eager_member_gives_everything_up_before_it_joins() -> None:
    made = member()
    assert made.heard(E.REBALANCE_IN_PROGRESS) is None
    assert tell(made) == ListenerCall(RebalanceEvent.REVOKED, [A, B])
    join(made, [B, C], 2)
    assert tell(made) == ListenerCall(RebalanceEvent.ASSIGNED, [B, C])
    assert made.next(["t"]) is None


def test_what_changes_after_the_request_to_join_needs_another_one() -> None:
    made = Membership(heartbeat_ms=1, poll_interval_ms=1)
    made.wants("topics")
    assert made.next(["t"]) is PollAction.JOIN
    assert made.asks() == "topics"
    made.wants("other topics")
    made.joined(E.NONE, 1, "me", "me")
    made.synced(E.NONE, [A], 0)
    tell(made)
    tell(made)
    assert made.next(["t", "u"]) is PollAction.JOIN
    assert made.asks() == "other topics"


def test_a_request_that_is_repeated_keeps_its_reason() -> None:
    made = Membership(heartbeat_ms=1, poll_interval_ms=1)
    made.wants("topics")
    for refusal in (E.MEMBER_ID_REQUIRED, E.NOT_COORDINATOR):
        made.next(["t"])
        assert made.asks() == "topics"
        made.joined(refusal, -1, "given", "")
    made.next(["t"])
    assert made.asks() == "topics"


@pytest.mark.parametrize("problem", [E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION])
def test_the_membership_that_the_application_knows_outlives_its_end(problem) -> None:
    made = member()
    made.heard(problem)
    assert tell(made) == ListenerCall(RebalanceEvent.LOST, [A, B])
    assert made.told == (1, "me")
    join(made, [A], 2)
    assert made.behind
    assert made.told == (1, "me")
    tell(made)
    assert made.told == (2, "me")
    assert not made.behind
    made.left("too late")
    assert made.told == (2, "me")


def test_a_cooperative_member_works_on_what_it_keeps_in_the_new_generation() -> None:
    made = member(cooperative=True)
    made.heard(E.REBALANCE_IN_PROGRESS)
    made.next(["t"])
    made.asks()
    assert made.told == (1, "me")
    made.joined(E.NONE, 2, "me", "me")
    assert made.told == (2, "me")
    assert not made.behind


def test_a_cooperative_member_gives_up_what_moves_and_joins_again() -> None:
    made = member(cooperative=True)
    made.heard(E.REBALANCE_IN_PROGRESS)
    join(made, [B, C], 2)
    assert tell(made) == ListenerCall(RebalanceEvent.REVOKED, [A])
    assert tell(made) == ListenerCall(RebalanceEvent.ASSIGNED, [C])
    assert sorted(made.owned) == [B, C]
    join(made, [B, C], 3)
    assert tell(made) == ListenerCall(RebalanceEvent.ASSIGNED, [])
    assert made.next(["t"]) is None


def test_a_cooperative_member_gives_up_topics_it_no_longer_wants_first() -> None:
    made = member(cooperative=True)
    made.wants("the subscription changed")
    call = made.next(["other"])
    assert call == ListenerCall(RebalanceEvent.REVOKED, [A, B])


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("problem", [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID])
def test_who_is_no_longer_counted_has_lost_its_partitions(cooperative, problem) -> None:
    made = member(cooperative)
    assert made.heard(problem) is None
    assert made.state is MemberState.OUT
    assert tell(made) == ListenerCall(RebalanceEvent.LOST, [A, B])
    assert made.next(["t"]) is PollAction.JOIN
    assert made.member_id == ("" if problem is E.UNKNOWN_MEMBER_ID else "me")


@pytest.mark.parametrize(
    "problem",
    [
        E.FENCED_INSTANCE_ID,
        E.INCONSISTENT_GROUP_PROTOCOL,
        E.GROUP_AUTHORIZATION_FAILED,
        E.GROUP_MAX_SIZE_REACHED,
    ],
)
def test_what_joining_again_would_not_mend_is_an_error(problem) -> None:
    made = member()
    made.wants("again")
    tell(made)
    assert made.next(["t"]) is PollAction.JOIN
    error = made.joined(problem, -1, "", "")
    assert error is not None
    assert error.code is problem


def test_heartbeats_are_due_while_it_is_a_member() -> None:
    made = member()
    made.polled(0)
    assert made.next_deadline() == 3000
    assert made.tick(2999) is Due.NOTHING
    assert made.tick(3000) is Due.HEARTBEAT
    assert made.next_deadline() == 6000
    made.heard(E.REBALANCE_IN_PROGRESS)
    assert made.tick(6000) is Due.HEARTBEAT  # the application may still be at work
    tell(made)
    made.next(["t"])
    assert made.next_deadline() is None


def test_who_does_not_poll_is_too_late() -> None:
    made = member()
    made.polled(500)
    assert made.tick(10_500) is not Due.TOO_LATE
    assert made.tick(10_501) is Due.TOO_LATE
    made.left("too late")
    assert tell(made) == ListenerCall(RebalanceEvent.LOST, [A, B])
    assert made.next(["t"]) is PollAction.JOIN


def test_a_member_may_leave_while_its_listener_is_called() -> None:
    made = member()
    made.heard(E.REBALANCE_IN_PROGRESS)
    call = made.next(["t"])
    assert call == ListenerCall(RebalanceEvent.REVOKED, [A, B])
    made.left("too late")
    made.listener_called(call)
    assert made.next(["t"]) is PollAction.JOIN  # nothing is lost that was given up


def test_an_unanswered_join_is_tried_again_without_losing_anything() -> None:
    made = member(cooperative=True)
    made.wants("again")
    assert made.next(["t"]) is PollAction.JOIN
    made.interrupted()
    assert made.state is MemberState.MEMBER
    join(made, [A, B], 2)
    assert tell(made) == ListenerCall(RebalanceEvent.ASSIGNED, [])
