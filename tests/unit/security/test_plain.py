"""PLAIN: exactly three parts, a known user, the right password, and nobody else's name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.plain import PlainClient, PlainServer
from headwater.security.sasl_exchange import AuthenticationRefused

USERS = {"alice": "secret", "bob": "pässword"}


@pytest.mark.parametrize(("user", "password"), USERS.items())
def test_a_user_logs_in(user, password):
    asking = PlainClient(user, password)
    step = PlainServer(USERS).feed(asking.first())
    assert (step.token, str(step.principal)) == (b"", f"User:{user}")
    assert asking.next(step.token) is None
    named = PlainServer(USERS).feed(f"{user}\0{user}\0{password}".encode())
    assert named.principal == step.principal


@pytest.mark.parametrize(
    ("token", "says"),
    [
        (b"\0alice\0wrong", "is wrong"),
        (b"\0alice\0secre", "is wrong"),
        (b"\0mallory\0secret", "is wrong"),
        (b"bob\0alice\0secret", "another user"),
        (b"\0\0secret", "empty"),
        (b"\0alice\0", "empty"),
        (b"\0alice\0secret\0", "not "),
        (b"alice\0secret", "not "),
        (b"\0alice\0\xff", "UTF-8"),
        (b"\0alice\0" + b"x" * 1025, "not "),
        (b"", "not "),
    ],
)
def test_anything_else_is_refused(token, says):
    with pytest.raises(AuthenticationRefused, match=says) as refused:
        PlainServer(USERS).feed(token)
    assert "secret" not in str(refused.value)


@given(st.binary(max_size=60) | st.lists(st.binary(max_size=9), max_size=5).map(b"\0".join))
def test_noise_never_logs_in(token):
    with pytest.raises(AuthenticationRefused):
        PlainServer({"nobody knows": "this"}).feed(token)
