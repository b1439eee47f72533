"""Fetch sessions: the first request says everything, later ones what changed."""

from headwater.client.consumer.fetching.fetch_session import FetchSession, FetchTarget
from headwater.errors import E
from headwater.model import ZERO_UUID
from headwater.wire.messages.fetch import FetchRequest


def want(partition, offset=0, topic="t", version=0):
    return FetchTarget(topic, ZERO_UUID, partition, offset, 1, 1, version)


def asked(session, *wanted):
    request = FetchRequest()
    session.fill(request, list(wanted), 1000)
    rows = [(t.topic, p.partition, p.fetch_offset) for t in request.topics for p in t.partitions]
    gone = [(t.topic, n) for t in request.forgotten_topics_data for n in t.partitions]
    return request.session_id, request.session_epoch, rows, gone


def test_only_changes_are_sent_once_a_session_is_granted() -> None:
    session = FetchSession()
    assert asked(session, want(0), want(1)) == (0, 0, [("t", 0, 0), ("t", 1, 0)], [])
    assert session.answered(0, 77)
    assert asked(session, want(0), want(1)) == (77, 1, [], [])
    assert session.answered(0, 77)
    assert asked(session, want(0, 5), want(2, topic="u")) == (
        *(77, 2, [("t", 0, 5), ("u", 2, 0)]),
        [("t", 1)],
    )


def test_a_new_version_of_a_place_alone_is_no_change_for_the_broker() -> None:
    session = FetchSession()
    asked(session, want(0))
    session.answered(0, 77)
    assert asked(session, want(0, version=9)) == (77, 1, [], [])


def test_a_broker_that_grants_none_is_told_everything_each_time() -> None:
    session = FetchSession()
    for _ in range(3):
        assert asked(session, want(0)) == (0, 0, [("t", 0, 0)], [])
        assert session.answered(0, 0)


def test_a_lost_session_begins_anew() -> None:
    session = FetchSession()
    asked(session, want(0))
    session.answered(0, 77)
    asked(session, want(0))
    assert not session.answered(E.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert asked(session, want(0)) == (0, 0, [("t", 0, 0)], [])


def test_epochs_wrap_to_one() -> None:
    session = FetchSession()
    asked(session, want(0))
    session.answered(0, 77)
    session._epoch = 2**31 - 1
    asked(session, want(0))
    session.answered(0, 77)
    assert asked(session, want(0))[1] == 1
