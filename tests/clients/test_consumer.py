"""What a consumer promises when it reads alone, on both brokers and in both faces."""

import asyncio
import itertools
import multiprocessing
import threading
import time

import pytest

import headwater
from headwater import aio
from headwater.client.consumer.interceptors import ConsumerInterceptor
from headwater.client.consumer.record import Records
from headwater.client.errors import (
    ClosedError,
    ConcurrentUseError,
    ForkedError,
    IllegalStateError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    SerializationError,
    TimedOutError,
    WakeupError,
)
from headwater.config.keys import ConfigError
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from tests.clients.broker_under_test import in_thread, poll_until, until, values_of
from tests.clients.faces import both_faces

NUMBERS = [b"%d" % number for number in range(100)]


# -- records


def test_a_record_is_read_as_it_was_stored(broker, consumer, topic):
    broker.fill(
        topic, [b"v"], partition=1, key=lambda _: b"k", timestamp=lambda _: 1_700_000_000_123
    )
    consumer.assign([(topic, 0), (topic, 1)])
    (record,) = poll_until(1, consumer)
    assert record == (topic, 1, 0, 1_700_000_000_123, 0, b"k", b"v", ())
    assert record.topic_partition == TopicPartition(topic, 1)


def test_what_our_producer_writes_comes_back(producer, consumer, lane):
    headers = (("h", b"1"), ("h", None), ("ü", b""))
    producer.send(lane, None, key=b"", headers=headers, timestamp=1).result(60)
    consumer.assign([(lane, 0)])
    (record,) = poll_until(1, consumer)
    assert record[2:] == (0, 1, 0, b"", None, headers)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_of_others_is_read(broker, consumer, lane, codec):
    values = [b"%06d" % number * 10 for number in range(3000)]
    broker.fill(lane, values, compression_type=codec)
    consumer.assign([(lane, 0)])
    assert values_of(poll_until(3000, consumer)) == values


def test_a_poll_returns_at_most_what_it_may_and_the_rest_later(broker, consumer_of, lane):
    broker.fill(lane, NUMBERS)
    consumer = consumer_of(max_poll_records=7)
    consumer.assign([(lane, 0)])
    found = []
    while len(found) < 100:
        records = consumer.poll(60)
        assert 0 < len(records) <= 7
        found += values_of(records)
    assert found == NUMBERS
    consumer.seek((lane, 0), 0)
    assert values_of(consumer.poll(60, max_records=2)) == NUMBERS[:2]


def test_records_come_by_partition_in_their_order(broker, consumer, topic):
    for partition in range(3):
        broker.fill(topic, [b"%d" % number for number in range(500)], partition=partition)
    consumer.assign([(topic, number) for number in range(3)])
    found = poll_until(1500, consumer)
    for partition in range(3):
        offsets = [record.offset for record in found if record.partition == partition]
        assert offsets == list(range(500))
    consumer.seek_to_beginning()
    records = consumer.poll(60)
    by_partition = records.by_partition()
    assert sorted(itertools.chain(*by_partition.values())) == sorted(records)
    assert set(by_partition) == records.partitions() <= consumer.assignment()


def test_a_record_larger_than_a_fetch_is_still_read(broker, consumer_of, lane):
    big = b"x" * 300_000
    broker.fill(lane, [b"small", big, b"small"])
    consumer = consumer_of(fetch_max_bytes=1000, max_partition_fetch_bytes=1000)
    consumer.assign([(lane, 0)])
    assert values_of(poll_until(3, consumer)) == [b"small", big, b"small"]


@both_faces
def test_iteration_moves_the_position_record_by_record(broker, member, lane):
    broker.fill(lane, NUMBERS)
    member.assign([(lane, 0)])
    seen = []
    for record in member:
        seen.append(record.value)
        assert member.position((lane, 0)) == record.offset + 1
        if len(seen) == 60:
            break
    assert seen == NUMBERS[:60]
    member.commit()
    assert member.committed([(lane, 0)])[lane, 0].offset == 60


@both_faces
def test_an_empty_poll_waits_for_its_timeout_and_ends(consumer, lane):
    consumer.assign([(lane, 0)])
    assert consumer.poll(0) == []
    begun = time.monotonic()
    assert consumer.poll(0.1) == []
    assert time.monotonic() - begun > 0.08
    assert consumer.poll_arrow(0.05) is None


def test_records_arrive_while_a_poll_waits(broker, consumer, lane):
    consumer.assign([(lane, 0)])
    consumer.poll(0.1)
    writer = in_thread(lambda: broker.fill(lane, [b"late"]))
    assert values_of(consumer.poll(60)) == [b"late"]
    writer.join()


