"""SCRAM as the RFCs have it; everything that is not exactly right is refused."""

import contextlib
from base64 import b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.security.sasl_exchange import AuthenticationRefused, WaitFirst
from headwater.security.scram import Account, ScramClient, ScramServer
from headwater.security.scram_credentials import (
    SCRAM,
    SCRAM_SHA_256,
    ScramCredential,
    ScramMechanism,
)

SALT = b"salt of the user"
SHA_1 = ScramMechanism("SCRAM-SHA-1", "sha1", 0, 20)


def credential(mechanism=SCRAM_SHA_256, password="pencil", iterations=4096):
    salted = mechanism.salted_password(password, SALT, iterations)
    return ScramCredential.of_salted_password(mechanism, SALT, salted, iterations)


CREDENTIAL = credential()


def server(stored=CREDENTIAL, mechanism=SCRAM_SHA_256, nonce=b"n" * 24, extensions=None):
    def find(name, given):
        if extensions is not None:
            extensions.update(given)
        return Account(stored, name)

    return ScramServer(mechanism, find, nonce)


def client(user="user", password="pencil", mechanism=SCRAM_SHA_256, nonce=b"c" * 24, **more):
    def derive(salt, iterations):
        return mechanism.salted_password(password, salt, iterations)

    return ScramClient(mechanism, user, derive, nonce, **more)


def final_of(end, first="n,,n=user,r=clientnonce", **changed):
    """What a client would say last, with parts of it changed before or after it is signed."""
    answer = end.feed(first.encode()).token.decode()
    nonce = answer.partition(",")[0].removeprefix("r=")
    parts = {"c": b64encode(first[: first.index("n=")].encode()).decode(), "r": nonce, **changed}
    proof_from = parts.pop("password", "pencil")
    without = ",".join(f"{name}={value}" for name, value in parts.items() if name != "p")
    salted = SCRAM_SHA_256.salted_password(proof_from, SALT, 4096)
    key = SCRAM_SHA_256.client_key(salted)
    signed = f"{first[first.index('n=') :]},{answer},{without}".encode()
    signature = SCRAM_SHA_256.mac(SCRAM_SHA_256.hashed(key), signed)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{without},p={parts.get('p', b64encode(proof).decode())}".encode()


# -- vectors: the nonces of the RFCs are not base64 of bytes, so they are put in place


def with_nonce(end, nonce):
    if isinstance(end, ScramServer):
        end._own_nonce = nonce
    else:
        end._bare = end._bare.replace(end._nonce, nonce)
        end._nonce = nonce
    return end


@pytest.mark.parametrize(
    ("mechanism", "nonces", "salt", "proof", "verifier"),
    [
        (
            SHA_1,
            ("fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j"),
            b"A%\xc2G\xe4:\xb1\xe9<m\xffv",
            "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ),
        (
            SCRAM_SHA_256,
            ("rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"),
            b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81",
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ],
    ids=["RFC 5802", "RFC 7677"],
)
def test_the_examples_of_the_rfcs(mechanism, nonces, salt, proof, verifier):
    salted = mechanism.salted_password("pencil", salt, 4096)
    stored = ScramCredential.of_salted_password(mechanism, salt, salted, 4096)
    asking = with_nonce(client(mechanism=mechanism), nonces[0])
    asked = with_nonce(server(stored, mechanism), nonces[1])
    first = asking.first()
    assert first == f"n,,n=user,r={nonces[0]}".encode()
    challenge = asked.feed(first).token
    assert challenge == f"r={''.join(nonces)},s={b64encode(salt).decode()},i=4096".encode()
    final = asking.next(challenge)
    assert final == f"c=biws,r={''.join(nonces)},p={proof}".encode()
    step = asked.feed(final)
    assert (step.token, str(step.principal)) == (f"v={verifier}".encode(), "User:user")
    assert asking.next(step.token) is None


@pytest.mark.parametrize("mechanism", SCRAM.values(), ids=lambda one: one.name)
@given(user=st.text(min_size=1, max_size=40), password=st.text(min_size=1, max_size=20))
@example(user="a=2C,b=3D=", password=",=")
def test_any_name_and_password_pass(mechanism, user, password):
    stored = credential(mechanism, password)
    asking = client(user, password, mechanism)
    asked = server(stored, mechanism)
    if "\0" in user:
        with pytest.raises(AuthenticationRefused):
            asked.feed(asking.first())
        return
    step = asked.feed(asking.next(asked.feed(asking.first()).token))
    assert step.principal.name == user
    assert asking.next(step.token) is None


def test_the_client_of_these_tests_is_right():
    end = server()
    assert str(end.feed(final_of(end)).principal) == "User:user"


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ("p=tls-unique,,n=user,r=clientnonce", "malformed"),
        ("n,a=admin,n=user,r=clientnonce", "act as another user"),
        ("n,,m=ext,n=user,r=clientnonce", "malformed"),
        ("n,,n=user,r=clientnonce,m=ext", "extension"),
        ("n,,n=user,r=clientnonce,a=1,a=2", "extension"),
        ("n,,n=,r=clientnonce", "malformed"),
        ("n,,n=user,r=", "malformed"),
        ("n,,n=us=er,r=clientnonce", "malformed"),
        ("n,,n=user,r=" + "x" * 257, "malformed"),
        ("n,,n=user,r=nonce with spaces", "malformed"),
        ("n,,n=" + "u" * 4096 + ",r=clientnonce", "4096 bytes"),
    ],
)
def test_a_first_message_that_is_refused(first, says):
    with pytest.raises(AuthenticationRefused, match=says):
        server().feed(first.encode())


