"""The consumer, in both faces, against a real broker."""

import asyncio
import multiprocessing
import threading
import time
import uuid

import pytest

import headwater
from headwater import aio
from headwater.client.consumer.interceptors import ConsumerInterceptor
from headwater.client.consumer.record import OffsetAndMetadata, Records
from headwater.client.consumer.subscription import IllegalStateError
from headwater.client.errors import (
    ClosedError,
    ConcurrentUseError,
    ForkedError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    SerializationError,
    TimedOutError,
    WakeupError,
)
from headwater.config.keys import ConfigError
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from headwater.testing import Broker
from tests.integration.either import EITHER, either


@pytest.fixture(scope="module", params=EITHER)
def broker(request):
    yield from either(request)


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture
def fill(broker):
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:

        def send(topic, count, partition=0, **options):
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=partition, **options)
            producer.flush(10)

        yield send


@pytest.fixture
def consumer_of(broker):
    made = []

    def make(**options):
        options = {"auto_offset_reset": "earliest", **options}
        made.append(headwater.Consumer(bootstrap_servers=broker.bootstrap, **options))
        return made[-1]

    yield make
    for one in made:
        one.close(5)


def take(consumer, count, timeout=10.0):
    found = Records()
    limit = time.monotonic() + timeout
    while len(found) < count and time.monotonic() < limit:
        found += consumer.poll(1)
    assert len(found) == count
    return found


def test_records_come_with_all_that_was_sent(consumer_of, topic, fill) -> None:
    fill(topic, 1, key=b"k", headers=[("h", b"1"), ("n", None)], timestamp=1234)
    consumer = consumer_of()
    consumer.assign([(topic, 0)])
    (record,) = take(consumer, 1)
    assert record == (topic, 0, 0, 1234, 0, b"k", b"0", (("h", b"1"), ("n", None)))
    assert record.topic_partition == TopicPartition(topic, 0)


def test_every_record_comes_once_and_in_order(consumer_of, topic, fill) -> None:
    fill(topic, 3000, 0)
    fill(topic, 2000, 1)
    consumer = consumer_of(max_poll_records=700)
    consumer.assign([(topic, 0), (topic, 1)])
    found = Records()
    while len(found) < 5000:
        records = consumer.poll(5)
        assert 0 < len(records) <= 700
        found += records
    by_partition = found.by_partition()
    assert [r.offset for r in by_partition[TopicPartition(topic, 0)]] == list(range(3000))
    assert [r.offset for r in by_partition[TopicPartition(topic, 1)]] == list(range(2000))
    assert found.partitions() == set(by_partition)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(broker, consumer_of, topic, compression) -> None:
    with headwater.Producer(
        bootstrap_servers=broker.bootstrap, compression_type=compression
    ) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(1000)])
    consumer = consumer_of()
    consumer.assign([(topic, 0), (topic, 1)])
    assert {record.value for record in take(consumer, 1000)} == {b"%d" % n for n in range(1000)}


def test_a_poll_waits_for_what_comes_later(consumer_of, topic, fill) -> None:
    consumer = consumer_of(auto_offset_reset="latest")
    consumer.assign([(topic, 0)])
    assert consumer.position((topic, 0)) == 0
    threading.Timer(0.2, fill, (topic, 1)).start()
    (record,) = consumer.poll(10)
    assert record.value == b"0"


def test_a_poll_without_records_ends_in_time(consumer_of, topic) -> None:
    consumer = consumer_of()
    consumer.assign([(topic, 0)])
    begun = time.monotonic()
    assert consumer.poll(0.3) == []
    assert time.monotonic() - begun > 0.25


def test_paused_partitions_keep_their_records(consumer_of, topic, fill) -> None:
    fill(topic, 10, 0)
    fill(topic, 10, 1)
    consumer = consumer_of()
    consumer.assign([(topic, 0), (topic, 1)])
    consumer.pause([(topic, 0)])
    assert consumer.paused() == {(topic, 0)}
    assert {record.partition for record in take(consumer, 10)} == {1}
    assert consumer.poll(0.2) == []
    consumer.resume([(topic, 0)])
    assert {record.partition for record in take(consumer, 10)} == {0}


