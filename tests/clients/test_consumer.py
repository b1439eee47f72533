"""What a consumer promises when it reads alone, on both brokers."""

import asyncio
import itertools
import threading

import confluent_kafka
import pytest

import headwater
from headwater import aio
from headwater.client.consumer.interceptors import ConsumerInterceptor
from headwater.client.consumer.record import OffsetAndMetadata
from headwater.client.consumer.subscription import IllegalStateError
from headwater.client.errors import (
    ClosedError,
    ConcurrentUseError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    SerializationError,
    WakeupError,
)
from headwater.model import TopicPartition
from tests.clients.broker_under_test import in_thread, poll_until, until, values_of

NUMBERS = [b"%d" % number for number in range(100)]


@pytest.fixture
def consumer(bootstrap):
    with headwater.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as made:
        yield made


@pytest.fixture
def member(bootstrap, group):
    """A consumer with a group to commit for."""
    with headwater.Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as made:
        yield made


# -- records


def test_a_record_is_read_as_it_was_stored(broker, consumer, topic):
    broker.fill(
        topic, [b"v"], partition=1, key=lambda _: b"k", timestamp=lambda _: 1_700_000_000_123
    )
    consumer.assign([(topic, 0), (topic, 1)])
    (record,) = poll_until(1, consumer)
    assert record == (topic, 1, 0, 1_700_000_000_123, 0, b"k", b"v", ())
    assert record.topic_partition == TopicPartition(topic, 1)


def test_what_our_producer_writes_comes_back(bootstrap, consumer, lane):
    headers = (("h", b"1"), ("h", None), ("ü", b""))
    with headwater.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(lane, None, key=b"", headers=headers, timestamp=1).result(10)
    consumer.assign([(lane, 0)])
    (record,) = poll_until(1, consumer)
    assert record[2:] == (0, 1, 0, b"", None, headers)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_of_others_is_read(broker, consumer, lane, codec):
    values = [b"%06d" % number * 10 for number in range(3000)]
    broker.fill(lane, values, compression_type=codec)
    consumer.assign([(lane, 0)])
    assert values_of(poll_until(3000, consumer)) == values


def test_a_poll_returns_at_most_what_it_may_and_the_rest_later(broker, bootstrap, lane):
    broker.fill(lane, NUMBERS)
    with headwater.Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=7
    ) as consumer:
        consumer.assign([(lane, 0)])
        found = []
        while len(found) < 100:
            records = consumer.poll(10)
            assert 0 < len(records) <= 7
            found += values_of(records)
        assert found == NUMBERS
        consumer.seek((lane, 0), 0)
        assert values_of(consumer.poll(10, max_records=2)) == NUMBERS[:2]


def test_records_come_by_partition_in_their_order(broker, consumer, topic):
    for partition in range(3):
        broker.fill(topic, [b"%d" % number for number in range(500)], partition=partition)
    consumer.assign([(topic, number) for number in range(3)])
    found = poll_until(1500, consumer)
    for partition in range(3):
        offsets = [record.offset for record in found if record.partition == partition]
        assert offsets == list(range(500))
    consumer.seek_to_beginning()
    records = consumer.poll(10)
    by_partition = records.by_partition()
    assert sorted(itertools.chain(*by_partition.values())) == sorted(records)
    assert set(by_partition) == records.partitions() <= consumer.assignment()


def test_a_record_larger_than_a_fetch_is_still_read(broker, bootstrap, lane):
    big = b"x" * 300_000
    broker.fill(lane, [b"small", big, b"small"])
    with headwater.Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        fetch_max_bytes=1000,
        max_partition_fetch_bytes=1000,
    ) as consumer:
        consumer.assign([(lane, 0)])
        assert values_of(poll_until(3, consumer)) == [b"small", big, b"small"]


def test_iteration_gives_record_after_record(broker, consumer, lane):
    broker.fill(lane, NUMBERS)
    consumer.assign([(lane, 0)])
    seen = []
    for record in consumer:
        seen.append(record.value)
        assert consumer.position((lane, 0)) == record.offset + 1
        if len(seen) == 100:
            break
    assert seen == NUMBERS


