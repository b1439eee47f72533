"""Requests that wait: by deadline, with one timer for all."""

import asyncio

import pytest

from headwater.broker.purgatory import Purgatory


class Clock:
    """A clock that the test moves."""

    now = 0

    def monotonic_ms(self):
        return self.now


class Waiter:
    def __init__(self, name="", order=None):
        self.answered = False
        self.times_expired = 0
        self._name, self._order = name, order

    def expired(self):
        self.times_expired += 1
        self.answered = True
        if self._order is not None:
            self._order.append(self._name)


class Handle:
    def __init__(self, delay, call):
        self.delay, self.call, self.cancelled = delay, call, False

    def cancel(self):
        self.cancelled = True


class Loop:
    """Keeps what would be a timer, for the test to fire: real time is not waited for."""

    def __init__(self):
        self.timers = []

    def call_later(self, delay, call):
        self.timers.append(Handle(delay, call))
        return self.timers[-1]


@pytest.fixture
def loop(monkeypatch):
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return loop


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def purgatory(loop, clock):
    return Purgatory(clock)


def parked(purgatory, deadline, **options):
    waiter = Waiter(**options)
    purgatory.park(deadline, waiter)
    return waiter


def test_only_those_whose_deadline_came_expire_and_each_once(purgatory):
    late, early = parked(purgatory, 20), parked(purgatory, 10)
    purgatory.expire(9)
    assert early.times_expired == 0
    purgatory.expire(10)
    purgatory.expire(19)
    assert (early.times_expired, late.times_expired) == (1, 0)
    purgatory.expire(20)
    assert late.times_expired == 1


def test_an_answered_waiter_does_not_expire_and_does_not_set_the_timer(purgatory):
    answered = parked(purgatory, 10)
    parked(purgatory, 20)
    answered.answered = True
    assert purgatory.next_deadline() == 20
    purgatory.expire(100)
    assert answered.times_expired == 0


def test_an_empty_purgatory_has_no_deadline(purgatory):
    assert purgatory.next_deadline() is None
    purgatory.expire(100)


def test_equal_deadlines_expire_in_the_order_of_parking(purgatory):
    order = []
    for name in "abc":
        parked(purgatory, 5, name=name, order=order)
    purgatory.expire(5)
    assert order == ["a", "b", "c"]


def test_memory_follows_those_who_wait_not_those_who_ever_did(purgatory):
    for _ in range(10_000):
        parked(purgatory, 10**12).answered = True
    assert len(purgatory) < 2048


def test_a_waiter_may_park_another_while_it_expires(purgatory):
    first, second = Waiter(), Waiter()
    first.expired = lambda: purgatory.park(50, second)
    purgatory.park(10, first)
    purgatory.expire(10)
    assert purgatory.next_deadline() == 50


def test_one_timer_serves_the_nearest_deadline(purgatory, loop):
    parked(purgatory, 500)
    parked(purgatory, 900)
    assert [timer.delay for timer in loop.timers] == [0.5]
    parked(purgatory, 200)
    assert [(timer.delay, timer.cancelled) for timer in loop.timers] == [(0.5, True), (0.2, False)]


def test_after_a_deadline_comes_the_next_one(purgatory, loop, clock):
    first, second = parked(purgatory, 100), parked(purgatory, 300)
    clock.now = 100
    loop.timers.pop().call()
    assert (first.times_expired, second.times_expired) == (1, 0)
    assert [timer.delay for timer in loop.timers] == [0.2]
    clock.now = 300
    loop.timers.pop().call()
    assert second.times_expired == 1
    assert loop.timers == [], "nobody waits, nothing ticks"


def test_answered_waiters_do_not_keep_the_timer_going(purgatory, loop, clock):
    parked(purgatory, 100)
    parked(purgatory, 300).answered = True
    clock.now = 100
    loop.timers.pop().call()
    assert loop.timers == []


def test_a_deadline_in_the_past_fires_at_once(purgatory, loop, clock):
    clock.now = 1000
    parked(purgatory, 400)
    assert loop.timers[0].delay == 0


def test_a_closed_purgatory_leaves_no_timer(purgatory, loop):
    parked(purgatory, 500)
    purgatory.close()
    assert loop.timers[0].cancelled
