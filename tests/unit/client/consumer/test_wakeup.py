"""The word that something came, to a task and to a thread."""

import asyncio
import threading

from headwater.client.consumer.wakeup import Wakeup


def test_nothing_came_at_first() -> None:
    assert not Wakeup().listen(0)


def test_a_thread_hears_what_came_before_it_listened() -> None:
    wakeup = Wakeup()
    wakeup.hush()
    wakeup.set()
    wakeup.set()
    assert wakeup.listen(0)
    assert not wakeup.listen(0)


def test_what_was_hushed_is_not_heard() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.hush()
    assert not wakeup.listen(0)


def test_a_thread_that_waits_is_woken() -> None:
    wakeup, heard = Wakeup(), []
    listener = threading.Thread(target=lambda: heard.append(wakeup.listen(30)))
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
        await asyncio.wait_for(wakeup.wait(1000), 30)

    asyncio.run(run())


def test_a_task_waits_no_longer_than_it_wants_to() -> None:
    async def run() -> None:
        wakeup = Wakeup()
        await asyncio.wait_for(wakeup.wait(0.001), 30)
        wakeup.set()
        await asyncio.wait_for(wakeup.wait(1000), 30)

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
        await asyncio.wait_for(wakeup.wait(1000), 30)

    asyncio.run(run())
