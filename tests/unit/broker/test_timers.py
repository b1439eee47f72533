"""One timer for all deadlines."""

import asyncio

from headwater.broker.purgatory import Parked
from headwater.broker.timers import GRACE_S, LATE_MS, MOST_GRACES, DeadlineTimer, PatientTimers


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


class Timers:
    """`call_later` that a test runs by hand, as late as it likes."""

    def __init__(self):
        self.clock = Clock()
        self.waiting, self.called = [], []
        self.later = PatientTimers(self._later, self.clock.monotonic_ms)

    def _later(self, delay_s, call):
        handle = _Handle(delay_s, call)
        self.waiting.append((self.clock.now + round(1000 * delay_s), handle))
        return handle

    def fire(self, late_ms):
        due, handle = self.waiting.pop(0)
        self.clock.now = due + late_ms
        handle.call()


def test_a_timer_that_fires_in_time_calls_at_once():
    timers = Timers()
    timers.later(6.0, lambda: timers.called.append("expired"))
    timers.fire(late_ms=LATE_MS)
    assert timers.called == ["expired"]


def test_a_timer_that_fires_late_lets_the_loop_read_first():
    timers = Timers()
    timers.later(6.0, lambda: timers.called.append("expired"))
    timers.fire(late_ms=LATE_MS + 1)
    assert timers.called == []
    ((_, grace),) = timers.waiting
    assert grace.delay == GRACE_S
    timers.fire(late_ms=0)
    assert timers.called == ["expired"]


def test_a_loop_that_is_always_late_expires_in_the_end():
    timers = Timers()
    timers.later(6.0, lambda: timers.called.append("expired"))
    for _ in range(MOST_GRACES):
        timers.fire(late_ms=10_000)
    assert timers.called == []
    timers.fire(late_ms=10_000)
    assert timers.called == ["expired"]


def test_a_timer_that_was_put_off_can_be_cancelled():
    timers = Timers()
    timer = timers.later(6.0, lambda: timers.called.append("expired"))
    timers.fire(late_ms=1000)
    timer.cancel()
    ((_, grace),) = timers.waiting
    assert grace.cancelled
