"""What a producer promises, on both brokers."""

import asyncio
import multiprocessing
import threading
import time
from collections import Counter

import pyarrow
import pytest

import headwater
from headwater import aio
from headwater.client.errors import (
    ClosedError,
    ForkedError,
    InvalidTopicError,
    RecordTooLargeError,
    SerializationError,
    TimedOutError,
    UnknownTopicOrPartitionError,
)
from headwater.client.producer.interceptors import ProducerInterceptor
from headwater.errors import KafkaError
from tests.clients.broker_under_test import until

# -- one record


def test_a_record_arrives_as_it_was_sent(broker, producer, topic):
    stored = producer.send(
        topic,
        b"value",
        key=b"key",
        partition=2,
        headers=[("h", b"1"), ("h", b"2"), ("null", None), ("empty", b"")],
        timestamp=1_700_000_000_123,
    ).result(60)
    assert stored == (topic, 2, 0, 1_700_000_000_123)
    (row,) = broker.rows(topic)
    assert row == (
        2,
        0,
        b"key",
        b"value",
        [("h", b"1"), ("h", b"2"), ("null", None), ("empty", b"")],
        1_700_000_000_123,
    )


def test_nulls_and_empty_bytes_stay_apart(broker, producer, lane):
    for key, value in [(None, None), (b"", b""), (b"k", None), (None, b"v")]:
        producer.send(lane, value, key=key)
    producer.flush(60)
    assert [(row.key, row.value) for row in broker.rows(lane)] == [
        (None, None), (b"", b""), (b"k", None), (None, b"v"),
    ]  # fmt: skip


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_each_kind_of_acks_stores_everything(broker, bootstrap, lane, acks):
    with headwater.Producer(bootstrap_servers=bootstrap, acks=acks) as producer:
        futures = [producer.send(lane, b"%d" % number) for number in range(200)]
        offsets = [future.result(60).offset for future in futures]
    assert offsets == ([-1] * 200 if acks == "0" else list(range(200)))
    until("all are stored", lambda: len(broker.rows(lane)) == 200)
    assert broker.values(lane) == [b"%d" % number for number in range(200)]


def test_the_time_is_the_brokers_where_the_topic_says_so(broker, producer):
    topic = broker.topic(message_timestamp_type="LogAppendTime")
    stored = producer.send(topic, b"v", timestamp=1000).result(60)
    assert stored.timestamp > 1_600_000_000_000
    assert broker.rows(topic)[0].timestamp == stored.timestamp


def test_the_time_of_a_record_is_the_time_of_its_send(producer, topic):
    producer.send(topic, b"opens the batch")
    before = time.time_ns() // 1_000_000
    future = producer.send(topic, b"v")
    after = time.time_ns() // 1_000_000
    assert before <= future.result(60).timestamp <= after


# -- partitions


def test_keys_go_where_javas_partitioner_puts_them(broker, producer):
    ours, theirs = broker.topic(partitions=7), broker.topic(partitions=7)
    keys = [b"key-%d" % number * (number % 9 + 1) for number in range(300)]
    broker.fill(theirs, keys, key=lambda number: keys[number], partitioner="murmur2_random")
    for key in keys:
        producer.send(ours, key, key=key)
    producer.flush(60)
    assert {row.key: row.partition for row in broker.rows(ours)} == {
        row.key: row.partition for row in broker.rows(theirs)
    }


def test_records_of_one_key_keep_their_order(broker, producer, topic):
    for number in range(5000):
        producer.send(topic, b"%d" % number, key=b"k%d" % (number % 11))
    producer.flush(60)
    rows = broker.rows(topic)
    assert len(rows) == 5000
    for key in {row.key for row in rows}:
        numbers = [int(row.value) for row in rows if row.key == key]
        assert numbers == sorted(numbers)
        assert len({row.partition for row in rows if row.key == key}) == 1


def test_records_without_a_key_are_spread_over_all_partitions(broker, bootstrap, topic):
    with headwater.Producer(bootstrap_servers=bootstrap, batch_size=1000) as producer:
        for number in range(3000):
            producer.send(topic, b"%030d" % number)
    by_partition = Counter(row.partition for row in broker.rows(topic))
    assert set(by_partition) == {0, 1, 2}
    assert sum(by_partition.values()) == 3000


