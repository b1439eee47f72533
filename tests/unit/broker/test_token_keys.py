"""Keys of an identity provider: fetched once at a time and seldom, and kept while it is away."""

import asyncio
import logging

import pytest

from headwater.broker.token_keys import WOKEN_AT_ONCE, TokenKeys
from headwater.seams.web import WebError
from headwater.security.bearer_tokens import TokenRefused
from headwater.security.key_refresh import MIN_INTERVAL_MS, KeyRefresh
from headwater.security.sasl_exchange import WaitFirst
from headwater.security.signing_keys import parse_key_set
from tests.unit.security.identity_provider import jwk, jwks

ONE, BOTH = jwks(jwk("one")), jwks(jwk("one"), jwk("two"))


class Fetching:
    """TokenKeys whose fetches end when the test says so."""

    def __init__(self):
        self.now_ms = 1_000_000
        self.begun = []
        refresh = KeyRefresh(3_600_000, 100, 10_000)
        self.keys = TokenKeys("https://login.example/keys", lambda: b"", refresh, self.run, self)

    def monotonic_ms(self):
        return self.now_ms

    def run(self, call, done, lane):
        self.begun.append(done)

    def end(self, document):
        """End the fetch under way."""
        done = self.begun[-1]
        if isinstance(document, bytes):
            done(parse_key_set(document), None)
        else:
            done(None, document)

    def next_ms(self):
        """The pause before the next fetch, on a loop whose clock does not move."""
        return round((self.keys._timer.when() - asyncio.get_running_loop().time()) * 1000)


def run(scenario):
    async def main():
        fetching = Fetching()
        await scenario(fetching)
        fetching.keys.close()

    asyncio.run(main())


def test_a_login_waits_for_the_first_fetch_and_is_answered_whether_keys_come_or_not():
    async def scenario(fetching):
        woken = []
        for _ in range(3):
            with pytest.raises(WaitFirst) as waits:
                fetching.keys.find("one")
            waits.value.when_ready(lambda: woken.append(1))
        assert len(fetching.begun) == 1
        fetching.end(ONE)
        assert len(woken) == 3
        assert fetching.keys.find("one").keys.keys() == {"one"}

    run(scenario)

    async def provider_is_down(fetching):
        with pytest.raises(WaitFirst):
            fetching.keys.find("one")
        fetching.end(WebError("did not answer within 10 s"))
        with pytest.raises(TokenRefused, match="no keys to check tokens with"):
            fetching.keys.find("one")

    run(provider_is_down)


def test_a_flood_of_unknown_keys_is_one_fetch_in_ten_seconds():
    async def scenario(fetching):
        fetching.keys.fetch()
        fetching.end(ONE)
        for passed_ms in range(0, 60_000, 100):
            fetching.now_ms = 1_000_000 + passed_ms
            try:
                fetching.keys.find(f"unknown {passed_ms}")
            except WaitFirst:
                fetching.end(ONE)
            except TokenRefused:
                pass
            assert fetching.keys.find("one")
        assert len(fetching.begun) == 6

    run(scenario)


def test_a_rotated_key_is_found_by_the_login_that_needs_it():
    async def scenario(fetching):
        fetching.keys.fetch()
        fetching.end(ONE)
        with pytest.raises(TokenRefused, match="has no key 'two'"):
            fetching.keys.find("two")
        fetching.now_ms += MIN_INTERVAL_MS
        with pytest.raises(WaitFirst):
            fetching.keys.find("two")
        assert fetching.keys.find("one")  # nobody with a known key waits
        fetching.end(BOTH)
        assert fetching.keys.find("two")
        fetching.now_ms += MIN_INTERVAL_MS
        fetching.keys.fetch()
        fetching.end(jwks(jwk("two")))
        fetching.now_ms += 1
        with pytest.raises(TokenRefused, match="has no key 'one'"):
            fetching.keys.find("one")

    run(scenario)


@pytest.mark.parametrize("problem", [WebError("answered 500"), ValueError("is not JSON")])
def test_keys_stay_in_use_while_the_provider_is_away(problem, caplog):
    async def scenario(fetching):
        began = asyncio.get_running_loop().time()
        asyncio.get_running_loop().time = lambda: began
        fetching.keys.fetch()
        fetching.end(ONE)
        assert fetching.next_ms() == 3_600_000
        pauses = []
        for _ in range(9):
            fetching.keys.fetch()
            fetching.end(problem)
            pauses.append(fetching.next_ms())
            assert fetching.keys.find("one")
        assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
        fetching.keys.fetch()
        fetching.end(ONE)
        assert fetching.next_ms() == 3_600_000

    with caplog.at_level(logging.INFO):
        run(scenario)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == [
        f"JWKS: https://login.example/keys: the keys for tokens cannot be read: it {problem}; the 1 keys that were read before stay in use"
    ]


def test_thousands_of_waiting_logins_do_not_hold_the_loop():
    async def scenario(fetching):
        woken = []
        with pytest.raises(WaitFirst) as waits:
            fetching.keys.find("one")
        for number in range(3 * WOKEN_AT_ONCE):
            waits.value.when_ready(lambda number=number: woken.append(number))
        fetching.end(ONE)
        assert len(woken) == WOKEN_AT_ONCE
        for rounds in (2, 3):
            await asyncio.sleep(0)
            assert woken == list(range(rounds * WOKEN_AT_ONCE))

    run(scenario)


def test_nothing_is_fetched_twice_at_once_or_after_the_stop():
    async def scenario(fetching):
        fetching.keys.fetch()
        fetching.keys.fetch()
        assert len(fetching.begun) == 1
        fetching.keys.close()
        fetching.end(ONE)
        assert fetching.keys._timer is None

    run(scenario)