def test_an_empty_poll_ends_in_time(consumer, lane):
    consumer.assign([(lane, 0)])
    assert consumer.poll(0.05) == []
    assert consumer.poll(0) == []


def test_records_arrive_while_a_poll_waits(broker, consumer, lane):
    consumer.assign([(lane, 0)])
    consumer.poll(0.1)
    writer = in_thread(lambda: broker.fill(lane, [b"late"]))
    assert values_of(consumer.poll(20)) == [b"late"]
    writer.join()


def test_deserializers_and_interceptors_shape_records(broker, bootstrap, lane):
    class Upper(ConsumerInterceptor):
        def on_consume(self, records):
            return type(records)(r._replace(value=r.value.upper()) for r in records)

    broker.fill(lane, [b"a", "ü".encode()], key=lambda number: b"%d" % number)
    with headwater.Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        key_deserializer=int,
        value_deserializer="string",
        interceptors=[Upper()],
    ) as consumer:
        consumer.assign([(lane, 0)])
        assert [(r.key, r.value) for r in poll_until(2, consumer)] == [(0, "A"), (1, "Ü")]


def test_a_record_that_cannot_be_deserialized_is_named_and_can_be_passed(broker, bootstrap, lane):
    broker.fill(lane, [b"1", b"one", b"2"])
    with headwater.Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", value_deserializer=int
    ) as consumer:
        consumer.assign([(lane, 0)])
        assert values_of(poll_until(1, consumer)) == [1]
        for _ in range(2):
            with pytest.raises(SerializationError, match=rf"{lane}-0 at offset 1"):
                consumer.poll(10)
        consumer.seek((lane, 0), 2)
        assert values_of(poll_until(1, consumer)) == [2]


# -- places


def test_positions_ends_lag_and_lead(broker, consumer, lane):
    broker.fill(lane, NUMBERS)
    consumer.assign([(lane, 0)])
    place = TopicPartition(lane, 0)
    assert consumer.position(place) == 0
    assert len(consumer.poll(10, max_records=10)) == 10
    assert (consumer.position(place), consumer.lag(place), consumer.lead(place)) == (10, 90, 10)
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.end_offsets([place]) == {place: 100}
    assert consumer.partitions_for(lane) == [0]
    assert consumer.metrics()["records-lag-max"] == 90


def test_seeks_forward_back_and_to_the_ends(broker, consumer, lane):
    broker.fill(lane, NUMBERS)
    consumer.assign([(lane, 0)])
    for offset in (50, 3, 99):
        consumer.seek((lane, 0), offset)
        assert consumer.poll(10, max_records=1)[0].offset == offset
    consumer.seek_to_beginning([(lane, 0)])
    assert consumer.poll(10)[0].offset == 0
    consumer.seek_to_end()
    assert consumer.position((lane, 0)) == 100
    broker.fill(lane, [b"new"])
    assert values_of(poll_until(1, consumer)) == [b"new"]


def test_offsets_are_found_by_time(broker, consumer, lane):
    broker.fill(lane, NUMBERS, timestamp=lambda number: 1_700_000_000_000 + 10 * number)
    place = TopicPartition(lane, 0)
    found = consumer.offsets_for_times({place: 1_700_000_000_495})[place]
    assert (found.offset, found.timestamp) == (50, 1_700_000_000_500)
    assert consumer.offsets_for_times({place: 0})[place].offset == 0
    assert consumer.offsets_for_times({place: 1_700_000_001_000}) == {place: None}


@pytest.mark.parametrize(("policy", "first"), [("earliest", b"0"), ("latest", b"new")])
def test_without_a_committed_offset_the_policy_decides(broker, bootstrap, lane, policy, first):
    broker.fill(lane, NUMBERS)
    with headwater.Consumer(bootstrap_servers=bootstrap, auto_offset_reset=policy) as consumer:
        consumer.assign([(lane, 0)])
        consumer.position((lane, 0))
        broker.fill(lane, [b"new"])
        assert consumer.poll(10)[0].value == first


