"""However clients spread their requests, a bucket admits no more than its quota, and not much less."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from headwater.security.quota_buckets import BURST_S, BucketOwner, QuotaBucket

SECOND = 1_000_000
OWNER = BucketOwner("producer_byte_rate", "u", None)


def most_in_a_window(admitted: list[tuple[int, float]], window_us: int) -> float:
    times = [at for at, _ in admitted]
    return max(
        sum(size for _, size in admitted[rank : bisect_left(times, at + window_us)])
        for rank, (at, _) in enumerate(admitted)
    )


class Clients:
    """Connections that each send one request after another; all of them share a bucket."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.now_us = 0
        self.bucket = QuotaBucket(OWNER, rate, 0)
        self.admitted: list[tuple[int, float]] = []

    def offer(self, size: float) -> None:
        """A request that waits for the end of the debt, as the broker lets it."""
        self.now_us += self.bucket.wait_us(self.now_us)
        assert self.bucket.wait_us(self.now_us) == 0, "the debt lasts as long as it was said"
        self.admitted.append((self.now_us, size))
        self.bucket.spend(size, self.now_us)


shares = st.floats(0.001, 0.9)
"""The size of a request, in seconds of the rate."""


@given(
    st.floats(1, 1e9),
    st.lists(st.tuples(shares, st.integers(0, 3 * SECOND)), min_size=1, max_size=200),
)
def test_no_window_has_more_than_its_share(rate, requests):
    clients = Clients(rate)
    for share, pause_us in requests:
        clients.offer(share * rate)
        clients.now_us += pause_us
    most = most_in_a_window(clients.admitted, 10 * SECOND)
    assert (
        most
        <= 10 * rate + 2 * BURST_S * rate + max(size for _, size in clients.admitted) + 1e-3 * rate
    )
    assert most <= 1.1 * 10 * rate + 1e-3 * rate


@given(st.floats(100, 1e9), st.lists(shares, min_size=1, max_size=20), st.integers(0, 40_000))
def test_a_client_that_always_has_more_gets_its_share(rate, sizes, latency_us):
    clients = Clients(rate)
    while clients.now_us < 30 * SECOND:
        for share in sizes:
            clients.offer(max(0.1, share) * rate)
            clients.now_us += latency_us  # until its next request comes
    total = sum(size for _, size in clients.admitted)
    assert total >= 0.95 * rate * clients.now_us / SECOND


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, SECOND)), max_size=50))
def test_the_bucket_equals_one_that_refills_all_the_time(steps):
    """A naive model knows the balance at every moment; the bucket looks at it only if it is spent."""
    rate, burst = 50.0, 50.0 * BURST_S
    bucket, balance, now_us = QuotaBucket(OWNER, rate, 0), burst, 0
    for amount, pause_us in steps:
        now_us += pause_us
        balance = min(burst, balance + rate * pause_us / SECOND)
        wait_us = bucket.spend(amount, now_us)
        balance -= amount
        waits = max(0.0, -balance / rate * SECOND)
        assert wait_us <= waits + 2
        # It may give a full bucket more, because it does not know when it was full.
        assert wait_us >= waits - BURST_S * SECOND - 2


def test_a_debt_is_paid_with_the_new_rate_and_lasts_no_longer():
    bucket = QuotaBucket(OWNER, 100, 0)
    assert bucket.spend(105, 0) == SECOND + 1
    bucket.use_rate(1000, 0)
    assert bucket.wait_us(0) == SECOND // 10 + 1
    bucket.use_rate(10, 0)
    assert bucket.wait_us(0) == SECOND // 10 + 1
    assert bucket.throttled_us == SECOND + 1
