"""Tokens: the provider's are accepted with each algorithm, and no forged one is."""

import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.bearer_tokens import (
    MAX_SESSION_MS,
    MAX_TOKEN_BYTES,
    MIN_SESSION_MS,
    TokenRefused,
    TokenRules,
    verify_token,
)
from headwater.security.signing_keys import parse_key_set
from headwater.security.strict_json import MAX_DEPTH, StrictJsonError, parse_object
from tests.unit.security.identity_provider import (
    AUDIENCE,
    ISSUER,
    NOW_MS,
    claims,
    encoded,
    jwk,
    jwks,
    private_key,
    token,
)

RULES = TokenRules(frozenset({AUDIENCE, "other"}), ISSUER)
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
ALGORITHMS += ["EdDSA", "Ed448"]


def verify(given_token, keys=None, rules=RULES, now_ms=NOW_MS):
    keys = parse_key_set(keys or jwks())
    return verify_token(given_token, rules, lambda _: keys, now_ms)


def refused(says, *given_token, **more):
    with pytest.raises(TokenRefused, match=says) as problem:
        verify(*given_token, **more)
    assert not any(
        part in str(problem.value) for part in given_token[0].split(".") if len(part) > 3
    )


# -- what is accepted


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_each_algorithm_names_its_user_for_its_lifetime(algorithm):
    keys = jwks(jwk("one", algorithm), jwk("two", "ES256", 1))
    found = verify(token(algorithm=algorithm), keys)
    assert found == ("alice", 300_000)


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": ["somebody", "kafka"]},
        {"scope": "read write"},
        {"scope": ["read", "write"]},
        {"scope": ""},
        {"nbf": NOW_MS // 1000 + 29},
        {"iat": NOW_MS // 1000 + 29.5},
        {"extra": {"nested": [1, 2, {"three": None}]}},
    ],
)
def test_what_providers_write_is_accepted(changed):
    assert verify(token(claims(**changed))).name == "alice"


