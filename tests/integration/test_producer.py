"""The producer, in both faces, against a real broker."""

import asyncio
import multiprocessing
import threading
import time
import uuid

import pytest

import headwater
from headwater.aio import Producer as AsyncProducer
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
from headwater.testing import Broker
from tests.integration.reading import read_all


@pytest.fixture(scope="module")
def broker():
    with Broker({"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=3)
    return name


@pytest.fixture
def producer(broker):
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as made:
        yield made


def test_a_record_is_stored_where_its_future_says(broker, producer, topic) -> None:
    stored = producer.send(
        topic, b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp=1234
    ).result(10)
    assert (stored.topic, stored.offset, stored.timestamp) == (topic, 0, 1234)
    row = read_all(broker, topic)[stored.partition][0]
    assert row[1:] == (1234, 0, b"k", b"v", (("h", b"1"), ("n", None)))


def test_records_of_one_key_share_a_partition_and_keep_their_order(broker, producer, topic) -> None:
    for number in range(5000):
        producer.send(topic, b"%d" % number, key=b"k%d" % (number % 11))
    producer.flush(30)
    by_key: dict[bytes, list[int]] = {}
    for rows in read_all(broker, topic).values():
        keys = {row[3] for row in rows}
        assert not keys & by_key.keys()
        for row in rows:
            by_key.setdefault(row[3], []).append(int(row[4]))
    assert len(by_key) == 11
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sum(map(len, by_key.values())) == 5000


def test_many_threads_share_a_producer_and_no_record_is_lost_or_doubled(
    broker, producer, topic
) -> None:
    def work(name: int) -> None:
        for number in range(2000):
            producer.send(topic, b"%d-%d" % (name, number))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(30)
    values = [row[4] for rows in read_all(broker, topic).values() for row in rows]
    assert len(values) == len(set(values)) == 12_000


def test_futures_and_callbacks_tell_the_same(producer, topic) -> None:
    told = []
    futures = [
        producer.send(topic, b"%d" % number, on_delivery=lambda *row: told.append(row))
        for number in range(300)
    ]
    results = [future.result(10) for future in futures]
    assert all(future.done() and future.exception() is None for future in futures)
    assert sorted(metadata for metadata, error in told if error is None) == sorted(results)


@pytest.mark.parametrize("fault", [ValueError("mine"), asyncio.CancelledError()], ids=repr)
def test_a_callback_that_raises_harms_nobody(producer, topic, caplog, fault) -> None:
    def broken(metadata, error):
        raise fault

    first = producer.send(topic, b"1", on_delivery=broken)
    assert first.result(10).topic == topic
    assert producer.send(topic, b"2").result(10)
    producer._waits.thread.call(asyncio.sleep(0))  # the turn that reported it is over
    told = producer.metrics()
    assert told["buffer-available-bytes"] == told["buffer-total-bytes"]
    assert "on_delivery callback raised" in caplog.text


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_each_codec_arrives(broker, topic, codec) -> None:
    with headwater.Producer(bootstrap_servers=broker.bootstrap, compression_type=codec) as made:
        for number in range(200):
            made.send(topic, b"%d" % number * 20)
    rows = [row for rows in read_all(broker, topic).values() for row in rows]
    assert len(rows) == 200


@pytest.mark.parametrize(("acks", "known"), [("all", True), (1, True), (0, False)])
def test_every_kind_of_acknowledgement(broker, topic, acks, known) -> None:
    with headwater.Producer(bootstrap_servers=broker.bootstrap, acks=acks) as made:
        stored = made.send(topic, b"v", partition=1).result(10)
    assert stored.offset == (0 if known else -1)


def test_bulk_sends_arrive_whole_and_in_order(broker, producer, topic) -> None:
    sent = producer.send_many(topic, (b"%d" % number for number in range(25_000)))
    first = sent.result(30)
    assert sent.records == 25_000
    assert sent.done()
    assert {stored.topic for stored in first} == {topic}
    parts = [[int(row[4]) for row in rows] for rows in read_all(broker, topic).values()]
    assert sorted(number for part in parts for number in part) == list(range(25_000))
    assert all(part == sorted(part) for part in parts)


def test_tables_are_sent_by_their_keys(broker, producer, topic) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"k": ["a", "b", None] * 100, "v": [b"%d" % n for n in range(300)]})
    sent = producer.send_table(topic, table, key="k", value="v")
    sent.result(10)
    rows = [(number, row) for number, rows in read_all(broker, topic).items() for row in rows]
    assert sorted(int(row[4]) for _, row in rows) == list(range(300))
    for key in (b"a", b"b"):
        expected = producer.send(topic, b"probe", key=key).result(10).partition
        assert {number for number, row in rows if row[3] == key} == {expected}


