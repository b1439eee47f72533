"""Parallel work on what a consumer reads, against a real broker."""

import asyncio
import threading
import time
import uuid

import pytest

import headwater
from headwater import aio
from headwater.client.consumer.processing.process import ProcessingError
from headwater.model import TopicPartition
from tests.integration.either import EITHER, either


@pytest.fixture(scope="module", params=EITHER)
def broker(request):
    yield from either(request)


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    return name


def send(broker, topic, pairs):
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
        for key, value in pairs:
            producer.send(topic, value, key=key)


def member(broker, topic, **options):
    consumer = headwater.Consumer(
        bootstrap_servers=broker.bootstrap,
        group_id=f"g-{topic}",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        **options,
    )
    consumer.subscribe([topic])
    return consumer


def committed(broker, topic):
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as admin:
        offsets = admin.group_offsets(f"g-{topic}")
        return sum(row.offset for row in offsets.values())


def run_until(consumer, count, work, **options):
    """Process until `count` records were seen."""
    lock, seen = threading.Lock(), []

    def counted(record):
        work(record)
        with lock:
            seen.append(record)
            if len(seen) == count:
                consumer.stop_processing()

    timer = threading.Timer(30, consumer.stop_processing)
    timer.start()
    try:
        consumer.process(counted, **options)
    finally:
        timer.cancel()
    return seen


def test_records_of_one_key_are_worked_on_in_order_and_others_side_by_side(broker, topic) -> None:
    send(broker, topic, [(b"k%d" % (n % 10), b"%d" % n) for n in range(500)])
    running, most, lock = set(), [0], threading.Lock()

    def work(record):
        with lock:
            assert record.key not in running
            running.add(record.key)
            most[0] = max(most[0], len(running))
        threading.Event().wait(0.001)
        with lock:
            running.remove(record.key)

    with member(broker, topic) as consumer:
        seen = run_until(consumer, 500, work, workers=5)
    assert most[0] > 1
    for key in {record.key for record in seen}:
        values = [int(record.value) for record in seen if record.key == key]
        assert values == sorted(values)
    assert committed(broker, topic) == 500


def test_only_the_finished_beginning_is_committed(broker, topic) -> None:
    send(broker, topic, [(b"%d" % n, b"%d" % n) for n in range(100)])
    stuck, others = threading.Event(), []

    def work(record):
        if record.value == b"0":
            stuck.wait(20)
            raise RuntimeError("never")
        others.append(record)
        if len(others) == 99:
            stuck.set()

    with member(broker, topic) as consumer, pytest.raises(ProcessingError, match="3 times") as told:
        consumer.process(work, workers=4, retries=2, retry_backoff_s=0.01, max_unfinished=500)
    place = told.value.record.topic_partition
    assert isinstance(told.value.__cause__, RuntimeError)
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as admin:
        offsets = admin.group_offsets(f"g-{topic}")
        ends = admin.end_offsets([place, (topic, 1 - place.partition)])
    assert offsets[place].offset == told.value.record.offset
    other = TopicPartition(topic, 1 - place.partition)
    assert offsets[other].offset == ends[other]


def test_what_fails_for_good_goes_to_the_dead_letter_topic(broker, topic) -> None:
    letters = f"{topic}-dead"
    broker.create_topic(letters)
    send(broker, topic, [(b"a", b"1"), (b"a", b"{"), (b"a", b"3"), (b"a", b"4")])
    tries = []

    def work(record):
        if record.value == 3:
            tries.append(record.offset)
            raise ValueError("no threes")

    with member(broker, topic, value_deserializer="json") as consumer:
        timer = threading.Timer(20, consumer.stop_processing)
        timer.start()

        def watch():
            while committed(broker, topic) < 4:
                threading.Event().wait(0.05)
            consumer.stop_processing()

        watching = threading.Thread(target=watch)
        watching.start()
        assert consumer.process(
            work,
            retries=2,
            retry_backoff_s=0.01,
            dead_letter_topic=letters,
            commit_interval_s=0.05,
        ) == 4  # fmt: skip
        timer.cancel()
        watching.join()
    assert len(tries) == 3
    with headwater.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
    ) as reader:
        reader.assign([(letters, 0)])
        dead = []
        while len(dead) < 2:
            dead += reader.poll(10)
    unreadable, refused = dead
    assert (unreadable.key, unreadable.value) == (b"a", b"{")
    headers = dict(refused.headers)
    assert headers["dead-letter.error-class"] == b"builtins.ValueError"
    assert headers["dead-letter.error-message"] == b"no threes"
    assert headers["dead-letter.attempts"] == b"3"
    assert headers["dead-letter.topic"] == topic.encode()
    assert headers["dead-letter.offset"] == str(tries[0]).encode()
    assert dict(unreadable.headers)["dead-letter.attempts"] == b"1"


def test_slow_work_is_waited_for_when_partitions_go(broker, topic) -> None:
    send(broker, topic, [(b"%d" % n, b"%d" % n) for n in range(40)])
    seen, lock = [], threading.Lock()

    def work(record):
        threading.Event().wait(0.05)
        with lock:
            seen.append(record.value)

    first, second = member(broker, topic), None
    worker = threading.Thread(target=lambda: first.process(work, workers=2, commit_interval_s=0.1))
    worker.start()
    try:
        limit = time.monotonic() + 20
        while len(seen) < 4 and time.monotonic() < limit:
            threading.Event().wait(0.02)
        second = member(broker, topic)
        other = threading.Thread(
            target=lambda: second.process(work, workers=2, commit_interval_s=0.1)
        )
        other.start()
        while len(seen) < 40 and time.monotonic() < limit:
            threading.Event().wait(0.05)
        second.stop_processing()
        other.join()
    finally:
        first.stop_processing()
        worker.join()
        first.close()
        if second is not None:
            second.close()
    assert sorted(seen) == sorted(b"%d" % n for n in range(40))
    assert committed(broker, topic) == 40


def test_the_asyncio_face_works_side_by_side_too(broker, topic) -> None:
    send(broker, topic, [(b"k%d" % (n % 7), b"%d" % n) for n in range(200)])
    seen = []

    async def run():
        async with aio.Consumer(
            bootstrap_servers=broker.bootstrap,
            group_id=f"g-{topic}",
            auto_offset_reset="earliest",
        ) as consumer:
            await consumer.subscribe([topic])

            async def work(record):
                await asyncio.sleep(0.001)
                seen.append((record.key, int(record.value)))
                if len(seen) == 200:
                    consumer.wakeup()

            return await consumer.process(work, workers=7)

    assert asyncio.run(asyncio.wait_for(run(), 30)) == 200
    for key in {key for key, _ in seen}:
        values = [value for one, value in seen if one == key]
        assert values == sorted(values)
    assert committed(broker, topic) == 200
