"""Virtual time: order, jumps, and the end of a process."""

import asyncio

import pytest

from simulator.loop import Crashed, Scheduler, SimLoop, Stuck
from simulator.trace import Trace


@pytest.fixture
def scheduler():
    return Scheduler(Trace())


@pytest.fixture
def loop(scheduler):
    return SimLoop(scheduler, "process")


def test_what_is_ready_runs_in_order_and_timers_by_their_time(scheduler, loop):
    seen = []
    loop.call_later(0.2, seen.append, "late")
    loop.call_later(0.1, seen.append, "early")
    loop.call_soon(seen.append, "now")
    scheduler.run_until(lambda: len(seen) == 3, 1)
    assert seen == ["now", "early", "late"]
    assert scheduler.now_us == 200_000


def test_timers_of_one_instant_run_before_what_they_make_ready(scheduler, loop):
    seen = []
    loop.call_later(0.1, lambda: (seen.append("first"), loop.call_soon(seen.append, "third")))
    loop.call_later(0.1, seen.append, "second")
    scheduler.run_until(lambda: len(seen) == 3, 1)
    assert seen == ["first", "second", "third"]


def test_a_timer_that_is_set_again_until_its_time_has_come_ends(scheduler, loop):
    """Sums of floats are a little off: 0.3 s may be due after the microsecond 300,000."""
    due_s, fired = 0.1 + 0.2, []
    assert round(due_s * 1e6) / 1e6 < due_s

    def passed():
        fired.append(loop.time())
        if loop.time() < due_s:
            loop.call_later(due_s - loop.time(), passed)

    loop.call_later(due_s, passed)
    scheduler.run_until(lambda: bool(fired) and fired[-1] >= due_s, 1)
    assert fired == [0.3, 0.300001]


def test_a_year_of_sleep_takes_no_time(loop):
    async def sleep() -> float:
        await asyncio.sleep(365 * 86400)
        return asyncio.get_running_loop().time()

    assert loop.run(sleep(), limit_s=1e9) == 365 * 86400


def test_asyncio_works_on_it(loop):
    async def work() -> list[str]:
        event = asyncio.Event()

        async def wait() -> str:
            async with asyncio.timeout(5):
                await event.wait()
            return "woken"

        async def too_slow() -> str:
            try:
                async with asyncio.timeout(1):
                    await asyncio.sleep(2)
            except TimeoutError:
                event.set()
            return "timed out"

        return await asyncio.gather(wait(), too_slow())

    assert loop.run(work()) == ["woken", "timed out"]


def test_a_cancelled_timer_does_not_run(scheduler, loop):
    seen = []
    loop.call_later(0.1, seen.append, "no").cancel()
    loop.call_later(0.2, seen.append, "yes")
    scheduler.run_until(lambda: bool(seen), 1)
    assert seen == ["yes"]


def test_nothing_of_a_killed_loop_runs_and_the_other_goes_on(scheduler, loop):
    other = SimLoop(scheduler, "other")
    seen = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            seen.append("worked")
        finally:
            loop.call_soon(seen.append, "after death")

    task = loop.create_task(work())
    other.call_later(0.5, loop.kill)
    other.call_later(2, seen.append, "other")
    scheduler.run_until(lambda: bool(seen), 5)
    assert seen == ["other"]
    assert not task.done()
    assert scheduler.complaints == []


def test_an_exception_that_nobody_catches_is_a_complaint_and_a_crash_is_not(scheduler, loop):
    def fail() -> None:
        raise ValueError("oops")

    def crash() -> None:
        raise Crashed

    done = []
    loop.call_soon(crash)
    loop.call_soon(fail)
    loop.call_soon(done.append, True)
    scheduler.run_until(lambda: bool(done), 1)
    assert len(scheduler.complaints) == 1
    assert "oops" in scheduler.complaints[0]


def test_a_wait_without_end_is_stuck(scheduler, loop):
    loop.call_later(10, lambda: None)
    with pytest.raises(Stuck):
        scheduler.run_until(lambda: False, 5)
