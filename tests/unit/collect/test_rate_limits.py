"""Rates, room and the broker's absence, by a clock that the test moves."""

from headwater.collect.rate_limits import (
    ByteBudget,
    CircuitBreaker,
    RateLimits,
    TokenBucket,
    account_of,
    client_of,
)


def test_a_bucket_gives_its_rate_and_no_more() -> None:
    bucket, sent = TokenBucket(10, 0), 0
    for now in range(10_000):
        if not bucket.wait_ms(now):
            bucket.spend(1)
            sent += 1
    assert 100 <= sent <= 110  # ten seconds and the first second's worth at once


def test_the_wait_that_is_told_is_long_enough_and_no_longer() -> None:
    bucket = TokenBucket(4, 0)
    bucket.spend(5)
    wait = bucket.wait_ms(0)
    assert bucket.wait_ms(wait) == 0
    assert TokenBucket(4, 0).wait_ms(0) == 0
    assert 490 <= wait <= 510


def test_a_batch_larger_than_the_bucket_is_taken_and_paid_for() -> None:
    limits = RateLimits(10, None)
    assert limits.try_spend("a", 100, 0) == 0
    assert 9000 <= limits.try_spend("a", 1, 0) <= 9200
    assert limits.try_spend("a", 1, 9200) == 0


def test_each_client_has_its_own_rate_and_all_share_the_total() -> None:
    limits = RateLimits(1, 3)
    assert limits.try_spend("a", 1, 0) == 0
    assert limits.try_spend("a", 1, 0) > 0
    assert limits.try_spend("b", 1, 0) == 0
    assert limits.try_spend("c", 1, 0) == 0
    assert limits.try_spend("d", 1, 0) > 0


def test_who_is_refused_spends_nothing() -> None:
    limits = RateLimits(1, 2)
    assert limits.try_spend("a", 1, 0) == 0
    for _ in range(100):
        assert limits.try_spend("a", 1, 0) > 0
    assert limits.try_spend("b", 1, 0) == 0


def test_without_rates_nobody_waits() -> None:
    assert RateLimits(None, None).try_spend("a", 10**9, 0) == 0


def test_clients_past_the_capacity_cost_no_memory() -> None:
    limits = RateLimits(1, None, capacity=10)
    for number in range(1000):
        limits.try_spend(f"client {number}", 1, 0)
    assert len(limits._clients) == 10


def test_room_is_given_back() -> None:
    budget = ByteBudget(10)
    assert budget.try_reserve(7)
    assert not budget.try_reserve(4)
    budget.release(7)
    assert budget.try_reserve(10)


def test_while_the_broker_is_away_one_request_a_second_tries() -> None:
    breaker = CircuitBreaker()
    assert breaker.wait_ms(0) == 0
    breaker.failed(0)
    assert breaker.wait_ms(400) == 600
    assert breaker.wait_ms(1000) == 0
    assert breaker.wait_ms(1001) == 999
    breaker.succeeded()
    assert breaker.wait_ms(1002) == 0


def test_the_client_is_the_last_address_that_the_proxy_added() -> None:
    assert client_of("10.0.0.1", None) == "10.0.0.1"
    assert client_of("10.0.0.1", "6.6.6.6, 192.0.2.7") == "192.0.2.7"
    assert client_of("10.0.0.1", "nonsense\nmore") == "10.0.0.1"
    assert client_of("", "") == ""


def test_a_network_of_64_bits_is_one_account() -> None:
    assert account_of("192.0.2.7") == "192.0.2.7"
    assert account_of("2001:db8:1:2:3::4") == account_of("2001:db8:1:2::5") == "2001:db8:1:2::/64"
    assert account_of("::ffff:192.0.2.7") == "::ffff:192.0.2.7"
    assert account_of("") == ""
