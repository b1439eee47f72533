"""The word that something came, to a task and to a thread."""

import asyncio
import threading

from headwater.client.consumer.arrival import Arrival


def test_nothing_came_at_first() -> None:
    assert not Arrival().listen(0)


def test_a_thread_hears_what_came_before_it_listened() -> None:
    arrival = Arrival()
    arrival.hush()
    arrival.set()
    arrival.set()
    assert arrival.listen(0)
    assert not arrival.listen(0)


def test_what_was_hushed_is_not_heard() -> None:
    arrival = Arrival()
    arrival.set()
    arrival.hush()
    assert not arrival.listen(0)


def test_a_thread_that_waits_is_woken() -> None:
    arrival, heard = Arrival(), []
    listener = threading.Thread(target=lambda: heard.append(arrival.listen(30)))
    listener.start()
    arrival.set()
    listener.join()
    assert heard == [True]


def test_a_task_that_waits_is_woken() -> None:
    async def run() -> None:
        arrival = Arrival()
        arrival.set()
        await arrival.wait(0)
        arrival.clear()
        asyncio.get_running_loop().call_soon(arrival.set)
        await asyncio.wait_for(arrival.wait(1000), 30)

    asyncio.run(run())


def test_a_task_waits_no_longer_than_it_wants_to() -> None:
    async def run() -> None:
        arrival = Arrival()
        await asyncio.wait_for(arrival.wait(0.001), 30)
        arrival.set()
        await asyncio.wait_for(arrival.wait(1000), 30)

    asyncio.run(run())


def test_a_task_that_gave_up_waiting_disturbs_nobody() -> None:
    async def run() -> None:
        arrival = Arrival()
        waiting = asyncio.create_task(arrival.wait(1000))
        await asyncio.sleep(0)
        waiting.cancel()
        arrival.set()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        await asyncio.wait_for(arrival.wait(1000), 30)

    asyncio.run(run())