def test_a_partitioner_of_ones_own_decides(broker, bootstrap, topic):
    def last(topic, key, value, partitions):
        return partitions - 1

    with headwater.Producer(bootstrap_servers=bootstrap, partitioner=last) as producer:
        producer.send(topic, b"a", key=b"k")
        producer.send(topic, b"b")
        producer.send(topic, b"c", partition=0)
    assert [(row.partition, row.value) for row in broker.rows(topic)] == [
        (0, b"c"), (2, b"a"), (2, b"b"),
    ]  # fmt: skip


# -- batches


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_by_others(broker, bootstrap, lane, codec):
    with headwater.Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        sent = producer.send_many(lane, [b"%06d" % number * 10 for number in range(2000)])
        assert sent.records == 2000
    assert broker.values(lane) == [b"%06d" % number * 10 for number in range(2000)]


def test_send_many_keeps_the_order_and_reports_all(broker, producer, lane):
    values = [b"%d" % number for number in range(20_000)]
    sent = producer.send_many(lane, iter(values))
    stored = sent.result(60)
    assert (sent.records, sent.done()) == (20_000, True)
    assert stored[0].offset == 0
    assert {one.topic for one in stored} == {lane}
    assert broker.values(lane) == values


def test_send_table_sends_rows_by_their_keys(broker, producer, topic):
    table = pyarrow.table(
        {
            "user": [f"user-{number % 17}" if number % 5 else None for number in range(2000)],
            "text": [f"text {number}" if number % 7 else None for number in range(2000)],
        }
    )
    assert len(producer.send_table(topic, table, key="user", value="text").result(60)) >= 3
    rows = broker.rows(topic)
    wanted = Counter(
        (user and user.encode(), text and text.encode())
        for user, text in zip(*(column.to_pylist() for column in table.columns), strict=True)
    )
    assert Counter((row.key, row.value) for row in rows) == wanted
    where = {row.key: row.partition for row in rows if row.key}
    assert len({(row.key, row.partition) for row in rows if row.key}) == len(where) == 17
    for key in (b"user-1", b"user-2"):
        assert producer.send(topic, b"probe", key=key).result(60).partition == where[key]


def test_a_table_says_which_columns_it_can_take(producer, topic):
    with pytest.raises(KeyError, match="no column 'value'; it has n"):
        producer.send_table(topic, pyarrow.table({"n": [1]}))
    with pytest.raises(TypeError, match="cast it to binary or string"):
        producer.send_table(topic, pyarrow.table({"n": [1]}), value="n")


def test_a_record_just_below_the_limit_passes_and_one_above_is_refused_at_once(
    broker, producer, lane
):
    big = b"x" * 1_048_000
    assert producer.send(lane, big).result(60).offset == 0
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        producer.send(lane, b"x" * 1_048_577).result(60)
    assert broker.values(lane) == [big]


def test_a_batch_that_the_topic_finds_too_large_is_split(broker, bootstrap):
    topic = broker.topic(max_message_bytes="4000")
    values = [b"%04d" % number * 25 for number in range(500)]
    told = []
    with headwater.Producer(
        bootstrap_servers=bootstrap, batch_size=65_536, linger_ms=50
    ) as producer:
        futures = [
            producer.send(topic, value, on_delivery=lambda *row: told.append(row))
            for value in values
        ]
        assert [future.result(60).offset for future in futures] == list(range(500))
        assert producer.metrics()["batch-split-total"] >= 1
    assert sorted((metadata.offset, error) for metadata, error in told) == [
        (offset, None) for offset in range(500)
    ]
    assert broker.values(topic) == values


def test_a_record_that_the_topic_finds_too_large_is_refused_with_its_name(broker, producer):
    topic = broker.topic(max_message_bytes="4000")
    future = producer.send(topic, b"x" * 5000)
    with pytest.raises(RecordTooLargeError):
        future.result(60)
    assert producer.send(topic, b"small").result(60).offset == 0


# -- futures, callbacks, threads


