"""OAUTHBEARER: the messages of RFC 7628, and a refused token that is answered before it fails."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import E
from headwater.security.bearer_tokens import MAX_TOKEN_BYTES, TokenRefused, VerifiedToken
from headwater.security.oauthbearer import (
    ACKNOWLEDGED,
    MAX_MESSAGE_BYTES,
    OAUTHBEARER,
    OAuthBearerClient,
    OAuthBearerServer,
)
from headwater.security.sasl_exchange import AuthenticationRefused, WaitFirst
from headwater.security.sasl_session import SaslMechanism, SaslSession, SaslState


def server(known=("good",)):
    def verify(token):
        if token not in known:
            raise TokenRefused("it is not known")
        return VerifiedToken("alice", 5000)

    return OAuthBearerServer(verify)


def message(*pairs, header="n,,"):
    return (header + "\x01" + "".join(f"{pair}\x01" for pair in pairs) + "\x01").encode()


@pytest.mark.parametrize("extensions", [{}, {"logicalCluster": "lkc-1", "poolId": "a b"}])
def test_a_token_logs_in_for_its_lifetime(extensions):
    client = OAuthBearerClient("good", extensions)
    step = server().feed(client.first())
    assert (str(step.principal), step.lifetime_ms, step.token) == ("User:alice", 5000, b"")
    assert client.next(step.token) is None


@pytest.mark.parametrize(
    "first",
    [
        message("auth=Bearer good"),
        message("auth=bearer good"),
        message("auth=Bearer  good"),
        message("auth=Bearer good", header="n,a=alice,"),
        message("port=9092", "host=broker.example", "auth=Bearer good"),
    ],
)
def test_the_forms_of_other_clients_are_read(first):
    assert server().feed(first).principal is not None


def test_a_refused_token_is_answered_and_fails_when_the_client_has_read_that():
    client, serving = OAuthBearerClient("bad"), server()
    step = serving.feed(client.first())
    assert (step.principal, step.token) == (None, b'{"status":"invalid_token"}')
    assert step.refused == "it is not known"
    assert client.next(step.token) == ACKNOWLEDGED
    for end in (ACKNOWLEDGED, message("auth=Bearer good")):
        with pytest.raises(AuthenticationRefused):
            serving.feed(end)


def test_a_broker_that_refuses_and_accepts_is_not_trusted():
    client = OAuthBearerClient("good")
    assert client.next(b"\xff\n") == ACKNOWLEDGED
    with pytest.raises(AuthenticationRefused):
        client.next(b"")


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"", "malformed"),
        (ACKNOWLEDGED, "malformed"),
        (message(), "no bearer token"),
        (message("auth=Basic good"), "no bearer token"),
        (message("auth=Bearer "), "no bearer token"),
        (message("auth=Bearer go od"), "no bearer token"),
        (message("auth=Bearer good", "auth=Bearer bad"), "malformed extension"),
        (message("auth=Bearer good", "a=1", "a=2"), "malformed extension"),
        (message("auth=Bearer good", "a1=1"), "malformed extension"),
        (message("auth=Bearer good", "a=\x00"), "malformed extension"),
        (message("auth=Bearer good", "=x"), "malformed extension"),
        (message("auth=Bearer good")[:-1], "malformed"),
        (message("auth=Bearer good") + b"x", "malformed"),
        (message("auth=Bearer good", header="y,,"), "malformed"),
        (message("auth=Bearer good", header="p=tls-unique,,"), "malformed"),
        (message("auth=Bearer good", header="n,a=bob,"), "another user"),
        (message("auth=Bearer good", header="n,a=alice=2C,"), "another user"),
        (b"n,,\x01auth=Bearer \xff\x01\x01", "UTF-8"),
        (b"x" * (MAX_MESSAGE_BYTES + 1), "more than"),
    ],
)
def test_anything_else_is_refused(first, says):
    with pytest.raises(AuthenticationRefused, match=says) as refused:
        server().feed(first)
    assert "good" not in str(refused.value)


@pytest.mark.parametrize(
    ("token", "extensions"),
    [
        ("", {}),
        ("a\x01b", {}),
        ("a\nb", {}),
        ("x" * (MAX_TOKEN_BYTES + 1), {}),
        ("good", {"auth": "x"}),
        ("good", {"a-b": "x"}),
        ("good", {"a": "x\x01auth=Bearer other"}),
        ("good", {"a": ""}),
    ],
)
def test_a_client_sends_nothing_that_would_be_read_as_something_else(token, extensions):
    with pytest.raises(AuthenticationRefused):
        OAuthBearerClient(token, extensions)


PIECES = st.lists(
    st.sampled_from([b"n,", b"a=", b",", b"\x01", b"auth=", b"Bearer ", b"good", b"=", b"x"])
    | st.binary(max_size=4),
    max_size=14,
).map(b"".join)


@given(PIECES)
def test_noise_is_refused_or_has_the_token(first):
    try:
        step = server().feed(first)
    except AuthenticationRefused:
        return
    if step.principal is not None:
        assert b"earer " in first
        assert b"good" in first


LETTERS = st.text("abcXYZ", min_size=1, max_size=6).filter(lambda name: name != "auth")
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=9)


@given(
    st.from_regex(r"[A-Za-z0-9._~+/-]{1,40}=?", fullmatch=True), st.dictionaries(LETTERS, VALUES)
)
def test_what_a_client_writes_a_server_reads(token, extensions):
    seen = []

    def verify(said):
        seen.append(said)
        return VerifiedToken("alice", 1000)

    OAuthBearerServer(verify).feed(OAuthBearerClient(token, extensions).first())
    assert seen == [token]


# -- in a session


def session(*lifetimes, max_reauth_ms=0, begin=None):
    left = list(lifetimes)

    def verify(_):
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return VerifiedToken("alice", found)

    mechanism = SaslMechanism(
        OAUTHBEARER, begin or (lambda: OAuthBearerServer(verify)), max_reauth_ms
    )
    return SaslSession({OAUTHBEARER: mechanism})


def log_in(running, now_ms):
    assert running.choose(OAUTHBEARER, now_ms) is E.NONE
    return running.feed(OAuthBearerClient("t").first(), now_ms)


@pytest.mark.parametrize(
    ("max_reauth_ms", "lifetime_ms", "session_ms"),
    [(0, 5000, 5000), (3000, 5000, 3000), (9000, 5000, 5000)],
)
def test_a_session_ends_with_the_token_or_before(max_reauth_ms, lifetime_ms, session_ms):
    running = session(lifetime_ms, lifetime_ms, max_reauth_ms=max_reauth_ms)
    assert log_in(running, 100).lifetime_ms == session_ms
    assert not running.expires(99 + session_ms)
    assert running.expires(100 + session_ms)
    assert log_in(running, 100 + session_ms).lifetime_ms == session_ms
    assert running.state is SaslState.SERVING


def test_a_short_token_may_be_renewed_before_a_second_has_passed():
    running = session(1000, 1000)
    log_in(running, 0)
    assert running.choose(OAUTHBEARER, 499) is E.ILLEGAL_SASL_STATE
    assert log_in(running, 500).lifetime_ms == 1000


def test_a_wait_changes_nothing():
    ready = []
    running = session(WaitFirst(ready.append), 5000)
    assert running.choose(OAUTHBEARER, 0) is E.NONE
    first = OAuthBearerClient("t").first()
    with pytest.raises(WaitFirst) as waits:
        running.feed(first, 0)
    waits.value.when_ready(lambda: None)
    assert len(ready) == 1
    assert running.feed(first, 50).lifetime_ms == 5000
