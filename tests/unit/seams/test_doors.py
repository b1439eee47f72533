"""Clock, chance and tasks."""

import asyncio
import logging
import threading

from headwater.seams.clock import SystemClock
from headwater.seams.randomness import SystemRandomness
from headwater.seams.tasks import Lane, LoopTasks


def test_the_monotonic_clock_does_not_go_back():
    clock = SystemClock()
    times = [clock.monotonic_ms() for _ in range(1000)]
    assert times == sorted(times)
    assert clock.wall_ms() > 1_700_000_000_000


def test_ids_are_version_4_and_never_look_like_an_option():
    from headwater.model import uuid_text

    ids = {SystemRandomness().uuid() for _ in range(500)}
    assert len(ids) == 500
    for one in ids:
        assert one[6] >> 4 == 4
        assert one[8] >> 6 == 2
        assert not uuid_text(one).startswith("-")


def test_a_task_that_dies_is_told_with_its_name(caplog):
    async def body():
        async def die():
            raise ValueError("a bug")

        tasks = LoopTasks()
        task = tasks.spawn(die(), "sweeping")
        await asyncio.wait([task])
        tasks.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(body())
    assert any("sweeping died" in record.getMessage() for record in caplog.records)


def test_a_lane_that_is_full_holds_up_no_other_and_a_stop_drops_what_nobody_needs():
    gate, ran = threading.Event(), []

    async def body():
        tasks = LoopTasks()
        queued = [tasks.in_thread(gate.wait, Lane.CODEC) for _ in range(100)]
        for lane in Lane:
            if lane is not Lane.CODEC:
                await tasks.in_thread(lambda lane=lane: ran.append(lane), lane)
        last = tasks.in_thread(lambda: ran.append("checkpoint"))
        tasks.close()  # would wait forever, if it waited for the codecs
        gate.set()
        await asyncio.wait([*queued, last])
        return queued

    queued = asyncio.run(body())
    assert ran == [*(lane for lane in Lane if lane is not Lane.CODEC), "checkpoint"]
    assert any(future.cancelled() for future in queued)


def test_a_call_in_a_thread_gives_its_result_or_its_failure():
    async def body():
        tasks = LoopTasks()
        assert await tasks.in_thread(lambda: 42) == 42
        try:
            await tasks.in_thread(lambda: 1 // 0)
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError("the failure was swallowed")
        tasks.close()

    asyncio.run(body())