def test_futures_and_callbacks_tell_the_same(producer, topic):
    told = []
    futures = [
        producer.send(topic, b"%d" % number, on_delivery=lambda *row: told.append(row))
        for number in range(500)
    ]
    producer.flush(60)
    assert sorted(told) == sorted((future.result(0), None) for future in futures)
    assert all(future.done() and future.exception(0) is None for future in futures)


def test_a_callback_that_raises_hurts_nobody(broker, producer, lane):
    def broken(metadata, error):
        raise RuntimeError("in a callback")

    for _ in range(3):
        producer.send(lane, b"v", on_delivery=broken)
    producer.flush(60)
    assert producer.send(lane, b"w").result(60).offset == 3
    assert len(broker.rows(lane)) == 4
    producer._waits.thread.call(asyncio.sleep(0))  # the turn that reported it is over
    metrics = producer.metrics()
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"] == 32 << 20
    assert (metrics["record-send-total"], metrics["record-error-total"]) == (4, 0)
    assert metrics["request-latency-avg"] >= 0


def test_threads_share_a_producer(broker, producer, topic):
    def work(name):
        for number in range(1000):
            producer.send(topic, b"%d-%d" % (name, number))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(60)
    values = broker.values(topic)
    assert len(values) == len(set(values)) == 5000


def test_interceptors_change_records_before_serializers_and_hear_of_them(broker, bootstrap, lane):
    heard = []

    class Broken(ProducerInterceptor):
        def on_send(self, record):
            raise RuntimeError("in an interceptor")

    class Stamp(ProducerInterceptor):
        def on_send(self, record):
            return record._replace(
                value={**record.value, "stamped": True}, headers=[("stamp", b"1")]
            )

        def on_acknowledgement(self, metadata, error):
            heard.append((metadata, error))
            raise RuntimeError("in an interceptor")

    chain = [Broken(), Stamp()]
    with headwater.Producer(
        bootstrap_servers=bootstrap,
        key_serializer="string",
        value_serializer="json",
        interceptors=chain,
    ) as producer:
        stored = producer.send(lane, {"n": 1}, key="k").result(60)
        with pytest.raises(SerializationError, match="could not be serialized"):
            producer.send(lane, {"n": {1, 2}})
    (row,) = broker.rows(lane)
    assert row[2:5] == (b"k", b'{"n":1,"stamped":true}', [("stamp", b"1")])
    assert heard[0] == (stored, None)
    assert isinstance(heard[1][1], SerializationError)


def test_serializers_write_as_kafkas_do(broker, bootstrap, lane):
    with headwater.Producer(
        bootstrap_servers=bootstrap, key_serializer="long", value_serializer="json"
    ) as producer:
        producer.send(lane, {"ü": 1}, key=-2)
    (row,) = broker.rows(lane)
    assert (row.key, row.value) == (b"\xff" * 7 + b"\xfe", '{"ü":1}'.encode())


# -- refusals


def test_a_topic_that_is_not_there_is_named(bootstrap):
    with (
        headwater.Producer(bootstrap_servers=bootstrap, max_block_ms=300) as producer,
        pytest.raises((UnknownTopicOrPartitionError, TimedOutError), match="no-such-topic"),
    ):
        producer.send("no-such-topic", b"v")


def test_bad_records_are_refused_with_a_reason(producer, topic):
    producer.send(topic, b"the open batch takes the fast path")
    with pytest.raises(SerializationError, match="set value_serializer"):
        producer.send(topic, "text")
    with pytest.raises(SerializationError, match="set key_serializer"):
        producer.send(topic, b"v", key="text")
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 2, not 3"):
        producer.send(topic, b"v", partition=3)
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        producer.send_many(topic, [b"small", bytes(2 << 20)])
    with pytest.raises(InvalidTopicError):
        producer.send("no topic", b"v")
    assert producer.send(topic, b"and it still works").result(60)


def test_a_serializer_that_raises_says_which_and_why(bootstrap, topic):
    with (
        headwater.Producer(bootstrap_servers=bootstrap, value_serializer="int") as producer,
        pytest.raises(SerializationError, match="value"),
    ):
        producer.send(topic, "seven")


