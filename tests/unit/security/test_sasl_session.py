"""A connection authenticates, is served, authenticates again, expires; against a naive model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import E
from headwater.security.principals import Principal
from headwater.security.sasl_exchange import AuthenticationRefused, ServerStep
from headwater.security.sasl_session import SaslMechanism, SaslSession, SaslState

TOKEN_OWNER = Principal("User", "owner")


class Echo:
    """Two tokens: anything, then the name of the user; 'bad' is refused.

    A number is how long a delegation token of TOKEN_OWNER is still valid.
    """

    def __init__(self):
        self.begun = False

    def feed(self, token):
        if not self.begun:
            self.begun = True
            return ServerStep(b"who?")
        if token == b"bad":
            raise AuthenticationRefused("bad")
        if token.isdigit():
            return ServerStep(b"hello", TOKEN_OWNER, lifetime_ms=int(token), by_token=True)
        return ServerStep(b"hello", Principal("User", token.decode()))


OFFERED = {
    "A": SaslMechanism("A", Echo, 10_000),
    "B": SaslMechanism("B", Echo),
    "S": SaslMechanism("S", Echo, 500),
    "hidden": SaslMechanism("hidden", Echo, advertised=False),
}


def logged_in(mechanism="A", user=b"alice", now=0):
    session = SaslSession(OFFERED)
    assert session.choose(mechanism, now) is E.NONE
    assert session.feed(b"", now).principal is None
    step = session.feed(user, now)
    assert session.state is SaslState.SERVING
    return session, step


def test_a_login():
    session, step = logged_in()
    assert session.advertised == ["A", "B", "S"]
    assert (str(step.principal), step.lifetime_ms) == ("User:alice", 10_000)
    assert not session.expires(9999)
    assert session.expires(10_000)
    assert logged_in("B")[1].lifetime_ms == 0
    assert not logged_in("B")[0].expires(1 << 60)


@pytest.mark.parametrize(
    ("mechanism", "left", "lifetime"), [("B", 700, 700), ("A", 700, 700), ("S", 700, 500)]
)
def test_a_session_lasts_no_longer_than_its_delegation_token(mechanism, left, lifetime):
    session, step = logged_in(mechanism, b"%d" % left)
    assert (step.principal, step.lifetime_ms, session.by_token) == (TOKEN_OWNER, lifetime, True)
    assert not session.expires(lifetime - 1)
    assert session.choose(mechanism, lifetime // 2 - 1) is E.ILLEGAL_SASL_STATE, "too soon"
    assert session.choose(mechanism, lifetime // 2) is E.NONE
    session.feed(b"", lifetime // 2)
    assert session.feed(b"owner", lifetime // 2).principal == TOKEN_OWNER
    assert not session.by_token
    assert session.expires(1 << 60) is (mechanism != "B")


def test_nobody_logs_in_as_those_that_do_not_log_in():
    session = SaslSession(OFFERED)
    session.choose("A", 0)
    session.feed(b"", 0)
    with pytest.raises(AuthenticationRefused, match="no user may have the name ANONYMOUS"):
        session.feed(b"ANONYMOUS", 0)
    assert session.state is SaslState.AUTHENTICATING


def test_another_mechanism_is_refused_and_a_second_handshake_too():
    session = SaslSession(OFFERED)
    assert session.choose("C", 0) is E.UNSUPPORTED_SASL_MECHANISM
    assert session.choose("A", 0) is E.NONE
    assert session.choose("A", 0) is E.ILLEGAL_SASL_STATE
    with pytest.raises(AuthenticationRefused):
        SaslSession(OFFERED).feed(b"", 0)
    assert SaslSession({}, anonymous=True).choose("A", 0) is E.ILLEGAL_SASL_STATE


def test_a_session_is_extended_from_the_time_of_the_new_login():
    session, _ = logged_in()
    assert session.choose("A", 9000) is E.NONE
    assert session.state is SaslState.REAUTHENTICATING
    session.feed(b"", 9500)
    assert session.feed(b"alice", 9900).lifetime_ms == 10_000
    assert not session.expires(19_899)
    assert session.expires(19_900)


def test_an_expired_session_may_log_in_again_and_only_that():
    session, _ = logged_in()
    assert session.expires(10_001)
    assert session.state is SaslState.EXPIRED
    assert session.choose("A", 10_002) is E.NONE
    session.feed(b"", 10_003)
    assert session.feed(b"alice", 10_004).principal is not None
    assert not session.expires(20_003)


def test_the_mechanism_and_the_user_stay():
    session, _ = logged_in()
    assert session.choose("B", 5000) is E.UNSUPPORTED_SASL_MECHANISM
    assert session.choose("A", 5000) is E.NONE
    session.feed(b"", 5000)
    with pytest.raises(AuthenticationRefused, match="User:alice logged in again as User:bob"):
        session.feed(b"bob", 5000)


def test_logins_do_not_follow_each_other_too_soon():
    assert logged_in()[0].choose("A", 999) is E.ILLEGAL_SASL_STATE
    assert logged_in()[0].choose("A", 1000) is E.NONE
    assert logged_in("S")[0].choose("S", 249) is E.ILLEGAL_SASL_STATE
    assert logged_in("S")[0].choose("S", 250) is E.NONE
    assert logged_in("B")[0].choose("B", 999) is E.ILLEGAL_SASL_STATE


EVENTS = st.tuples(
    st.sampled_from(["choose A", "choose B", "alice", "bob", "bad", "look"]),
    st.integers(0, 6000),
)


@given(st.lists(EVENTS, max_size=25))
def test_nobody_is_served_without_a_login_within_the_lifetime(events):
    session, now, user, until, tokens = SaslSession(OFFERED), 0, None, None, None
    for event, passed in events:
        now += passed
        if event.startswith("choose"):
            if session.choose(event[-1], now) is E.NONE:
                assert tokens is None
                tokens = 0
        elif event != "look":
            try:
                step = session.feed(event.encode(), now)
            except AuthenticationRefused:
                return  # the connection is closed
            assert tokens is not None
            tokens += 1
            if step.principal is not None:
                assert tokens == 2
                assert user in (None, event)
                user, tokens = event, None
                until = now + step.lifetime_ms if step.lifetime_ms else None
        expired = session.expires(now)
        assert expired == (until is not None and now >= until)
        if session.state is SaslState.SERVING:
            assert user is not None
            assert not expired