def test_deserializers_and_interceptors_shape_records(broker, consumer_of, lane):
    class Broken(ConsumerInterceptor):
        def on_consume(self, records):
            raise RuntimeError("its fault does no harm")

    class FirstOnly(ConsumerInterceptor):
        def on_consume(self, records):
            return Records(r._replace(value=r.value.upper()) for r in records if r.key < 2)

    broker.fill(lane, [b"a", "ü".encode(), b"c"], key=lambda number: b"%d" % number)
    consumer = consumer_of(
        key_deserializer=int,
        value_deserializer="string",
        interceptors=[Broken(), FirstOnly()],
    )
    consumer.assign([(lane, 0)])
    assert [(r.key, r.value) for r in poll_until(2, consumer)] == [(0, "A"), (1, "Ü")]


@both_faces
def test_a_record_that_cannot_be_deserialized_is_named_and_can_be_passed(broker, consumer_of, lane):
    broker.fill(lane, [b'{"a":1}', None, b"{", b"3"])
    consumer = consumer_of(value_deserializer="json")
    consumer.assign([(lane, 0)])
    assert values_of(poll_until(2, consumer)) == [{"a": 1}, None]
    for _ in range(2):
        with pytest.raises(SerializationError, match=rf"{lane}-0 at offset 2.*seek past"):
            consumer.poll(60)
    assert consumer.position((lane, 0)) == 2
    consumer.seek((lane, 0), 3)
    assert values_of(poll_until(1, consumer)) == [3]


# -- positions


@both_faces
def test_positions_ends_lag_and_lead(broker, consumer, lane):
    broker.fill(lane, NUMBERS)
    consumer.assign([(lane, 0)])
    place = TopicPartition(lane, 0)
    assert consumer.position(place) == 0
    assert consumer.lag(place) in (None, 100), "unknown until the first answer"
    assert len(consumer.poll(60, max_records=10)) == 10
    assert (consumer.position(place), consumer.lag(place), consumer.lead(place)) == (10, 90, 10)
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.end_offsets([place]) == {place: 100}
    assert consumer.partitions_for(lane) == [0]
    metrics = consumer.metrics()
    assert (metrics["records-lag-max"], metrics["records-lead-min"]) == (90, 10)
    assert metrics["records-consumed-total"] == 10


@both_faces
def test_seeks_forward_back_and_to_the_ends_reach_a_fetch_that_waits(broker, consumer_of, lane):
    broker.fill(lane, NUMBERS)
    # A fetch at the end of the log waits longer than the test may take.
    consumer = consumer_of(fetch_max_wait_ms=600_000, request_timeout_ms=700_000)
    consumer.assign([(lane, 0)])
    assert len(poll_until(100, consumer)) == 100
    for offset in (50, 3, 99):
        assert consumer.poll(0.05) == []
        consumer.seek((lane, 0), offset)
        assert consumer.poll(60, max_records=1)[0].offset == offset
        consumer.seek_to_end([(lane, 0)])
        assert consumer.position((lane, 0)) == 100
    consumer.seek_to_beginning()
    assert consumer.poll(60)[0].offset == 0
    consumer.seek_to_end()
    assert consumer.position((lane, 0)) == 100, "the end is looked up before there is more"
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
def test_without_a_committed_offset_the_policy_decides(broker, consumer_of, lane, policy, first):
    broker.fill(lane, NUMBERS)
    consumer = consumer_of(auto_offset_reset=policy)
    consumer.assign([(lane, 0)])
    consumer.position((lane, 0))
    broker.fill(lane, [b"new"])
    assert consumer.poll(60)[0].value == first


def test_policy_none_asks_the_application(broker, consumer_of, group, lane):
    broker.fill(lane, NUMBERS)
    consumer = consumer_of(group_id=group, auto_offset_reset="none", enable_auto_commit=False)
    consumer.assign([(lane, 0)])
    with pytest.raises(NoOffsetForPartitionError, match=f"{lane}-0.*seek"):
        consumer.poll(60)
    consumer.seek((lane, 0), 98)
    assert values_of(poll_until(2, consumer)) == [b"98", b"99"]
    consumer.seek((lane, 0), 1000)
    with pytest.raises(OffsetOutOfRangeError, match="1000"):
        until("an error", lambda: None, lambda: consumer.poll(1))


def test_a_position_out_of_range_is_reset_by_policy(broker, consumer, lane):
    broker.fill(lane, NUMBERS)
    consumer.assign([(lane, 0)])
    consumer.seek((lane, 0), 1000)
    assert consumer.poll(60)[0].offset == 0


def test_a_recreated_topic_is_read_from_its_start(broker, consumer_of, lane):
    broker.fill(lane, NUMBERS)
    consumer = consumer_of(metadata_max_age_ms=200)
    consumer.assign([(lane, 0)])
    poll_until(100, consumer)
    broker.recreate(lane)
    broker.fill(lane, [b"new %d" % number for number in range(200)])
    assert values_of(poll_until(200, consumer)) == [b"new %d" % number for number in range(200)]


# -- pause, wake, close


@both_faces
def test_paused_partitions_wait_and_lose_nothing(broker, consumer, topic):
    for partition in range(2):
        broker.fill(topic, NUMBERS, partition=partition)
    consumer.assign([(topic, 0), (topic, 1)])
    consumer.pause([(topic, 0)])
    assert consumer.paused() == {(topic, 0)}
    assert {record.partition for record in poll_until(100, consumer)} == {1}
    assert consumer.poll(0.1) == []
    consumer.resume([(topic, 0)])
    assert consumer.paused() == set()
    rest = poll_until(100, consumer)
    assert {record.partition for record in rest} == {0}
    assert values_of(rest) == NUMBERS