def test_flush_sends_what_lingers_and_close_too(bootstrap, topic):
    producer = headwater.Producer(bootstrap_servers=bootstrap, linger_ms=60_000)
    first = producer.send(topic, b"v")
    with pytest.raises(TimedOutError, match=r"within 0\.05 s"):
        first.result(0.05)
    producer.flush(60)
    assert first.done()
    second = producer.send(topic, b"v")
    assert not second.done()
    producer.close()
    assert second.result(0).topic == topic
    producer.close()
    with pytest.raises(ClosedError, match="create another"):
        producer.send(topic, b"v")


def test_a_recreated_topic_takes_records_again(broker, producer, lane):
    assert producer.send(lane, b"old").result(60).offset == 0
    broker.recreate(lane)
    assert producer.send(lane, b"new").result(60).offset == 0
    assert broker.values(lane) == [b"new"]


# -- processes and classes


def _send_in_child(producer, topic, answers):
    try:
        producer.send(topic, b"child")
    except KafkaError as error:
        answers.put((type(error).__name__, str(error)))
    with headwater.Producer(bootstrap_servers=producer.settings.bootstrap_servers) as own:
        answers.put(own.send(topic, b"own").result(60).topic)


def test_a_forked_child_makes_a_producer_of_its_own(producer, topic):
    producer.send(topic, b"parent").result(60)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_send_in_child, args=(producer, topic, answers))
    child.start()
    name, text = answers.get(timeout=60)
    assert name == ForkedError.__name__
    assert "create a Producer in the child" in text
    assert answers.get(timeout=60) == topic
    child.join()
    assert producer.send(topic, b"parent again").result(60)


def test_the_compiled_fast_path_replaces_send_where_the_codec_is_compiled(producer):
    assert ("send" in vars(producer)) == (headwater.codec == "compiled")


def test_a_subclass_may_have_a_send_of_its_own(broker, bootstrap, topic):
    class Shouting(headwater.Producer):
        def send(self, topic, value=None, **options):
            return super().send(topic, value.upper(), **options)

    with Shouting(bootstrap_servers=bootstrap) as made:
        for _ in range(3):
            made.send(topic, b"v", partition=0).result(60)
            made.send(topic, b"v")
    assert broker.values(topic) == [b"V"] * 6


# -- the asyncio face


def test_awaited_records_are_stored(broker, bootstrap, lane):
    async def work():
        async with aio.Producer(bootstrap_servers=bootstrap, value_serializer="string") as producer:
            first = await producer.send_and_wait(lane, "0")
            futures = [await producer.send(lane, f"{n}") for n in range(1, 500)]
            stored = [await future for future in futures]
            many = await producer.send_many(lane, [f"{n}" for n in range(500, 3000)])
            await many
            assert many.records == 2500
            await producer.flush()
            table = pyarrow.table({"value": [b"last"]})
            ((_, _, last, _),) = await (await producer.send_table(lane, table))
            assert await producer.partitions_for(lane) == [0]
        with pytest.raises(ClosedError):
            await producer.send(lane, "late")
        return [first.offset, *(row.offset for row in stored)], last

    offsets, last = asyncio.run(work())
    assert offsets == list(range(500))
    assert last == 3000
    assert broker.values(lane) == [b"%d" % n for n in range(3000)] + [b"last"]


def test_many_tasks_share_a_producer_with_little_memory(broker, bootstrap, topic):
    async def work():
        async with aio.Producer(
            bootstrap_servers=bootstrap, buffer_memory=40_000, batch_size=4000
        ) as producer:

            async def one(name):
                for number in range(200):
                    await producer.send(topic, b"%d-%d-" % (name, number) + b"." * 100)

            await asyncio.gather(*(one(name) for name in range(10)))

    asyncio.run(work())
    values = broker.values(topic)
    assert len(values) == len(set(values)) == 2000


def test_a_cancelled_wait_leaves_the_record_under_way(broker, bootstrap, lane):
    async def work():
        async with aio.Producer(bootstrap_servers=bootstrap, linger_ms=200) as producer:
            future = await producer.send(lane, b"v")
            waiting = asyncio.ensure_future(_wait(future))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            return await future

    async def _wait(future):
        return await future

    assert asyncio.run(work()).offset == 0
    assert broker.values(lane) == [b"v"]
