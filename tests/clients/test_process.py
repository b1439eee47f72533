"""Parallel work on what one consumer reads, on both brokers."""

import asyncio
import threading
from collections import Counter, defaultdict

import pytest

import headwater
from headwater import aio
from headwater.client.consumer.processing.process import ProcessingError
from tests.clients.broker_under_test import PATIENCE_S, in_thread, until

RECORDS = 300


@pytest.fixture
def full(broker, topic):
    """The topic with records of ten keys, numbered."""
    broker.fill(topic, [b"%d" % n for n in range(RECORDS)], key=lambda n: b"k%d" % (n % 10))
    return topic


@pytest.fixture
def options(bootstrap, group):
    return {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}


def committed(options, topic):
    with headwater.Consumer(**options) as consumer:
        found = consumer.committed([(topic, number) for number in range(3)])
    return sum(row.offset for row in found.values() if row is not None)


def test_keys_keep_their_order_while_workers_share_the_work(options, full):
    done, running, lock = defaultdict(list), set(), threading.Lock()

    def work(record):
        with lock:
            assert record.key not in running, "one record of a key at a time"
            running.add(record.key)
        done[record.key].append(int(record.value))
        with lock:
            running.remove(record.key)
        if sum(map(len, list(done.values()))) >= RECORDS:
            consumer.stop_processing()

    with headwater.Consumer(**options) as consumer:
        consumer.subscribe([full])
        assert consumer.process(work, workers=6) == RECORDS
    assert {key: sorted(numbers) for key, numbers in done.items()} == done
    assert sum(map(len, done.values())) == RECORDS
    assert committed(options, full) == RECORDS


def test_records_of_different_keys_are_worked_on_side_by_side(options, full):
    meeting = threading.Barrier(4, timeout=60)

    def work(record):
        if not meeting.broken:
            meeting.wait()
            meeting.abort()
            consumer.stop_processing()

    with headwater.Consumer(**options) as consumer:
        consumer.subscribe([full])
        with pytest.raises(ProcessingError) as caught:
            consumer.process(work, workers=4, retries=0)
    assert isinstance(caught.value.__cause__, threading.BrokenBarrierError)


def test_what_fails_is_repeated_then_set_aside_with_its_origin_and_error(broker, options, full):
    letters = broker.topic()
    broker.fill(full, [b"unreadable"], key=lambda _: b"k")
    attempts, done, failed = Counter(), [], []

    def work(record):
        number = record.value
        attempts[number] += 1
        if number == 17:
            failed.append(record)
        if number == 17 or (number == 18 and attempts[18] < 3):
            raise LookupError("no such customer")
        done.append(number)

    def stop_when_all_are_done():
        until("all are done", lambda: len(done) == RECORDS - 1)
        until("both letters are written", lambda: len(broker.rows(letters)) == 2)
        consumer.stop_processing()

    with headwater.Consumer(**options, value_deserializer=int) as consumer:
        consumer.subscribe([full])
        in_thread(stop_when_all_are_done)
        assert consumer.process(
            work, workers=4, retries=2, retry_backoff_s=0.01, dead_letter_topic=letters
        ) == RECORDS + 1  # fmt: skip
    assert attempts[17] == attempts[18] == 3
    assert sorted(done) == [number for number in range(RECORDS) if number != 17]
    refused, unreadable = sorted(broker.rows(letters), key=lambda row: row.value)
    assert (refused.key, refused.value) == (b"k7", b"17")
    told = headers_of(refused)
    assert told["error-class"] == "builtins.LookupError"
    assert told["error-message"] == "no such customer"
    assert (told["topic"], told["attempts"]) == (full, "3")
    assert told["offset"] == str(failed[0].offset)
    assert (unreadable.key, unreadable.value) == (b"k", b"unreadable")
    assert headers_of(unreadable)["attempts"] == "1"
    assert committed(options, full) == RECORDS + 1


def headers_of(letter):
    return {name.removeprefix("dead-letter."): text.decode() for name, text in letter.headers}


