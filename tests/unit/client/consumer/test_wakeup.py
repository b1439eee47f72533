"""A wakeup ends the wait of a task or of a thread, also where it comes before the wait."""

import asyncio
import threading

from headwater.client.consumer.wakeup import Wakeup


def test_a_new_wakeup_is_not_set() -> None:
    assert not Wakeup().wait_in_thread(0)


def test_a_wakeup_before_the_wait_ends_it_once() -> None:
    wakeup = Wakeup()
    wakeup.clear()
    wakeup.set()
    wakeup.set()
    assert wakeup.wait_in_thread(0)
    assert not wakeup.wait_in_thread(0)


def test_a_cleared_wakeup_ends_no_wait() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.clear()
    assert not wakeup.wait_in_thread(0)


def test_a_thread_that_waits_is_woken() -> None:
    wakeup, heard = Wakeup(), []
    listener = threading.Thread(target=lambda: heard.append(wakeup.wait_in_thread(30)))
    listener.start()
    wakeup.set()
    listener.join()
    assert heard == [True]


def test_a_task_that_waits_is_woken() -> None:
    async def run() -> None:
        wakeup = Wakeup()
        wakeup.set()
        await wakeup.wait(0)
        wakeup.clear()
        asyncio.get_running_loop().call_soon(wakeup.set)
        await asyncio.wait_for(wakeup.wait(1000), 60)

    asyncio.run(run())


def test_a_task_waits_no_longer_than_it_wants_to() -> None:
    async def run() -> None:
        wakeup = Wakeup()
        await asyncio.wait_for(wakeup.wait(0.001), 60)
        wakeup.set()
        await asyncio.wait_for(wakeup.wait(1000), 60)

    asyncio.run(run())


def test_a_task_that_gave_up_waiting_disturbs_nobody() -> None:
    async def run() -> None:
        wakeup = Wakeup()
        waiting = asyncio.create_task(wakeup.wait(1000))
        await asyncio.sleep(0)
        waiting.cancel()
        wakeup.set()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        await asyncio.wait_for(wakeup.wait(1000), 60)

    asyncio.run(run())