def test_a_session_is_neither_endless_nor_empty():
    assert verify(token(claims(lifetime_s=100 * 365 * 86400))).lifetime_ms == MAX_SESSION_MS
    just_expired = token(claims(iat=NOW_MS // 1000 - 60, exp=NOW_MS // 1000 - 29))
    assert verify(just_expired).lifetime_ms == MIN_SESSION_MS


def test_the_claims_with_user_and_scope_have_the_names_of_the_settings():
    rules = TokenRules(RULES.audiences, ISSUER, "client_id", "scp", 0)
    assert verify(token(claims(client_id="bob", sub=None)), rules=rules).name == "bob"
    refused("names no user", token(), rules=rules)
    refused("no usable scp", token(claims(client_id="bob", scp=7)), rules=rules)


def test_audience_and_issuer_do_not_matter_where_the_operator_says_so():
    rules = TokenRules(frozenset(), None)
    assert verify(token(claims(aud=None, iss=None)), rules=rules).name == "alice"


# -- forged signatures


def test_a_token_without_a_signature_is_refused():
    for name in ("none", "None", "NONE", "nOnE"):
        refused("not signed with", token(alg=name))
        refused("three parts", token(alg=name, signature=b""))


@pytest.mark.parametrize("digest", ["256", "384", "512"])
def test_an_hmac_over_the_public_key_is_refused(digest):
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = private_key("RS256").public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    keys = jwks(jwk("one", "RS256"))
    for secret in (pem, pem.strip(), keys, b""):
        signed = token(alg=f"HS{digest}", signature=b"x").rpartition(".")[0]
        made = hmac.digest(secret, signed.encode(), f"sha{digest}")
        refused("not signed with", f"{signed}.{encoded(made)}", keys)
        # ... and under the name of an algorithm that the key is for
        signed = token(alg=f"RS{digest}", signature=b"x").rpartition(".")[0]
        made = hmac.digest(secret, signed.encode(), f"sha{digest}")
        refused("did not make the signature", f"{signed}.{encoded(made)}", keys)


def test_another_key_a_changed_token_and_an_unfit_algorithm_are_refused():
    refused("did not make the signature", token(which=1))
    header, _, signature = token().split(".")
    changed = encoded(json.dumps(claims(sub="admin")).encode())
    refused("did not make the signature", f"{header}.{changed}.{signature}")
    for algorithm in ("RS256", "ES384", "EdDSA"):
        refused("no key 'one' of the JWKS is for", token(algorithm=algorithm))
    refused("no key 'one' of the JWKS is for", token(), jwks(jwk("one", alg="ES384"), jwk("b")))
    refused("did not make the signature", token(signature=b"\0" * 64))
    refused("did not make the signature", token(signature=b"\x30\x06\x02\x01\x01\x02\x01\x01"))


def test_a_key_inside_the_token_is_not_used():
    mine = jwk("evil", "ES256", 7)
    for header in ({"jwk": mine}, {"jku": "https://evil.example"}, {"x5u": "x"}, {"x5c": ["x"]}):
        refused("did not make the signature", token(which=7, **header))


def test_the_key_must_be_named_and_no_extension_needed():
    refused("does not name its key", token(kid=None))
    refused("does not name its key", token(kid=7))
    refused("does not name its key", token(kid="k" * 257))
    refused("extension", token(crit=["b64"], b64=False))


# -- claims


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"aud": "another"}, r"\(aud\)"),
        ({"aud": None}, "usable aud"),
        ({"aud": []}, r"\(aud\)"),
        ({"aud": {"kafka": 1}}, "usable aud"),
        ({"aud": ["kafka", 7]}, "usable aud"),
        ({"iss": "https://login.example/"}, r"\(iss\)"),
        ({"iss": None}, r"\(iss\)"),
        ({"iss": [ISSUER]}, r"\(iss\)"),
        ({"sub": None}, r"\(sub\)"),
        ({"sub": ""}, r"\(sub\)"),
        ({"sub": 7}, r"\(sub\)"),
        ({"sub": "a\nforged log line"}, r"\(sub\)"),
        ({"sub": "a\ud800"}, r"\(sub\)"),
        ({"sub": "a" * 1025}, r"\(sub\)"),
        ({"exp": None}, "no time exp"),
        ({"exp": "1790000300"}, "no time exp"),
        ({"exp": True}, "no time exp"),
        ({"exp": -1}, "impossible time exp"),
        ({"exp": 1e300}, "impossible time exp"),
        ({"exp": 10**4000}, "impossible time exp"),
        ({"exp": NOW_MS // 1000 - 30, "iat": 1}, "has expired"),
        ({"iat": None}, "no time iat"),
        ({"iat": NOW_MS // 1000 + 31}, "in the future"),
        ({"iat": NOW_MS // 1000 + 20, "exp": NOW_MS // 1000 + 10}, "before it was issued"),
        ({"nbf": NOW_MS // 1000 + 31}, "not valid yet"),
        ({"nbf": "soon"}, "no time nbf"),
        ({"scope": {"a": 1}}, "usable scope"),
    ],
)
def test_a_token_for_another_broker_time_or_nobody_is_refused(changed, says):
    refused(says, token(claims(**changed)))


def test_clock_skew_is_that_of_the_settings():
    strict = TokenRules(RULES.audiences, ISSUER, skew_ms=0)
    assert verify(token(claims(lifetime_s=1)), rules=strict).lifetime_ms == 1000
    refused("has expired", token(claims(lifetime_s=0)), rules=strict)


# -- JSON with two meanings


def with_twice(name, value):
    text = json.dumps(claims())
    return text.replace("{", f'{{"{name}": {json.dumps(value)}, ', 1).encode()


@pytest.mark.parametrize("name", ["sub", "exp", "aud", "iss", "s\\u0075b"])
def test_a_claim_twice_is_refused(name):
    refused("member twice", token(with_twice(name, "admin")))


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "three parts"),
        (b"[]", "not a JSON object"),
        (b"{", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (json.dumps(claims()).encode("utf-16"), "not JSON"),
        (b'{"exp": NaN}', "number that JSON does not know"),
        (b'{"exp": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "nested deeper"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "nested deeper"),
        (b"[" * 12_000, "nested deeper"),
    ],
)
def test_payloads_that_are_no_plain_objects_are_refused(payload, says):
    refused(says, token(payload))


def test_the_depth_is_that_outside_of_strings():
    deep = b'{"a":' * (MAX_DEPTH - 1) + b'{"b": "[[[[\\"{{{{"}' + b"}" * (MAX_DEPTH - 1)
    assert parse_object(deep)
    with pytest.raises(StrictJsonError, match="nested"):
        parse_object(b'{"a":' + deep + b"}")


def test_a_large_token_is_refused_before_anything_is_read():
    refused("more than", "a." + "b" * MAX_TOKEN_BYTES + ".c")
    refused("three parts", "a.b")
    refused("three parts", "a.b.c.d")
    refused("three parts", "..")
    refused("not base64url", "a+b.b.c")
    refused("not base64url", "e30=.b.c")
    refused("not base64url", "e31.b.c")


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_noise_is_json_or_refused_and_never_crashes(data):
    try:
        found = parse_object(data)
    except StrictJsonError:
        return
    assert found == json.loads(data)


PARTS = token().split(".")
MUTATED = st.tuples(
    st.sampled_from(range(3)), st.integers(0, 400), st.text("AZaz09-_.=", max_size=3)
)


@given(st.lists(MUTATED, min_size=1, max_size=3))
def test_a_changed_token_is_the_same_or_refused(changes):
    parts = list(PARTS)
    for part, place, text in changes:
        at = place % len(parts[part])
        parts[part] = parts[part][:at] + text + parts[part][at + 1 :]
    if parts == PARTS:
        return
    with pytest.raises(TokenRefused):
        verify(".".join(parts))


# -- keys


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"{}", 'no list "keys"'),
        (b'{"keys": 7}', 'no list "keys"'),
        (b'{"keys": []}', "no usable key"),
        (jwks(*[{}] * 1001), "more than 1000"),
        (b'{"keys": [], "keys": []}', "member twice"),
        (jwks({"kid": "one", "kty": "oct", "k": encoded(b"secret" * 8)}), "no usable key"),
        (jwks(jwk("one", d="AQAB")), "no usable key"),
        (jwks(jwk("one", use="enc")), "no usable key"),
        (jwks(jwk("one", key_ops=["sign"])), "no usable key"),
        (jwks(jwk("one", kty="ec")), "no usable key"),
        (jwks(jwk("one", crv="secp256k1")), "no usable key"),
        (jwks(jwk("one", x=encoded(b"\1" * 32))), "no usable key"),
        (jwks(jwk("one", x=encoded(b"\xff" * 99))), "no usable key"),
        (jwks(jwk("one", alg="HS256")), "no usable key"),
        (jwks(jwk("one", "RS256", n=encoded(b"\xff" * 128))), "no usable key"),
        (jwks(jwk("one", "RS256", n=encoded(b"\xff" * 2048))), "no usable key"),
        (jwks(jwk("one", "EdDSA", x=encoded(b"\1" * 31))), "no usable key"),
        (jwks(jwk(None), jwk(7), jwk(""), 7), "no usable key among 4"),
    ],
)
def test_keys_that_nobody_should_use_are_not_used(data, says):
    with pytest.raises(ValueError, match=says):
        parse_key_set(data)


def test_a_bad_key_does_not_spoil_the_others():
    keys = parse_key_set(jwks(jwk("bad", crv="x"), jwk("one"), jwk("one", "RS256")))
    assert keys.unusable == 1
    for algorithm in ("ES256", "RS256"):
        found = verify_token(token(algorithm=algorithm), RULES, lambda _: keys, NOW_MS)
        assert found.name == "alice"


def test_keys_with_one_name_are_few():
    keys = parse_key_set(jwks(*[jwk("one", "ES256", which) for which in range(6)]))
    assert (len(keys.keys["one"]), keys.unusable) == (4, 2)
