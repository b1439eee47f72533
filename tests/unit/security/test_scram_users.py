"""Stored credentials are Kafka's, and unknown users look like known ones."""

import hmac
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.scram_credentials import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
)
from headwater.security.scram_users import MOST_SHAPES, ScramUsers

ALICE = ScramCredential(b"salt of alice", b"stored", b"server", 8192)


def users(**stored):
    made = ScramUsers(b"secret")
    for name, credential in stored.items():
        assert made.replace(name, {"SCRAM-SHA-256": credential.encode()}) == []
    return made


def test_rfc_7677_gives_these_keys():
    salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81"
    salted = SCRAM_SHA_256.salted_password("pencil", salt, 4096)
    credential = ScramCredential.of_salted_password(SCRAM_SHA_256, salt, salted, 4096)
    assert credential.encode() == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,"
        "stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )


@given(st.binary(min_size=1), st.binary(min_size=1), st.binary(min_size=1), st.integers(1, 99_999))
def test_a_credential_is_read_as_it_was_written(salt, stored_key, server_key, iterations):
    credential = ScramCredential(salt, stored_key, server_key, iterations)
    assert ScramCredential.decode(credential.encode()) == credential
    assert repr(credential) == f"ScramCredential(iterations={iterations})"


@given(st.text() | st.sampled_from(["salt=,stored_key=,server_key=,iterations=1", "salt=YQ==,"]))
def test_anything_else_is_refused_without_being_shown(text):
    with pytest.raises(ValueError, match=r"^the SCRAM credential cannot be read$"):
        ScramCredential.decode(text)


def test_an_unknown_user_has_a_salt_that_stays_and_looks_like_the_others():
    known = users(alice=ALICE, bob=ALICE)
    unknown = known.credential(SCRAM_SHA_256, "mallory")
    assert unknown == users(alice=ALICE).credential(SCRAM_SHA_256, "mallory")
    assert (len(unknown.salt), unknown.iterations) == (len(ALICE.salt), ALICE.iterations)
    assert unknown.salt != known.credential(SCRAM_SHA_256, "mallory2").salt
    assert unknown.salt != ScramUsers(b"other").credential(SCRAM_SHA_256, "mallory").salt
    # Alice has no such credential, so she is unknown to this mechanism.
    assert known.credential(SCRAM_SHA_512, "alice").salt != ALICE.salt


def shape(credential):
    return credential.iterations, len(credential.salt)


def shapes_of_strangers(known):
    names = [f"stranger-{number}" for number in range(400)]
    return {name: shape(known.credential(SCRAM_SHA_256, name)) for name in names}


def test_a_user_with_rare_iterations_or_a_rare_salt_does_not_stand_out():
    rare = {"old": (4096, 13), "kafka": (8192, 25)}
    of = {f"usual-{number}": ALICE for number in range(6)}
    for name, (iterations, size) in rare.items():
        of[name] = ScramCredential(bytes(size), b"stored", b"server", iterations)
    answers = Counter(shapes_of_strangers(users(**of)).values())
    assert answers.keys() == {shape(ALICE), *rare.values()}
    assert answers.most_common(1)[0][0] == shape(ALICE)
    assert all(answers[one] > 400 / 8 / 2 for one in rare.values()), "as often as among users"


def test_the_answer_for_an_unknown_name_rarely_changes():
    old = ScramCredential(bytes(26), b"stored", b"server", 4096)
    known = users(**{f"user-{number}": ALICE for number in range(10)}, old=old, older=old)
    before = shapes_of_strangers(known)
    known.replace("bob", {"SCRAM-SHA-256": ALICE.encode()})
    after = shapes_of_strangers(known)
    changed = [name for name in before if before[name] != after[name]]
    assert len(changed) < 400 / 20
    assert {after[name] for name in changed} <= {shape(ALICE)}
    known.replace("bob", {})
    for name in ("old", "older"):
        known.replace(name, {})
    assert Counter(shapes_of_strangers(known).values())[shape(old)] > 10, "it stays"


def test_thousands_of_shapes_cost_no_more_than_a_few(monkeypatch):
    known, counted = ScramUsers(b"secret"), []
    for number in range(2000):
        credential = ScramCredential(bytes(16), b"stored", b"server", 4096 + number)
        known.replace(f"user-{number}", {"SCRAM-SHA-256": credential.encode()})
    digest = hmac.digest
    monkeypatch.setattr(hmac, "digest", lambda *given: counted.append(1) or digest(*given))
    known.credential(SCRAM_SHA_256, "mallory")
    assert len(counted) == MOST_SHAPES + 2


def test_what_cannot_be_read_is_named_and_verifies_nobody():
    known = users(alice=ALICE)
    assert known.replace("alice", {"SCRAM-SHA-512": "salt=x", "quota": "1"}) == ["SCRAM-SHA-512"]
    assert list(known.names()) == []
    assert known.credential(SCRAM_SHA_256, "alice") != ALICE


class Watched(dict):
    """Notes whether each lookup found something."""

    def __init__(self, present, found):
        super().__init__(present)
        self.found = found

    def get(self, key, default=None):
        value = super().get(key, default)
        self.found.append(value is not None)
        return value


@pytest.fixture
def work(monkeypatch):
    """What a call of `ScramUsers.credential` does."""

    def of(users, name):
        done = {"digests": [], "found": [], "copied": 0}
        digest, copy = hmac.digest, ScramCredential.copy

        def counted_digest(key, message, kind):
            done["digests"].append((len(message), kind))
            return digest(key, message, kind)

        def counted_copy(credential):
            done["copied"] += 1
            return copy(credential)

        credentials = users._of["SCRAM-SHA-256"]
        with monkeypatch.context() as patched:
            patched.setattr(hmac, "digest", counted_digest)
            patched.setattr(ScramCredential, "copy", counted_copy)
            patched.setattr(credentials, "_by_user", Watched(credentials._by_user, done["found"]))
            users.credential(SCRAM_SHA_256, name)
        done["found"].sort()
        return done

    return of


def test_a_known_and_an_unknown_user_cost_the_same_work(work):
    known = users(alice=ALICE, bobby=ALICE)
    other = {"SCRAM-SHA-512": ALICE.encode()}
    assert known.replace("chuck", other) == []
    expected = work(known, "alice")
    assert (expected["found"], expected["copied"]) == ([False, True], 1)
    assert len(expected["digests"]) == 3
    for name in ("bobby", "carol", "chuck", "david"):
        assert work(known, name) == expected


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans())))
def test_every_user_keeps_a_place_while_others_come_and_go(changes):
    known, model = ScramUsers(b"secret"), set()
    for name, comes in changes:
        known.replace(name, {"SCRAM-SHA-256": ALICE.encode()} if comes else {})
        (model.add if comes else model.discard)(name)
        kept = known._of["SCRAM-SHA-256"]
        assert set(kept.names) == model == set(known.names())
        assert all(kept.names[kept.get(one).place] == one for one in model)
        for one in "abcd":
            assert (known.credential(SCRAM_SHA_256, one) == ALICE) == (one in model)