@both_faces
def test_wakeup_ends_a_poll_or_the_next_one_and_nothing_else(broker, consumer, lane):
    consumer.assign([(lane, 0)])
    in_thread(consumer.wakeup)
    with pytest.raises(WakeupError):
        consumer.poll(60)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(60)
    broker.fill(lane, [b"v"])
    assert values_of(poll_until(1, consumer)) == [b"v"]


def test_wakeup_ends_a_poll_without_a_timeout(consumer, lane):
    consumer.assign([(lane, 0)])
    threading.Timer(0.1, consumer.wakeup).start()
    with pytest.raises(WakeupError):
        consumer.poll(None)


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
    thread.join(60)
    assert "another thread" in str(caught[0])
    assert "its own" in str(caught[0])


@both_faces
def test_a_closed_consumer_says_so(consumer, lane):
    consumer.assign([(lane, 0)])
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll(1)


def test_a_forked_child_cannot_use_its_parents_consumer(consumer, lane):
    consumer.assign([(lane, 0)])
    _inherited[:] = [consumer]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        said = pool.apply_async(_use_inherited).get(timeout=60)
    assert all("child" in text for text in said), said
    assert consumer.position((lane, 0)) == 0


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


def test_nothing_hangs_where_no_broker_is():
    consumer = headwater.Consumer(
        bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=500, request_timeout_ms=400
    )
    with pytest.raises(TimedOutError, match=r"127\.0\.0\.1:1"):
        consumer.assign([("t", 0)])
    with pytest.raises(TimedOutError):
        consumer.end_offsets([("t", 0)])
    consumer.close(1)


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
    with pytest.raises(IllegalStateError, match="not assigned"):
        member.seek((topic, 1), 0)


@both_faces
def test_what_needs_a_group_says_so(consumer, topic):
    for call in (lambda: consumer.subscribe([topic]), consumer.commit):
        with pytest.raises(IllegalStateError, match="group_id"):
            call()
    with pytest.raises(IllegalStateError, match=r"has no partitions.*subscribe"):
        consumer.poll(0.1)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"groupid": "x"}, "did you mean group_id"),
        ({"group_id": "x", "partition_assignment_strategy": "rang"}, "range"),
    ],
)
def test_a_mistyped_setting_is_refused_with_the_right_one(option, said):
    with pytest.raises(ConfigError, match=said):
        headwater.Consumer(bootstrap_servers="127.0.0.1:1", **option)


def test_every_error_of_a_consumer_is_a_kafka_error():
    for kind in (WakeupError, ConcurrentUseError, NoOffsetForPartitionError, IllegalStateError):
        assert issubclass(kind, KafkaError)


# -- arrow


@both_faces
def test_poll_arrow_gives_columns(broker, producer, consumer, topic):
    producer.send(topic, b"v", key=b"k", partition=1, headers=[("h", b"x")], timestamp=5)
    producer.send(topic, None, partition=1, timestamp=6, headers=[("h", None)])
    producer.flush(60)
    broker.fill(topic, NUMBERS, partition=2, compression_type="zstd")
    consumer.assign([(topic, number) for number in range(3)])
    rows = []
    while len(rows) < 102:
        batch = consumer.poll_arrow(60)
        batch.validate(full=True)
        rows += batch.to_pylist()
    rows.sort(key=lambda row: (row["partition"], row["offset"]))
    assert [row["value"] for row in rows] == [b"v", None, *NUMBERS]
    assert [row["key"] for row in rows[:2]] == [b"k", None]
    assert {row["topic"] for row in rows} == {topic}
    assert [row["offset"] for row in rows] == [0, 1, *range(100)]
    assert rows[0]["timestamp"].timestamp() == 0.005
    assert [row["headers"] for row in rows[:3]] == [
        [{"key": b"h", "value": b"x"}], [{"key": b"h", "value": None}], [],
    ]  # fmt: skip
    assert consumer.position((topic, 2)) == 100


def test_poll_and_poll_arrow_may_take_turns(broker, consumer, lane):
    broker.fill(lane, NUMBERS)
    consumer.assign([(lane, 0)])
    first = values_of(consumer.poll(60, max_records=7))
    rest = consumer.poll_arrow(60)
    assert first + rest.column("value").to_pylist() == NUMBERS


# -- the asyncio face


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
                batch = await consumer.poll_arrow(60)
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
                seen += [record.value for record in await consumer.poll(60)]
                cut = asyncio.create_task(consumer.poll(0.01))
                await asyncio.sleep(0)
                cut.cancel()
                done = await asyncio.gather(cut, return_exceptions=True)
                assert isinstance(done[0], asyncio.CancelledError)
            return seen

    assert asyncio.run(work()) == NUMBERS