def test_seeks_go_where_they_say_and_at_once(consumer_of, topic, fill) -> None:
    fill(topic, 100)
    consumer = consumer_of(fetch_max_wait_ms=600_000, request_timeout_ms=700_000)
    consumer.assign([(topic, 0)])
    take(consumer, 100)
    assert (
        consumer.poll(0.1) == []
    )  # a fetch waits at the broker now, longer than the test may take
    consumer.seek((topic, 0), 42)
    assert consumer.poll(10)[0].offset == 42
    consumer.seek_to_beginning()
    assert consumer.poll(10)[0].offset == 0
    consumer.seek_to_end([(topic, 0)])
    assert consumer.position((topic, 0)) == 100


def test_lag_and_lead_follow_the_position(consumer_of, topic, fill) -> None:
    fill(topic, 100)
    consumer = consumer_of(max_poll_records=40)
    consumer.assign([(topic, 0)])
    assert consumer.lag((topic, 0)) is None
    assert len(consumer.poll(10)) == 40
    assert (consumer.lag((topic, 0)), consumer.lead((topic, 0))) == (60, 40)
    metrics = consumer.metrics()
    assert (metrics["records-lag-max"], metrics["records-lead-min"]) == (60, 40)
    assert metrics["records-consumed-total"] == 40


def test_offsets_are_found_by_time(consumer_of, topic, fill) -> None:
    for number in range(5):
        fill(topic, 1, timestamp=1000 * number + 1000)
    consumer = consumer_of()
    place = TopicPartition(topic, 0)
    found = consumer.offsets_for_times({place: 2500})[place]
    assert found is not None
    assert (found.offset, found.timestamp) == (2, 3000)
    assert consumer.offsets_for_times({place: 10_000}) == {place: None}
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.end_offsets([place]) == {place: 5}


def test_no_position_and_no_policy_is_a_clear_error(consumer_of, topic, fill) -> None:
    fill(topic, 1)
    consumer = consumer_of(auto_offset_reset="none", group_id=f"g-{topic}")
    consumer.assign([(topic, 0)])
    with pytest.raises(NoOffsetForPartitionError, match="seek"):
        consumer.poll(10)
    consumer.seek((topic, 0), 0)
    take(consumer, 1)


def test_a_position_outside_the_log_is_reset_or_an_error(broker, consumer_of, topic, fill) -> None:
    fill(topic, 3)
    strict = consumer_of(auto_offset_reset="none")
    strict.assign([(topic, 0)])
    strict.seek((topic, 0), 1000)
    with pytest.raises(OffsetOutOfRangeError, match="1000"):
        strict.poll(10)
    lenient = consumer_of()
    lenient.assign([(topic, 0)])
    lenient.seek((topic, 0), 1000)
    assert [record.offset for record in take(lenient, 3)] == [0, 1, 2]


def test_wakeup_ends_a_poll_of_another_thread(consumer_of, topic) -> None:
    consumer = consumer_of()
    consumer.assign([(topic, 0)])
    threading.Timer(0.2, consumer.wakeup).start()
    with pytest.raises(WakeupError):
        consumer.poll(None)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(5)
    assert consumer.poll(0.05) == []