def test_policy_none_asks_the_application(broker, bootstrap, group, lane):
    broker.fill(lane, NUMBERS)
    with headwater.Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="none",
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign([(lane, 0)])
        with pytest.raises(NoOffsetForPartitionError, match=f"{lane}-0"):
            consumer.poll(10)
        consumer.seek((lane, 0), 98)
        assert values_of(poll_until(2, consumer)) == [b"98", b"99"]
        consumer.seek((lane, 0), 1000)
        with pytest.raises(OffsetOutOfRangeError, match="1000"):
            until("an error", lambda: None, lambda: consumer.poll(1))


def test_a_position_out_of_range_is_reset_by_policy(broker, consumer, lane):
    broker.fill(lane, NUMBERS)
    consumer.assign([(lane, 0)])
    consumer.seek((lane, 0), 1000)
    assert consumer.poll(10)[0].offset == 0


def test_a_topic_made_anew_is_read_from_its_start(broker, bootstrap, lane):
    broker.fill(lane, NUMBERS)
    with headwater.Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=200
    ) as consumer:
        consumer.assign([(lane, 0)])
        poll_until(100, consumer)
        broker.recreate(lane)
        broker.fill(lane, [b"new %d" % number for number in range(200)])
        assert values_of(poll_until(200, consumer))[0] == b"new 0"


# -- pause, wake, close


def test_paused_partitions_wait_and_lose_nothing(broker, consumer, topic):
    for partition in range(2):
        broker.fill(topic, NUMBERS, partition=partition)
    consumer.assign([(topic, 0), (topic, 1)])
    consumer.poll(10, max_records=1)
    consumer.pause([(topic, 0)])
    assert consumer.paused() == {(topic, 0)}
    heard = consumer.poll(10) + consumer.poll(0.2)
    assert {record.partition for record in heard} <= {1}
    consumer.resume([(topic, 0)])
    until(
        "all are read",
        lambda: all(consumer.position((topic, number)) == 100 for number in range(2)),
        lambda: heard.extend(consumer.poll(0.2)),
    )
    assert len(heard) in (199, 200)
    assert consumer.paused() == set()


def test_wakeup_ends_a_poll_and_nothing_else(broker, consumer, lane):
    consumer.assign([(lane, 0)])
    polling = threading.Event()

    def wake():
        polling.wait()
        consumer.wakeup()

    in_thread(wake)
    polling.set()
    with pytest.raises(WakeupError):
        consumer.poll(20)
    broker.fill(lane, [b"v"])
    assert values_of(poll_until(1, consumer)) == [b"v"]


def test_two_threads_on_one_consumer_are_told(consumer, lane):
    consumer.assign([(lane, 0)])
    caught = []

    def disturb():
        try:
            until("a clash", lambda: caught, lambda: consumer.poll(0.01))
        except ConcurrentUseError as problem:
            caught.append(problem)

    thread = in_thread(disturb)
    try:
        until("a clash", lambda: caught, lambda: consumer.poll(0.05))
    except ConcurrentUseError as problem:
        caught.append(problem)
    thread.join(20)
    assert "another thread" in str(caught[0])


def test_a_closed_consumer_says_so(bootstrap, lane):
    consumer = headwater.Consumer(bootstrap_servers=bootstrap)
    consumer.assign([(lane, 0)])
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll(1)


def test_ways_to_subscribe_exclude_each_other(member, topic):
    member.subscribe([topic])
    for other in (
        lambda: member.assign([(topic, 0)]),
        lambda: member.subscribe(pattern="topic-.*"),
    ):
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            other()
    member.unsubscribe()
    member.assign([(topic, 0)])
    assert member.assignment() == {(topic, 0)}


def test_what_needs_a_group_says_so(consumer, topic):
    for call in (lambda: consumer.subscribe([topic]), consumer.commit):
        with pytest.raises(IllegalStateError, match="group_id"):
            call()
    with pytest.raises(IllegalStateError, match="subscribe"):
        consumer.poll(0.1)


# -- commits