def test_a_table_says_which_columns_it_can_take(producer, topic) -> None:
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(KeyError, match="no column 'value'; it has n"):
        producer.send_table(topic, pa.table({"n": [1]}))
    with pytest.raises(TypeError, match="cast it to binary or string"):
        producer.send_table(topic, pa.table({"n": [1]}), value="n")


def test_serializers_partitioners_and_interceptors_stand_in_line(broker, topic) -> None:
    heard = []

    class Stamp(ProducerInterceptor):
        def on_send(self, record):
            return record._replace(value={**record.value, "stamped": True})

        def on_acknowledgement(self, metadata, error):
            heard.append((metadata, error))
            raise RuntimeError("an interceptor's own fault")

    with headwater.Producer(
        bootstrap_servers=broker.bootstrap,
        key_serializer="string",
        value_serializer="json",
        partitioner=lambda topic, key, value, partitions: partitions - 1,
        interceptors=[Stamp()],
    ) as made:
        stored = made.send(topic, {"n": 1}, key="k").result(10)
        assert stored.partition == 2
        with pytest.raises(SerializationError, match="could not be serialized"):
            made.send(topic, {"n": {1, 2}})
    assert read_all(broker, topic)[2][0][3:5] == (b"k", b'{"n":1,"stamped":true}')
    assert [error is None for _, error in heard] == [True, False]


def test_bad_records_are_refused_with_a_reason(producer, topic) -> None:
    producer.send(topic, b"the open batch takes the fast path")
    with pytest.raises(SerializationError, match="set value_serializer"):
        producer.send(topic, "text")
    with pytest.raises(SerializationError, match="set key_serializer"):
        producer.send(topic, b"v", key="text")
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 2, not 7"):
        producer.send(topic, b"v", partition=7)
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        producer.send(topic, bytes(2 << 20))
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        producer.send_many(topic, [b"small", bytes(2 << 20)])
    with pytest.raises(InvalidTopicError):
        producer.send("no such name!", b"v")
    assert producer.send(topic, b"and it still works").result(10)


def test_a_topic_that_does_not_exist_is_told_within_max_block_ms(broker) -> None:
    with (
        headwater.Producer(bootstrap_servers=broker.bootstrap, max_block_ms=300) as made,
        pytest.raises(UnknownTopicOrPartitionError, match="nowhere"),
    ):
        made.send("nowhere", b"v")


def test_a_batch_too_large_for_the_topic_is_split_and_a_single_record_fails(broker) -> None:
    name = f"small-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, configs={"max.message.bytes": "3000"})
    told = []
    with headwater.Producer(bootstrap_servers=broker.bootstrap, linger_ms=50) as made:
        futures = [
            made.send(name, b"%03d" % n + bytes(500), on_delivery=lambda m, e: told.append((m, e)))
            for n in range(20)
        ]
        offsets = [future.result(20).offset for future in futures]
        with pytest.raises(RecordTooLargeError):
            made.send(name, bytes(5000)).result(20)
        assert made.metrics()["batch-split-total"] >= 1
    assert offsets == list(range(20))
    assert sorted(metadata.offset for metadata, _ in told) == offsets
    assert [int(row[4][:3]) for row in read_all(broker, name)[0]] == list(range(20))