def test_two_threads_cannot_use_one_consumer(consumer_of, topic) -> None:
    consumer = consumer_of()
    consumer.assign([(topic, 0)])
    assert consumer.poll(0.01) == []
    heard = []

    def poll_beside():
        try:
            consumer.poll(1)
        except ConcurrentUseError as refused:
            heard.append(str(refused))

    threads = [threading.Thread(target=poll_beside) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 1
    assert "its own" in heard[0]


def test_a_closed_consumer_and_a_forked_one_say_so(consumer_of, topic) -> None:
    consumer = consumer_of()
    consumer.assign([(topic, 0)])
    _inherited[:] = [consumer]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        said = pool.apply_async(_use_inherited).get(timeout=20)
    assert all("child" in text for text in said), said
    assert consumer.position((topic, 0)) == 0
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll(1)
    consumer.close()


_inherited = []


def _use_inherited():
    """What every call says in the child; close() has nothing to say, and waits for nothing."""
    consumer = _inherited[0]
    said = []
    for call in (
        lambda: consumer.poll(1),
        consumer.commit,
        lambda: consumer.subscribe(["t"]),
        consumer.seek_to_end,
        lambda: consumer.end_offsets([("t", 0)]),
        lambda: consumer.position(("t", 0)),
    ):
        try:
            call()
            said.append("did not refuse")
        except ForkedError as refused:
            said.append(str(refused))
    with consumer:
        consumer.wakeup()
    consumer.close()
    return said
    return "polled"


def test_deserializers_make_objects_and_name_what_they_cannot_read(
    broker, consumer_of, topic
) -> None:
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in (b'{"a":1}', None, b"{", b"3"):
            producer.send(topic, value, key=b"k", partition=0)
    consumer = consumer_of(key_deserializer="string", value_deserializer="json")
    consumer.assign([(topic, 0)])
    assert [(r.key, r.value) for r in consumer.poll(10)] == [("k", {"a": 1}), ("k", None)]
    for _ in range(2):
        with pytest.raises(SerializationError, match=r"offset 2.*seek past"):
            consumer.poll(10)
    assert consumer.position((topic, 0)) == 2
    consumer.seek((topic, 0), 3)
    assert consumer.poll(10)[0].value == 3


def test_interceptors_see_what_is_polled_and_their_faults_do_no_harm(
    consumer_of, topic, fill
) -> None:
    class Even(ConsumerInterceptor):
        def on_consume(self, records):
            return Records(record for record in records if record.offset % 2 == 0)

    class Broken(ConsumerInterceptor):
        def on_consume(self, records):
            raise RuntimeError("no")

    fill(topic, 10)
    consumer = consumer_of(interceptors=[Broken(), Even()])
    consumer.assign([(topic, 0)])
    assert [record.offset for record in consumer.poll(10)] == [0, 2, 4, 6, 8]


def test_arrow_batches_have_every_column(consumer_of, topic, fill) -> None:
    fill(topic, 3, 0, key=b"k", headers=[("h", b"x")], timestamp=5)
    fill(topic, 2, 1)
    consumer = consumer_of()
    consumer.assign([(topic, 0), (topic, 1)])
    rows = []
    while len(rows) < 5:
        batch = consumer.poll_arrow(10)
        assert batch is not None
        batch.validate(full=True)
        rows += batch.to_pylist()
    rows.sort(key=lambda row: (row["partition"], row["offset"]))
    assert [row["value"] for row in rows] == [b"0", b"1", b"2", b"0", b"1"]
    assert [row["key"] for row in rows] == [b"k"] * 3 + [None] * 2
    assert [row["topic"] for row in rows] == [topic] * 5
    assert rows[0]["headers"] == [{"key": b"h", "value": b"x"}]
    assert rows[0]["timestamp"].timestamp() == 0.005
    assert rows[4]["headers"] == []
    assert consumer.position((topic, 0)) == 3
    assert consumer.poll_arrow(0.05) is None


def test_the_three_ways_to_get_partitions_exclude_each_other(consumer_of, topic) -> None:
    consumer = consumer_of(group_id=f"g-{topic}")
    consumer.subscribe([topic])
    with pytest.raises(IllegalStateError, match=r"unsubscribe\(\) first"):
        consumer.assign([(topic, 0)])
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        consumer.subscribe(pattern="t-.*")
    consumer.unsubscribe()
    consumer.assign([(topic, 0)])
    assert consumer.assignment() == {(topic, 0)}
    with pytest.raises(IllegalStateError, match="not assigned"):
        consumer.seek((topic, 1), 0)


def test_what_needs_a_group_says_so(consumer_of, topic) -> None:
    consumer = consumer_of()
    with pytest.raises(IllegalStateError, match="group_id"):
        consumer.subscribe([topic])
    with pytest.raises(IllegalStateError, match="group_id"):
        consumer.commit()
    with pytest.raises(IllegalStateError, match="has no partitions"):
        consumer.poll(1)
    with pytest.raises(ConfigError, match="did you mean group_id"):
        consumer_of(groupid="x")
    with pytest.raises(ConfigError, match="range"):
        consumer_of(group_id="x", partition_assignment_strategy="rang")


def test_commits_by_hand_are_what_the_group_goes_on_from(consumer_of, topic, fill) -> None:
    fill(topic, 10)
    place = TopicPartition(topic, 0)
    consumer = consumer_of(group_id=f"g-{topic}", enable_auto_commit=False)
    consumer.assign([place])
    assert consumer.committed([place]) == {place: None}
    third = take(consumer, 10)[3]
    consumer.commit_record(third)
    assert consumer.committed([place])[place].offset == 4
    consumer.commit({place: OffsetAndMetadata(7, "a note")})
    assert consumer.committed([place])[place].metadata == "a note"
    heard = []
    consumer.commit_async(on_commit=lambda offsets, error: heard.append((offsets, error)))
    consumer.commit({})
    limit = time.monotonic() + 5
    while not heard and time.monotonic() < limit:
        consumer.poll(0.01)
    assert heard[0][1] is None
    assert heard[0][0][place].offset == 10
    again = consumer_of(group_id=f"g-{topic}")
    again.assign([place])
    assert again.position(place) == 10


def test_iteration_moves_the_position_record_by_record(consumer_of, topic, fill) -> None:
    fill(topic, 10)
    consumer = consumer_of(group_id=f"g-{topic}")
    consumer.assign([(topic, 0)])
    for record in consumer:
        if record.offset == 4:
            break
    consumer.commit()
    place = TopicPartition(topic, 0)
    assert consumer.committed([place])[place].offset == 5


def test_the_asyncio_face_reads_seeks_and_iterates(broker, topic, fill) -> None:
    fill(topic, 100)

    async def run():
        async with aio.Consumer(
            bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.assign([(topic, 0)])
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 99:
                    break
            consumer.seek((topic, 0), 98)
            assert [r.offset for r in await consumer.poll(10)] == [98, 99]
            consumer.seek_to_beginning()
            batch = await consumer.poll_arrow(10)
            waiting = asyncio.ensure_future(consumer.poll(5))
            await asyncio.sleep(0.05)
            with pytest.raises(ConcurrentUseError):
                await consumer.poll(1)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await waiting
            return seen, batch.num_rows, await consumer.position((topic, 0))

    assert asyncio.run(run()) == (list(range(100)), 100, 100)


def test_nothing_hangs_where_no_broker_is() -> None:
    consumer = headwater.Consumer(
        bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=500, request_timeout_ms=400
    )
    with pytest.raises(TimedOutError, match=r"127\.0\.0\.1:1"):
        consumer.assign([("t", 0)])
    with pytest.raises(TimedOutError):
        consumer.end_offsets([("t", 0)])
    consumer.close(1)


def test_a_restarted_broker_is_found_again() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send_many("t", [b"1", b"2"])
        with headwater.Consumer(
            bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id="g"
        ) as consumer:
            consumer.subscribe(["t"])
            take(consumer, 2)
            broker.restart()
            with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
                producer.send_many("t", [b"3"])
            assert [record.value for record in take(consumer, 1, 20)] == [b"3"]
            consumer.commit()


def test_a_topic_that_is_deleted_and_made_anew_is_read_from_its_start() -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        broker.create_topic("t")
        with headwater.Consumer(
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            metadata_max_age_ms=200,
        ) as consumer:
            consumer.assign([("t", 0)])
            with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
                producer.send_many("t", [b"old"] * 3)
                producer.flush(10)
                take(consumer, 3)
                broker.delete_topic("t")
                broker.create_topic("t")
                sent = producer.send_many("t", [b"new"] * 5)
                producer.flush(10)
                assert sent is not None
            assert [record.value for record in take(consumer, 5, 20)] == [b"new"] * 5


def test_every_error_of_a_consumer_is_a_kafka_error() -> None:
    for kind in (WakeupError, ConcurrentUseError, NoOffsetForPartitionError, IllegalStateError):
        assert issubclass(kind, KafkaError)
