"""What a producer promises, on both brokers."""

import asyncio
import threading
from collections import Counter

import pyarrow
import pytest

import headwater
from headwater import aio
from headwater.client.errors import (
    ClosedError,
    InvalidTopicError,
    RecordTooLargeError,
    SerializationError,
    TimedOutError,
    UnknownTopicOrPartitionError,
)
from headwater.client.producer.interceptors import ProducerInterceptor
from headwater.errors import KafkaError
from tests.clients.broker_under_test import until


@pytest.fixture
def producer(bootstrap):
    with headwater.Producer(bootstrap_servers=bootstrap) as made:
        yield made


# -- one record


def test_a_record_arrives_as_it_was_sent(broker, producer, topic):
    stored = producer.send(
        topic,
        b"value",
        key=b"key",
        partition=2,
        headers=[("h", b"1"), ("h", b"2"), ("null", None), ("empty", b"")],
        timestamp=1_700_000_000_123,
    ).result(10)
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
    producer.flush(10)
    assert [(row.key, row.value) for row in broker.rows(lane)] == [
        (None, None), (b"", b""), (b"k", None), (None, b"v"),
    ]  # fmt: skip


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_each_kind_of_acks_stores_everything(broker, bootstrap, lane, acks):
    with headwater.Producer(bootstrap_servers=bootstrap, acks=acks) as producer:
        futures = [producer.send(lane, b"%d" % number) for number in range(200)]
        offsets = [future.result(10).offset for future in futures]
    assert offsets == ([-1] * 200 if acks == "0" else list(range(200)))
    until("all are stored", lambda: len(broker.rows(lane)) == 200)
    assert broker.values(lane) == [b"%d" % number for number in range(200)]


def test_the_time_is_the_brokers_where_the_topic_says_so(broker, producer):
    topic = broker.topic(message_timestamp_type="LogAppendTime")
    stored = producer.send(topic, b"v", timestamp=1000).result(10)
    assert stored.timestamp > 1_600_000_000_000
    assert broker.rows(topic)[0].timestamp == stored.timestamp


# -- partitions


def test_keys_go_where_javas_partitioner_puts_them(broker, producer):
    ours, theirs = broker.topic(partitions=7), broker.topic(partitions=7)
    keys = [b"key-%d" % number * (number % 9 + 1) for number in range(300)]
    broker.fill(theirs, keys, key=lambda number: keys[number], partitioner="murmur2_random")
    for key in keys:
        producer.send(ours, key, key=key)
    producer.flush(10)
    assert {row.key: row.partition for row in broker.rows(ours)} == {
        row.key: row.partition for row in broker.rows(theirs)
    }


def test_records_of_one_key_keep_their_order(broker, producer, topic):
    for number in range(5000):
        producer.send(topic, b"%d" % number, key=b"k%d" % (number % 11))
    producer.flush(30)
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


def test_send_many_keeps_the_order_and_tells_of_all(broker, producer, lane):
    values = [b"%d" % number for number in range(20_000)]
    stored = producer.send_many(lane, iter(values)).result(30)
    assert stored[0].offset == 0
    assert broker.values(lane) == values


def test_send_table_sends_rows_by_their_keys(broker, producer, topic):
    table = pyarrow.table(
        {
            "user": [f"user-{number % 17}" if number % 5 else None for number in range(2000)],
            "text": [f"text {number}" if number % 7 else None for number in range(2000)],
        }
    )
    assert len(producer.send_table(topic, table, key="user", value="text").result(30)) >= 3
    rows = broker.rows(topic)
    wanted = Counter(
        (user and user.encode(), text and text.encode())
        for user, text in zip(*(column.to_pylist() for column in table.columns), strict=True)
    )
    assert Counter((row.key, row.value) for row in rows) == wanted
    where = {(row.key, row.partition) for row in rows if row.key}
    assert len(where) == 17


def test_a_record_just_below_the_limit_passes_and_one_above_is_refused_at_once(
    broker, producer, lane
):
    big = b"x" * 1_048_000
    assert producer.send(lane, big).result(20).offset == 0
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        producer.send(lane, b"x" * 1_048_577).result(10)
    assert broker.values(lane) == [big]