def test_only_the_finished_beginning_of_a_partition_is_committed(options, full):
    stuck, others = threading.Event(), []

    def work(record):
        if record.value == b"0":
            stuck.wait(PATIENCE_S)
            raise LookupError
        others.append(record)
        if len(others) >= RECORDS - RECORDS // 10:  # all other keys
            stuck.set()

    with headwater.Consumer(**options) as consumer:
        consumer.subscribe([full])
        with pytest.raises(ProcessingError, match="3 times") as caught:
            consumer.process(work, workers=4, retries=2, retry_backoff_s=0.01, max_unfinished=500)
    assert isinstance(caught.value.__cause__, LookupError)
    place = caught.value.record.topic_partition
    partitions = [(full, number) for number in range(3)]
    with headwater.Consumer(**options) as consumer:
        found, ends = consumer.committed(partitions), consumer.end_offsets(partitions)
    assert found[place].offset == caught.value.record.offset
    for other in set(ends) - {place}:
        assert (found[other].offset if found[other] else 0) == ends[other]


def test_slow_work_is_waited_for_when_partitions_go(broker, options, topic):
    values = [b"%d" % n for n in range(40)]
    broker.fill(topic, values, key=lambda n: b"%d" % n)
    seen, workers = [], []

    def work(record):
        threading.Event().wait(0.04)
        seen.append(record.value)

    def start(consumer):
        consumer.subscribe([topic])
        return in_thread(lambda: consumer.process(work, workers=2, commit_interval_s=0.1))

    with (
        headwater.Consumer(**options, heartbeat_interval_ms=50) as first,
        headwater.Consumer(**options, heartbeat_interval_ms=50) as second,
    ):
        workers.append(start(first))
        until("the first works", lambda: len(seen) >= 4)
        workers.append(start(second))
        until("all is done", lambda: len(seen) >= 40)
        for consumer, worker in zip((second, first), reversed(workers), strict=True):
            consumer.stop_processing()
            worker.join(PATIENCE_S)
    assert sorted(seen) == sorted(values)
    assert committed(options, topic) == 40


def test_without_a_dead_letter_topic_nothing_from_the_failure_on_is_committed(
    options, lane, broker
):
    broker.fill(lane, [b"%d" % n for n in range(50)])

    def work(record):
        if record.offset == 20:
            raise LookupError

    for order in ("key", "partition"):
        with headwater.Consumer(**options) as consumer:
            consumer.subscribe([lane])
            with pytest.raises(ProcessingError, match="offset 20"):
                consumer.process(work, workers=3, order=order, retries=1, retry_backoff_s=0.01)
        assert committed(options, lane) <= 20
    done = []

    def repaired(record):
        done.append(record.offset)
        if record.offset == 49:
            consumer.stop_processing()

    with headwater.Consumer(**options) as consumer:
        consumer.subscribe([lane])
        consumer.process(repaired, order="partition")
    assert set(done) >= set(range(20, 50))


def test_automatic_commits_do_not_run_ahead_of_the_work(options, lane, broker):
    broker.fill(lane, [b"%d" % n for n in range(50)])
    stuck, go = threading.Event(), threading.Event()
    seen = []

    def work(record):
        if record.offset == 10:
            stuck.set()
            go.wait(60)

    def watch():
        stuck.wait(60)
        with headwater.Consumer(**options) as onlooker:
            for _ in range(30):
                row = onlooker.committed([(lane, 0)])[(lane, 0)]
                seen.append(0 if row is None else row.offset)
        go.set()
        consumer.stop_processing()

    with headwater.Consumer(**options, auto_commit_interval_ms=1) as consumer:
        consumer.subscribe([lane])
        watcher = in_thread(watch)
        consumer.process(work, workers=2, order="partition", commit_interval_s=0.01)
        watcher.join(60)
    assert max(seen) <= 10


def test_tasks_do_the_same(broker, options, full):
    letters = broker.topic()

    async def run():
        done = defaultdict(list)
        async with aio.Consumer(**options) as consumer:
            await consumer.subscribe([full])

            async def work(record):
                await asyncio.sleep(0)
                done[record.key].append(int(record.value))
                if sum(map(len, done.values())) == RECORDS:
                    consumer.wakeup()
                if record.value == b"5":
                    raise LookupError

            count = await consumer.process(work, workers=5, retries=0, dead_letter_topic=letters)
        return count, done

    count, done = asyncio.run(run())
    assert count == RECORDS
    assert all(numbers == sorted(numbers) for numbers in done.values())
    assert broker.values(letters) == [b"5"]
    assert committed(options, full) == RECORDS