def test_commits_are_where_the_next_member_begins(broker, bootstrap, member, group, lane):
    broker.fill(lane, NUMBERS)
    place = TopicPartition(lane, 0)
    member.assign([place])
    assert member.committed([place]) == {place: None}
    records = member.poll(10, max_records=10)
    member.commit_record(records[4])
    assert member.committed([place])[place].offset == 5
    member.commit()
    assert member.committed([place])[place].offset == 10
    member.commit({place: OffsetAndMetadata(42, "a note")})
    assert member.committed([place])[place][:2] == (42, "a note")
    with headwater.Consumer(bootstrap_servers=bootstrap, group_id=group) as successor:
        successor.assign([place])
        assert successor.poll(10)[0].offset == 42


def test_asynchronous_commits_are_told_and_come_in_order(broker, member, lane):
    broker.fill(lane, NUMBERS)
    place = TopicPartition(lane, 0)
    member.assign([place])
    told = []
    for offset in range(1, 20):
        member.commit_async({place: offset}, lambda offsets, error: told.append((offsets, error)))
    member.commit({place: 20})
    assert [(offsets[place].offset, error) for offsets, error in told] == [
        (offset, None) for offset in range(1, 20)
    ]
    assert member.committed([place])[place].offset == 20


def test_automatic_commits_follow_the_position_and_close_makes_the_last(
    broker, bootstrap, group, lane
):
    broker.fill(lane, NUMBERS)
    place = TopicPartition(lane, 0)
    options = {"bootstrap_servers": bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    with headwater.Consumer(**options, auto_commit_interval_ms=50) as consumer:
        consumer.assign([place])
        consumer.poll(10, max_records=30)
        consumer.pause([place])
        until(
            "a commit",
            lambda: (consumer.committed([place])[place] or (0,))[0] == 30,
            lambda: consumer.poll(0.05),
        )
        consumer.resume([place])
        consumer.poll(10, max_records=3)
    with headwater.Consumer(**options) as consumer:
        assert consumer.committed([place])[place].offset == 33


def test_automatic_commits_come_also_while_records_are_always_at_hand(
    broker, bootstrap, group, lane
):
    broker.fill(lane, [b"%d" % number for number in range(20_000)])
    place = TopicPartition(lane, 0)
    with (
        headwater.Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=20,
        ) as consumer,
        headwater.Consumer(bootstrap_servers=bootstrap, group_id=group) as onlooker,
    ):
        consumer.assign([place])
        found = consumer.poll(10, 1)
        until(
            "a commit on the way",
            lambda: onlooker.committed([place])[place],
            lambda: found.extend(consumer.poll(0, 1)),
        )
        assert len(found) < 20_000


# -- arrow


def test_poll_arrow_gives_columns(broker, bootstrap, consumer, topic):
    with headwater.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"v", key=b"k", partition=1, headers=[("h", None)], timestamp=5)
        producer.send(topic, None, partition=1, timestamp=6)
    broker.fill(topic, NUMBERS, partition=2, compression_type="zstd")
    consumer.assign([(topic, number) for number in range(3)])
    rows = []
    until(
        "all rows",
        lambda: len(rows) == 102,
        lambda: rows.extend((consumer.poll_arrow(1) or _NoRows).to_pylist()),
    )
    rows.sort(key=lambda row: (row["partition"], row["offset"]))
    assert [row["value"] for row in rows] == [b"v", None, *NUMBERS]
    assert [row["key"] for row in rows[:2]] == [b"k", None]
    assert {row["topic"] for row in rows} == {topic}
    assert [row["offset"] for row in rows] == [0, 1, *range(100)]
    assert consumer.position((topic, 2)) == 100


class _NoRows:
    @staticmethod
    def to_pylist():
        return []


def test_poll_and_poll_arrow_may_take_turns(broker, consumer, lane):
    broker.fill(lane, NUMBERS)
    consumer.assign([(lane, 0)])
    first = values_of(consumer.poll(10, max_records=7))
    rest = consumer.poll_arrow(10)
    assert first + rest.column("value").to_pylist() == NUMBERS


# -- the asyncio face


def test_async_for_reads_and_commits(broker, bootstrap, group, lane):
    broker.fill(lane, NUMBERS)

    async def work():
        async with aio.Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            await consumer.subscribe([lane])
            seen = []
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 60:
                    await consumer.commit_record(record)
                    break
            return seen, await consumer.committed([(lane, 0)])

    seen, committed = asyncio.run(work())
    assert seen == NUMBERS[:60]
    assert committed[(lane, 0)].offset == 60


