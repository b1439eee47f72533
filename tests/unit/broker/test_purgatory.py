"""Waiters by deadline."""

from headwater.broker.purgatory import Parked


class Waiter:
    def __init__(self):
        self.answered = False
        self.times_expired = 0

    def expired(self):
        self.times_expired += 1
        self.answered = True


def test_only_those_whose_deadline_came_are_told_and_each_once():
    parked, early, late = Parked(), Waiter(), Waiter()
    parked.park(20, late)
    parked.park(10, early)
    parked.expire(9)
    assert early.times_expired == 0
    parked.expire(10)
    parked.expire(19)
    assert (early.times_expired, late.times_expired) == (1, 0)
    parked.expire(20)
    assert late.times_expired == 1


def test_an_answered_waiter_is_left_alone_and_does_not_set_the_alarm():
    parked, answered, waiting = Parked(), Waiter(), Waiter()
    parked.park(10, answered)
    parked.park(20, waiting)
    answered.answered = True
    assert parked.next_deadline() == 20
    parked.expire(100)
    assert answered.times_expired == 0


def test_nobody_waits_forever_for_nothing():
    parked = Parked()
    assert parked.next_deadline() is None
    parked.expire(100)


def test_equal_deadlines_are_told_in_the_order_of_parking():
    parked, told = Parked(), []
    for name in "abc":
        waiter = Waiter()
        waiter.expired = lambda name=name: told.append(name)
        parked.park(5, waiter)
    parked.expire(5)
    assert told == ["a", "b", "c"]


def test_memory_follows_those_who_wait_not_those_who_ever_did():
    parked = Parked()
    for _ in range(10_000):
        waiter = Waiter()
        parked.park(10**12, waiter)
        waiter.answered = True
    assert len(parked) < 2048


def test_a_waiter_may_park_another_while_it_is_told():
    parked, second = Parked(), Waiter()
    first = Waiter()
    first.expired = lambda: parked.park(50, second)
    parked.park(10, first)
    parked.expire(10)
    assert parked.next_deadline() == 50