def test_a_closed_producer_says_so_and_close_sends_what_waits(broker, topic) -> None:
    made = headwater.Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000)
    future = made.send(topic, b"v")
    assert not future.done()
    made.close()
    assert future.result(0).topic == topic
    made.close()
    with pytest.raises(ClosedError, match="create another"):
        made.send(topic, b"v")


def test_flush_sends_what_lingers_and_keeps_its_timeout(broker, topic) -> None:
    with headwater.Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000) as made:
        future = made.send(topic, b"v")
        with pytest.raises(TimedOutError, match=r"within 0\.05 s"):
            future.result(0.05)
        made.flush(10)
        assert future.done()


def _send_in_child(producer, topic, answers) -> None:
    try:
        producer.send(topic, b"child")
    except KafkaError as error:
        answers.put((type(error).__name__, str(error)))
    with headwater.Producer(bootstrap_servers=producer.settings.bootstrap_servers) as own:
        answers.put(own.send(topic, b"own").result(10).topic)


def test_a_forked_child_is_told_to_make_its_own(producer, topic) -> None:
    producer.send(topic, b"parent").result(10)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_send_in_child, args=(producer, topic, answers))
    child.start()
    name, text = answers.get(timeout=20)
    assert name == ForkedError.__name__
    assert "make a Producer in the child" in text
    assert answers.get(timeout=20) == topic
    child.join(10)
    assert producer.send(topic, b"parent again").result(10)


def test_a_blocking_call_in_a_callback_is_refused(producer, topic) -> None:
    caught = []

    def wait(metadata, error):
        try:
            producer.partitions_for("another")
        except RuntimeError as refused:
            caught.append(str(refused))

    producer.send(topic, b"v", on_delivery=wait).result(10)
    producer.flush(10)
    assert "another thread, or use headwater.aio" in caught[0]


def test_the_asyncio_face(broker, topic) -> None:
    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.bootstrap, value_serializer="string"
        ) as made:
            stored = await made.send_and_wait(topic, "one", partition=0)
            assert stored.offset == 0
            futures = [await made.send(topic, f"{n}", key=b"k") for n in range(500)]
            offsets = [stored.offset for stored in await asyncio.gather(*futures)]
            assert offsets == sorted(offsets)
            many = await made.send_many(topic, [f"{n}" for n in range(1000)])
            await many
            assert many.records == 1000
            await made.flush()
            assert await made.partitions_for(topic) == [0, 1, 2]
        with pytest.raises(ClosedError):
            await made.send(topic, "late")

    asyncio.run(work())


def test_metrics_carry_kafkas_names(producer, topic) -> None:
    producer.send(topic, b"v").result(10)
    told = producer.metrics()
    assert told["record-send-total"] == 1
    assert told["record-error-total"] == 0
    assert told["request-latency-avg"] >= 0
    assert told["buffer-available-bytes"] == told["buffer-total-bytes"] == 32 << 20


def test_the_compiled_short_way_stands_in_for_send_where_the_codec_is_compiled(producer) -> None:
    assert ("send" in vars(producer)) == (headwater.codec == "compiled")


def test_a_subclass_may_have_a_send_of_its_own(broker, topic) -> None:
    class Shouting(headwater.Producer):
        def send(self, topic, value=None, **options):
            return super().send(topic, value.upper(), **options)

    with Shouting(bootstrap_servers=broker.bootstrap) as made:
        for _ in range(3):
            made.send(topic, b"v", partition=0).result(10)
            made.send(topic, b"v")
    values = [row[4] for rows in read_all(broker, topic).values() for row in rows]
    assert values == [b"V"] * 6


def test_the_time_of_a_record_is_the_time_of_its_send(producer, topic) -> None:
    producer.send(topic, b"opens the batch")
    before = time.time_ns() // 1_000_000
    future = producer.send(topic, b"v")
    after = time.time_ns() // 1_000_000
    assert before <= future.result(10).timestamp <= after
