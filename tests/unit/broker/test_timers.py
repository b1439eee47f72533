"""One timer for all deadlines."""

import asyncio

from headwater.broker.timers import DeadlineTimer
from headwater.replication.parked import Parked


class Clock:
    """A clock that the test moves."""

    now = 0

    def monotonic_ms(self):
        return self.now


class Waiter:
    def __init__(self, told):
        self.answered = False
        self._told = told

    def expired(self):
        self.answered = True
        self._told.append(self)


def run(body):
    async def main():
        parked, clock = Parked(), Clock()
        timer = DeadlineTimer(parked, clock)
        fired = []
        loop = asyncio.get_running_loop()
        # Real time is not waited for: what would be a timer is kept and run by hand.
        calls = []
        loop.call_later = lambda delay, call: calls.append(_Handle(delay, call)) or calls[-1]
        body(parked, clock, timer, calls, fired)
        timer.close()

    asyncio.run(main())


class _Handle:
    def __init__(self, delay, call):
        self.delay, self.call, self.cancelled = delay, call, False

    def cancel(self):
        self.cancelled = True


def park(parked, timer, deadline, told):
    waiter = Waiter(told)
    parked.park(deadline, waiter)
    timer.arm(deadline)
    return waiter


def test_one_timer_for_the_nearest_deadline():
    def body(parked, clock, timer, calls, told):
        park(parked, timer, 500, told)
        park(parked, timer, 900, told)
        assert [handle.delay for handle in calls] == [0.5]
        park(parked, timer, 200, told)
        assert [(handle.delay, handle.cancelled) for handle in calls] == [(0.5, True), (0.2, False)]

    run(body)


def test_after_a_deadline_comes_the_next_one():
    def body(parked, clock, timer, calls, told):
        first, second = park(parked, timer, 100, told), park(parked, timer, 300, told)
        clock.now = 100
        calls.pop().call()
        assert told == [first]
        assert [handle.delay for handle in calls] == [0.2]
        clock.now = 300
        calls.pop().call()
        assert told == [first, second]
        assert calls == [], "nobody waits, nothing ticks"

    run(body)


def test_answered_waiters_do_not_keep_the_timer_going():
    def body(parked, clock, timer, calls, told):
        park(parked, timer, 100, told)
        answered = park(parked, timer, 300, told)
        answered.answered = True
        clock.now = 100
        calls.pop().call()
        assert calls == []

    run(body)


def test_a_deadline_in_the_past_fires_at_once():
    def body(parked, clock, timer, calls, told):
        clock.now = 1000
        park(parked, timer, 400, told)
        assert calls[0].delay == 0

    run(body)