def test_a_client_may_name_itself_and_say_that_it_knows_channel_binding():
    end = server()
    assert end.feed(final_of(end, "y,a=user,n=user,r=clientnonce")).principal.name == "user"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"r": "clientnonce"}, "another nonce"),
        ({"r": "clientnonce" + b64encode(b"m" * 24).decode()}, "another nonce"),
        ({"c": b64encode(b"y,,").decode()}, "another channel binding"),
        ({"c": b64encode(b"n,a=admin,").decode()}, "another channel binding"),
        ({"c": "biws="}, "another channel binding"),
        ({"m": "ext"}, "extension"),
        ({"password": "pen"}, "'user' or the password is wrong"),
        ({"p": b64encode(bytes(32)).decode()}, "is wrong"),
        ({"p": b64encode(bytes(31)).decode()}, "wrong size"),
        ({"p": "!"}, "malformed"),
    ],
)
def test_a_last_message_that_is_refused(changed, says):
    end = server()
    with pytest.raises(AuthenticationRefused, match=says):
        end.feed(final_of(end, **changed))


def test_a_recorded_login_is_of_no_use():
    end = server()
    final = final_of(end)
    assert end.feed(final).principal is not None
    with pytest.raises(AuthenticationRefused):
        end.feed(final)
    later = server(nonce=b"o" * 24)
    later.feed(b"n,,n=user,r=clientnonce")
    with pytest.raises(AuthenticationRefused, match="another nonce"):
        later.feed(final)


def test_extensions_reach_the_credentials():
    seen = {}
    end = server(extensions=seen)
    end.feed(client(extensions={"tokenauth": "true"}).first())
    assert seen == {"tokenauth": "true"}


# -- a server that cannot be trusted


@pytest.mark.parametrize(
    ("challenge", "says"),
    [
        ("r={nonce},s=c2FsdA==,i=4096", "does not extend"),
        ("r=other{nonce},s=c2FsdA==,i=4096", "does not extend"),
        ("r={nonce}x,s=c2FsdA==,i=4095", "4095 iterations"),
        ("r={nonce}x,s=c2FsdA==,i=16385", "16385 iterations"),
        ("r={nonce}x,s=c2FsdA==,i=99999999999", "malformed"),
        ("r={nonce}x,s=c2FsdA==,i=-1", "malformed"),
        ("r={nonce}x,s=,i=4096", "malformed"),
        ("r={nonce}x,s=c2FsdA==,i=4096,m=1", "extension"),
        ("e=other-error", "malformed"),
    ],
)
def test_a_challenge_that_a_client_refuses(challenge, says):
    asking = client()
    nonce = asking.first().decode().rpartition("r=")[2]
    with pytest.raises(AuthenticationRefused, match=says):
        asking.next(challenge.format(nonce=nonce).encode())


@pytest.mark.parametrize("last", [b"v=AAAA", b"e=invalid-proof", b"", b"v="])
def test_a_server_has_to_know_the_password_too(last):
    asking = client()
    asking.next(server().feed(asking.first()).token)
    with pytest.raises(AuthenticationRefused):
        asking.next(last)


# -- noise

ALIKE = st.text(alphabet="n,y=arcpmeisv\0é +/1", max_size=60).map(str.encode)


@given(st.lists(st.binary(max_size=200) | ALIKE, max_size=3))
def test_noise_never_logs_in(messages):
    end = server()
    for message in messages:
        with contextlib.suppress(AuthenticationRefused):
            assert end.feed(message).principal is None


@given(st.lists(st.binary(max_size=200) | ALIKE, min_size=1, max_size=3))
def test_noise_never_convinces_a_client(messages):
    asking = client()
    asking.first()
    with contextlib.suppress(AuthenticationRefused):
        for message in messages:
            assert asking.next(message) is not None


@pytest.mark.parametrize("left", [0, -5, 1, 900])
def test_a_delegation_token_logs_in_while_it_is_valid(left):
    end = ScramServer(
        SCRAM_SHA_256,
        lambda name, given: Account(CREDENTIAL, f"owner of {name}", lambda: left),
        b"n" * 24,
    )
    last = final_of(end, "n,,n=user,r=clientnonce,tokenauth=true")
    if left <= 0:
        with pytest.raises(AuthenticationRefused, match="expired"):
            end.feed(last)
    else:
        step = end.feed(last)
        assert (str(step.principal), step.lifetime_ms, step.by_token) == (
            "User:owner of user", left, True,
        )  # fmt: skip


def test_an_account_that_comes_later_is_asked_for_again():
    calls = []

    def find(name, given):
        calls.append(dict(given))
        if len(calls) == 1:
            raise WaitFirst(lambda then: then())
        return Account(CREDENTIAL, name)

    end = ScramServer(SCRAM_SHA_256, find, b"n" * 24)
    first = b"n,,n=user,r=clientnonce,tokenauth=true"
    with pytest.raises(WaitFirst):
        end.feed(first)
    assert end.feed(final_of(end, first.decode())).principal is not None
    assert calls == [{"tokenauth": "true"}] * 2
