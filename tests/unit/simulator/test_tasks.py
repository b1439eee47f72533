"""Threads that are events: late, and never at the same time as anything else."""

import asyncio

import pytest

from simulator.loop import Scheduler, SimLoop
from simulator.randomness import stream
from simulator.tasks import SimTasks
from simulator.trace import Trace


@pytest.fixture
def loop():
    return SimLoop(Scheduler(Trace()), "process")


@pytest.fixture
def tasks(loop):
    return SimTasks(loop, stream(1, "threads"), slowest_ms=20)


def test_a_call_runs_later_and_its_result_comes_later_still(loop, tasks):
    ran = []

    async def work() -> tuple[bool, int, list[str]]:
        future = tasks.in_thread(lambda: ran.append("ran") or 42)
        at_once = bool(ran)
        await asyncio.sleep(0)
        return at_once, await future, ran

    assert loop.run(work()) == (False, 42, ["ran"])
    assert loop.scheduler.now_us > 0


def test_a_failure_is_the_callers(loop, tasks):
    def fail() -> None:
        raise OSError(5, "broken")

    async def work() -> str:
        try:
            await tasks.in_thread(fail)
        except OSError as failure:
            return failure.strerror
        return "nothing"

    assert loop.run(work()) == "broken"


def test_no_loop_runs_in_a_thread(loop, tasks):
    def look() -> bool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    async def work() -> bool:
        return await tasks.in_thread(look)

    assert loop.run(work()) is False


def test_close_runs_what_waits(loop, tasks):
    ran = []

    async def work() -> list[str]:
        tasks.in_thread(lambda: ran.append("ran"))
        tasks.close()
        return list(ran)

    assert loop.run(work()) == ["ran"]


def test_the_death_of_a_task_is_a_complaint(loop, tasks):
    async def die() -> None:
        raise ValueError("why")

    async def work() -> None:
        tasks.spawn(die(), "flush")
        await asyncio.sleep(1)

    loop.run(work())
    assert "task flush died" in loop.scheduler.complaints[0]