def test_two_tasks_on_one_consumer_are_told(bootstrap, lane):
    async def work():
        async with aio.Consumer(bootstrap_servers=bootstrap) as consumer:
            await consumer.assign([(lane, 0)])
            first = asyncio.ensure_future(consumer.poll(5))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentUseError):
                await consumer.poll(1)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await first

    asyncio.run(work())


def test_a_cancelled_poll_loses_no_record(broker, bootstrap, lane):
    async def work():
        async with aio.Consumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.assign([(lane, 0)])
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(None), 0.05)
            await asyncio.to_thread(broker.fill, lane, NUMBERS)
            seen = []
            while len(seen) < 100:
                batch = await consumer.poll_arrow(10)
                seen += batch.column("value").to_pylist()
            return seen

    assert asyncio.run(work()) == NUMBERS


def test_a_poll_cancelled_among_records_loses_none(broker, bootstrap, lane):
    """What a poll did not return is there for the next one, although it was fetched already."""
    broker.fill(lane, NUMBERS)

    async def work():
        async with aio.Consumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=3
        ) as consumer:
            await consumer.assign([(lane, 0)])
            seen = []
            while len(seen) < len(NUMBERS):
                seen += [record.value for record in await consumer.poll(30)]
                cut = asyncio.create_task(consumer.poll(0.01))
                await asyncio.sleep(0)
                cut.cancel()
                done = await asyncio.gather(cut, return_exceptions=True)
                assert isinstance(done[0], asyncio.CancelledError)
            return seen

    assert asyncio.run(work()) == NUMBERS


# -- transactions of others


def test_read_committed_shows_what_was_committed(apache_under_test):
    """On Apache Kafka alone until our broker serves transactions."""
    topic = apache_under_test.topic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": apache_under_test.bootstrap, "transactional.id": topic}
    )
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d-%d" % (number, part))
        producer.flush(30)
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(30)
    for level, wanted in (("read_committed", 13 * 3), ("read_uncommitted", 20 * 3)):
        with headwater.Consumer(
            bootstrap_servers=apache_under_test.bootstrap,
            auto_offset_reset="earliest",
            isolation_level=level,
        ) as consumer:
            consumer.assign([(topic, 0)])
            seen = values_of(poll_until(wanted, consumer))
            assert consumer.poll(0.1) == []
            assert len(seen) == wanted
            if level == "read_committed":
                assert {value.partition(b"-")[0] for value in seen} == {
                    b"%d" % number for number in range(20) if number % 3
                }
            assert consumer.position((topic, 0)) == 80


@pytest.mark.parametrize("ends", ["in the order of their begins", "in the reverse order"])
def test_read_committed_shows_nothing_of_aborted_transactions_that_overlap(apache_under_test, ends):
    topic = apache_under_test.topic()
    one, two, three = (
        confluent_kafka.Producer(
            {
                "bootstrap.servers": apache_under_test.bootstrap,
                "transactional.id": f"{topic}-{name}",
            }
        )
        for name in ("one", "two", "three")
    )
    for producer in (one, two, three):
        producer.init_transactions(30)
        producer.begin_transaction()
    for producer, value in ((one, b"aborted"), (two, b"aborted as well"), (three, b"kept")):
        producer.produce(topic, value)
        producer.flush(30)
    for producer in (one, two) if ends == "in the order of their begins" else (two, one):
        producer.abort_transaction(30)
    three.commit_transaction(30)
    for arrow in (False, True):
        with headwater.Consumer(
            bootstrap_servers=apache_under_test.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            consumer.assign([(topic, 0)])
            if arrow:
                assert consumer.poll_arrow(30)["value"].to_pylist() == [b"kept"]
            else:
                assert values_of(poll_until(1, consumer)) == [b"kept"]
            until(
                "the end is reached",
                lambda at=consumer: not at.poll(0.1) and at.position((topic, 0)) == 6,
            )