def test_a_batch_that_the_topic_finds_too_large_is_split(broker, bootstrap):
    topic = broker.topic(max_message_bytes="4000")
    values = [b"%04d" % number * 25 for number in range(500)]
    with headwater.Producer(
        bootstrap_servers=bootstrap, batch_size=65_536, linger_ms=50
    ) as producer:
        futures = [producer.send(topic, value) for value in values]
        assert [future.result(20).offset for future in futures] == list(range(500))
    assert broker.values(topic) == values


def test_a_record_that_the_topic_finds_too_large_is_refused_with_its_name(broker, producer):
    topic = broker.topic(max_message_bytes="4000")
    future = producer.send(topic, b"x" * 5000)
    with pytest.raises(RecordTooLargeError):
        future.result(10)
    assert producer.send(topic, b"small").result(10).offset == 0


# -- futures, callbacks, threads


def test_futures_and_callbacks_tell_the_same(producer, topic):
    told = []
    futures = [
        producer.send(topic, b"%d" % number, on_delivery=lambda *row: told.append(row))
        for number in range(500)
    ]
    producer.flush(10)
    assert sorted(told) == sorted((future.result(0), None) for future in futures)
    assert all(future.done() and future.exception(0) is None for future in futures)


def test_a_callback_that_raises_hurts_nobody(broker, producer, lane):
    def broken(metadata, error):
        raise RuntimeError("in a callback")

    for _ in range(3):
        producer.send(lane, b"v", on_delivery=broken)
    producer.flush(10)
    assert producer.send(lane, b"w").result(10).offset == 3
    assert len(broker.rows(lane)) == 4


def test_threads_share_a_producer(broker, producer, topic):
    def work(name):
        for number in range(1000):
            producer.send(topic, b"%d-%d" % (name, number))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(30)
    values = broker.values(topic)
    assert len(values) == len(set(values)) == 5000


def test_interceptors_change_records_and_hear_of_them(broker, bootstrap, lane):
    heard = []

    class Stamp(ProducerInterceptor):
        def on_send(self, record):
            return record._replace(headers=[("stamp", b"1")])

        def on_acknowledgement(self, metadata, error):
            heard.append((metadata.offset, error))

    class Broken(ProducerInterceptor):
        def on_send(self, record):
            raise RuntimeError("in an interceptor")

    chain = [Broken(), Stamp()]
    with headwater.Producer(bootstrap_servers=bootstrap, interceptors=chain) as producer:
        producer.send(lane, b"v").result(10)
    assert broker.rows(lane)[0].headers == [("stamp", b"1")]
    assert heard == [(0, None)]


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


def test_a_name_that_no_topic_can_have_is_refused(producer):
    with pytest.raises(InvalidTopicError):
        producer.send("no topic", b"v")


def test_a_partition_that_is_not_there_is_refused_with_the_count(producer, topic):
    with pytest.raises((KafkaError, ValueError), match="3"):
        producer.send(topic, b"v", partition=3).result(10)


def test_a_serializer_that_raises_says_which_and_why(bootstrap, topic):
    with (
        headwater.Producer(bootstrap_servers=bootstrap, value_serializer="int") as producer,
        pytest.raises(SerializationError, match="value"),
    ):
        producer.send(topic, "seven")


def test_a_closed_producer_says_so(bootstrap, topic):
    producer = headwater.Producer(bootstrap_servers=bootstrap)
    producer.close()
    producer.close()
    with pytest.raises(ClosedError):
        producer.send(topic, b"v")


def test_a_topic_made_anew_takes_records_again(broker, producer, lane):
    assert producer.send(lane, b"old").result(10).offset == 0
    broker.recreate(lane)
    assert producer.send(lane, b"new").result(20).offset == 0
    assert broker.values(lane) == [b"new"]


# -- the asyncio face


def test_awaited_records_are_stored(broker, bootstrap, lane):
    async def work():
        async with aio.Producer(bootstrap_servers=bootstrap) as producer:
            first = await producer.send_and_wait(lane, b"0")
            futures = [await producer.send(lane, b"%d" % n) for n in range(1, 500)]
            stored = [await future for future in futures]
            many = await producer.send_many(lane, [b"%d" % n for n in range(500, 3000)])
            await many
            table = pyarrow.table({"value": [b"last"]})
            ((_, _, last, _),) = await (await producer.send_table(lane, table))
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
