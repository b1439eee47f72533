"""How much of a quota is left: token buckets. Pure: callers pass the time.

A bucket fills with the rate of its quota. A client that has something left may spend more than that,
once: it is then in debt, and waits on all of its connections until the debt is paid.
"""

from collections import OrderedDict
from itertools import islice
from typing import NamedTuple
from weakref import WeakValueDictionary

BURST_S = 0.05
"""The seconds of its rate that a bucket holds. It bounds what idle clients save up."""
MOST_BUCKETS = 10_000
EXPIRY_US = 3_600_000_000
_LOOKED_AT = 8
"""How many old buckets are looked at to make room for a new one."""


class BucketOwner(NamedTuple):
    """Who shares a bucket: a user, a client id, or one client id of one user."""

    key: str
    """The name of the quota."""
    user: str | None
    client_id: str | None


class QuotaBucket:
    """What is left of one quota.

    Over any time t it admits at most `rate * (t + 2 * burst_s)` and one last request. It is refilled only
    when too little is left, so that most requests do not need the time.
    """

    __slots__ = ("__weakref__", "_burst_s", "_refilled_us", "left", "owner", "rate", "throttled_us")

    def __init__(
        self, owner: BucketOwner, rate: float, now_us: int, burst_s: float = BURST_S
    ) -> None:
        self.owner = owner
        self.rate = rate
        """Units per second."""
        self.left = rate * burst_s
        """Negative while in debt."""
        self.throttled_us = 0
        """How long its debts lasted in all."""
        self._burst_s = burst_s
        self._refilled_us = now_us

    @property
    def used_us(self) -> int:
        """About when it was last spent from."""
        return self._refilled_us

    def use_rate(self, rate: float, now_us: int) -> None:
        """Change the rate; a debt is paid with the new rate, but lasts no longer than before."""
        if rate != self.rate:
            if self.wait_us(now_us):
                self.left *= min(1.0, rate / self.rate)
            self.rate = rate
            self.left = min(self.left, rate * self._burst_s)

    def wait_us(self, now_us: int) -> int:
        """Return how long the debt lasts; 0 without one."""
        elapsed_us = now_us - self._refilled_us
        if elapsed_us > 0:
            rate = self.rate
            self.left = min(rate * self._burst_s, self.left + rate * elapsed_us / 1_000_000)
            self._refilled_us = now_us
        return 0 if self.left >= 0 else int(-self.left / self.rate * 1_000_000) + 1

    def spend(self, amount: float, now_us: int) -> int:
        """Spend, possibly more than is left; return how long the debt lasts."""
        before_us = self.wait_us(now_us) if self.left < amount else 0
        self.left -= amount
        wait_us = self.wait_us(now_us) if self.left < 0 else 0
        self.throttled_us += wait_us - before_us
        return wait_us


class QuotaBuckets:
    """The buckets of the clients that were seen last: a client that makes up names costs no memory.

    A bucket that a connection still counts against is found again even if it was dropped: two buckets
    of one owner would admit twice the quota.
    """

    def __init__(self, most: int = MOST_BUCKETS) -> None:
        self._most = most
        self._by_owner: OrderedDict[BucketOwner, QuotaBucket] = OrderedDict()
        self._in_use = WeakValueDictionary[BucketOwner, QuotaBucket]()

    def throttled(self) -> list[QuotaBucket]:
        """Return the buckets that have made clients wait."""
        return [bucket for bucket in self._by_owner.values() if bucket.throttled_us]

    def get(
        self, owner: BucketOwner, rate: float, now_us: int, burst_s: float = BURST_S
    ) -> QuotaBucket:
        """Return the bucket of an owner, with this rate."""
        bucket = self._in_use.get(owner)
        if owner not in self._by_owner:
            self._make_room(now_us)
        if bucket is None:
            bucket = self._in_use[owner] = QuotaBucket(owner, rate, now_us, burst_s)
        else:
            bucket.use_rate(rate, now_us)
        self._by_owner[owner] = bucket
        self._by_owner.move_to_end(owner)
        return bucket

    def _make_room(self, now_us: int) -> None:
        """Drop old buckets that were not used for an hour and, if there are too many, one more."""
        oldest = list(islice(self._by_owner.values(), _LOOKED_AT))
        for bucket in oldest:
            if now_us - bucket.used_us >= EXPIRY_US:
                del self._by_owner[bucket.owner]
        if len(self._by_owner) >= self._most:
            del self._by_owner[min(oldest, key=_last_use).owner]


def _last_use(bucket: QuotaBucket) -> int:
    return bucket.used_us
