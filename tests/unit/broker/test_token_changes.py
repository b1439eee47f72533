"""Delegation tokens of several brokers on one store: who knows what, who removes what has expired."""

import pytest

from headwater.broker.token_changes import TokenChanges
from headwater.broker.token_expiry import CHECKED_AT_ONCE, TokenExpiry
from headwater.broker.token_nodes import token_path
from headwater.broker.wall_clock import WallClockWatch
from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    SessionState,
    StoreError,
    StoreFailure,
)
from headwater.errors import E
from headwater.security.delegation_tokens import DelegationTokens, TokenInformation
from headwater.security.principals import Principal
from headwater.security.scram_credentials import SCRAM_SHA_256, SCRAM_SHA_512
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles, embedded

ALICE = Principal("User", "alice")
HOUR_MS = 3_600_000


class SteppedClock:
    """The clock of a loop, with a wall clock that can be wrong."""

    def __init__(self, loop):
        self._loop, self.ahead_ms = loop, 0
        self.monotonic_ms = loop.monotonic_ms

    def wall_ms(self):
        return self._loop.wall_ms() + self.ahead_ms


class Brokers:
    """Some brokers on one embedded store; the first is the controller."""

    def __init__(self, count=2, files=None):
        self.loop = FakeLoop()
        self.wall_clock = SteppedClock(self.loop)
        self.store = embedded(self.loop, files or MemoryFiles())
        self.changes, self.removed, self.controller = [], [], 0
        for number in range(count):
            self.changes.append(TokenChanges(self.store, DelegationTokens("secret")))
            self.changes[-1].start(lambda: None)
            self.expiry(number).start()
        self.loop.run()

    def expiry(self, number):
        return TokenExpiry(
            self.changes[number],
            WallClockWatch(self.wall_clock),
            HOUR_MS,
            lambda: self.controller == number,
            lambda token: self.removed.append((number, token.token_id)),
            self.loop.call_later,
        )

    def token(self, token_id, life_ms=HOUR_MS // 2):
        now = self.loop.now_ms
        return TokenInformation(token_id, ALICE, ALICE, (), now, now + life_ms, now + life_ms)

    def create(self, *ids, at=0, **more):
        answers = []
        for token_id in ids:
            self.changes[at].create(self.token(token_id, **more), answers.append)
        self.loop.run()
        assert [one.token_id for one in answers] == list(ids)

    def change(self, at, token_id, decide):
        answers = []
        hmac = self.changes[at].tokens.hmac_of(token_id)
        self.changes[at].change(hmac, decide, answers.append)
        return answers

    def known(self):
        return [{one.token_id for one in each.tokens} for each in self.changes]


def test_each_broker_knows_what_one_of_them_changed():
    brokers = Brokers(3)
    brokers.create("a", "b", at=1)
    assert brokers.known() == [{"a", "b"}] * 3
    (answer,) = run(brokers, brokers.change(2, "a", lambda token: token._replace(expires_ms=7)))
    assert answer.expires_ms == 7
    assert [each.tokens.get("a").expires_ms for each in brokers.changes] == [7, 7, 7]
    assert run(brokers, brokers.change(0, "b", lambda token: None)) == [None]
    assert brokers.known() == [{"a"}] * 3


def run(brokers, answers):
    brokers.loop.run()
    return answers


def test_changes_at_once_are_decided_one_after_the_other():
    brokers = Brokers(4)
    brokers.create("a")
    start = brokers.changes[0].tokens.get("a").expires_ms

    def later(token):
        return token._replace(expires_ms=token.expires_ms + 1)

    answers = [brokers.change(at, "a", later) for at in (0, 1, 2, 3, 0, 1, 2, 3)]
    brokers.loop.run()
    assert {one.expires_ms - start for (one,) in answers} == set(range(1, 9))
    assert {each.tokens.get("a").expires_ms for each in brokers.changes} == {start + 8}


def test_a_removed_token_is_not_found_by_a_change_that_came_too_late():
    brokers = Brokers(2)
    brokers.create("a")
    removing = brokers.change(0, "a", lambda token: None)
    changing = brokers.change(1, "a", lambda token: token._replace(expires_ms=7))
    brokers.loop.run()
    assert removing == [None]
    assert changing[0].code is E.DELEGATION_TOKEN_NOT_FOUND
    assert run(brokers, brokers.change(0, "never", lambda token: None))[0].code == 62


def test_a_token_of_another_broker_that_cannot_be_read_now_may_be_changed_later(monkeypatch):
    brokers = Brokers(2)
    get = brokers.store.get

    def fail_for_token(path, reply, *watch):
        if path == token_path("a"):
            reply(StoreError(StoreFailure.CONNECTION_LOSS, path))
        else:
            get(path, reply, *watch)

    monkeypatch.setattr(brokers.store, "get", fail_for_token)
    brokers.changes[1].create(brokers.token("a"), lambda _: None)
    (answer,) = run(brokers, brokers.change(0, "a", lambda token: None))
    assert answer.code is E.REQUEST_TIMED_OUT


def test_only_the_controller_removes_what_has_expired():
    brokers = Brokers(2)
    brokers.controller = 1
    brokers.create("short", "long")
    brokers.create("longer", life_ms=10 * HOUR_MS)
    run(brokers, brokers.change(0, "long", lambda token: token._replace(max_ms=1 << 60)))
    brokers.loop.sleep(HOUR_MS)
    assert sorted(brokers.removed) == [(1, "long"), (1, "short")]
    assert brokers.known() == [{"longer"}] * 2
    for _ in range(4):  # some of them end a check
        brokers.loop.sleep(4 * HOUR_MS)
    assert brokers.known() == [set()] * 2


def test_a_wall_clock_that_jumps_ahead_removes_no_token():
    brokers = Brokers(1)
    brokers.create("a", life_ms=5 * HOUR_MS)
    brokers.wall_clock.ahead_ms = 30 * 24 * HOUR_MS
    brokers.loop.sleep(HOUR_MS)
    brokers.wall_clock.ahead_ms = 0
    brokers.loop.sleep(HOUR_MS)
    assert brokers.known() == [{"a"}]


def test_many_expired_tokens_go_in_small_steps():
    brokers = Brokers(1)
    tokens = brokers.changes[0].tokens
    ids = [f"{number:05d}" for number in range(1050)]
    brokers.create(*ids)
    brokers.loop.now_ms += HOUR_MS
    for timer in brokers.loop._later:
        timer.at_ms = brokers.loop.now_ms
    most = 0
    while len(tokens):
        before = len(tokens)
        if not brokers.loop.step():
            brokers.loop._later, due = [], brokers.loop._later
            for timer in due:
                timer.fire()
        most = max(most, before - len(tokens))
    assert most == CHECKED_AT_ONCE
    assert [one for _, one in brokers.removed] == ids


def test_tokens_that_another_broker_changed_meanwhile_wait_for_the_next_check():
    brokers = Brokers(2)
    brokers.create("a", "b")
    failures = []
    brokers.store.set(token_path("a"), b"unreadable", ANY_VERSION, lambda _: None)
    brokers.changes[0].remove(["a", "b"], failures.append)
    brokers.loop.run()
    assert failures[0] is not None
    assert brokers.known()[0] == {"b"}, "what cannot be read logs nobody in"
    brokers.loop.sleep(HOUR_MS)
    assert brokers.removed == [(0, "b")]


def test_a_new_session_reads_everything_again():
    files = MemoryFiles()
    Brokers(1, files).create("kept", "gone")
    brokers = Brokers(2, files)
    assert brokers.known() == [{"kept", "gone"}] * 2
    quiet = []
    brokers.store.delete(token_path("gone"), ANY_VERSION, quiet.append)  # without a notification
    brokers.loop.run()
    assert brokers.known() == [{"kept", "gone"}] * 2
    for each in brokers.changes:
        each._session_changed(SessionState.OPEN)
        each.create(brokers.token(f"new-{id(each)}"), quiet.append)
    brokers.loop.run()
    assert [known >= {"kept"} and "gone" not in known for known in brokers.known()] == [True] * 2
    assert len(brokers.known()[0]) == 3


# -- what is known of them


def test_a_token_is_found_by_its_hmac_until_it_is_removed():
    brokers, tokens = Brokers(0), DelegationTokens("secret")
    tokens.put(brokers.token("a"))
    hmac = tokens.hmac_of("a")
    assert tokens.with_hmac(hmac).token_id == "a"
    assert DelegationTokens("other").hmac_of("a") != hmac
    assert tokens.with_hmac(hmac[:-1]) is None
    owner = tokens.get("a").owner
    tokens.put(brokers.token("a"))
    assert tokens.most_of(owner, owner) == 1
    tokens.remove("a")
    tokens.remove("a")
    assert tokens.with_hmac(hmac) is None
    assert tokens.most_of(owner, owner) == 0
    assert len(tokens) == 0


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_credentials_are_derived_once_and_alike_on_all_brokers(mechanism):
    brokers = Brokers(2)
    brokers.create("a")
    one, other = (each.tokens for each in brokers.changes)
    assert one.credential(mechanism, "a") is None
    one.derive(mechanism, "a")
    other.derive(mechanism, "a")
    one.derive(mechanism, "unknown")
    credential = one.credential(mechanism, "a")
    assert credential == other.credential(mechanism, "a")
    one.put(brokers.token("a", life_ms=1))
    assert one.credential(mechanism, "a") is credential, "a renewal keeps it"
    one.remove("a")
    one.put(brokers.token("a"))
    assert one.credential(mechanism, "a") is None
