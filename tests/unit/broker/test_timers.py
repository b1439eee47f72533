"""Timers that tolerate a stall of the event loop."""

from headwater.broker.timers import GRACE_S, LATE_MS, MOST_GRACES, PatientTimers


class Clock:
    """A clock that the test moves."""

    now = 0

    def monotonic_ms(self):
        return self.now


class _Handle:
    def __init__(self, delay, call):
        self.delay, self.call, self.cancelled = delay, call, False

    def cancel(self):
        self.cancelled = True


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
