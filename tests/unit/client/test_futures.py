"""One future per batch, and what a single record sees of it."""

import asyncio
import threading

import pytest

from headwater.client.errors import DeliveryTimeoutError, TimedOutError
from headwater.client.producer.bulk import SentMany
from headwater.client.producer.futures import BatchFuture, RecordMetadata, SendFuture


def view(future: BatchFuture, index: int, timestamp: int = 7) -> SendFuture:
    return SendFuture((future, index, timestamp))


def test_a_record_is_as_far_into_the_log_as_into_its_batch() -> None:
    future = BatchFuture("t", 3)
    third = view(future, 2)
    assert not third.done()
    future.succeed(100, -1)
    assert third.result(0) == RecordMetadata("t", 3, 102, 7)
    assert third.exception(0) is None


def test_log_append_time_replaces_the_records_own() -> None:
    future = BatchFuture("t", 0)
    future.succeed(0, 99)
    assert view(future, 0).result(0).timestamp == 99


def test_an_offset_nobody_told_stays_unknown() -> None:
    future = BatchFuture("t", 0)
    future.succeed(-1, -1)
    assert view(future, 5).result(0).offset == -1


def test_a_failure_is_raised_for_every_record() -> None:
    future = BatchFuture("t", 0)
    future.fail(DeliveryTimeoutError("too late"))
    for index in range(2):
        with pytest.raises(DeliveryTimeoutError, match="too late"):
            view(future, index).result(0)


def test_a_wait_keeps_its_timeout() -> None:
    with pytest.raises(TimedOutError, match=r"within 0\.01 s"):
        view(BatchFuture("t", 0), 0).result(0.01)


def test_who_waits_for_a_split_batch_hears_from_the_part() -> None:
    whole, first, second = (BatchFuture("t", 0) for _ in range(3))
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(view(whole, n).result(60).offset))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    whole.split([(0, first), (3, second)])
    assert not view(whole, 0).done()
    assert whole.pending() == [first, second]
    first.succeed(10, -1)
    second.succeed(50, -1)
    for thread in threads:
        thread.join(60)
    assert sorted(results) == [10, 11, 12, 50]
    assert whole.pending() == []


def test_callbacks_come_once_before_or_after_the_end_and_through_splits() -> None:
    whole, part = BatchFuture("t", 0), BatchFuture("t", 0)
    told: list[int] = []
    view(whole, 0).add_done_callback(lambda future: told.append(future.result(0).offset))
    whole.split([(0, part)])
    assert told == []
    part.succeed(4, -1)
    view(whole, 1).add_done_callback(lambda future: told.append(future.result(0).offset))
    assert told == [4, 5]


def test_await_in_one_loop_what_another_thread_finishes() -> None:
    future = BatchFuture("t", 0)

    async def wait() -> RecordMetadata:
        asyncio.get_running_loop().call_soon(
            threading.Thread(target=future.succeed, args=(1, -1)).start
        )
        return await view(future, 1)

    assert asyncio.run(wait()).offset == 2


def test_an_await_that_was_cancelled_leaves_nothing_behind() -> None:
    future = BatchFuture("t", 0)

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await view(future, 0)
        future.succeed(1, -1)
        assert (await view(future, 0)).offset == 1

    asyncio.run(wait())


def test_many_are_done_when_each_batch_and_each_part_is() -> None:
    one, two, part_a, part_b = (BatchFuture("t", 0) for _ in range(4))
    sent = SentMany()
    sent.add(one, 5, 10)
    sent.add(two, 0, 4)
    assert sent.records == 14
    one.succeed(100, -1)
    two.split([(0, part_a), (2, part_b)])
    part_a.succeed(200, -1)
    assert not sent.done()
    part_b.fail(DeliveryTimeoutError("lost"))
    assert sent.done()
    with pytest.raises(DeliveryTimeoutError):
        sent.result(0)
