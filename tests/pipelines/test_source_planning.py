"""What a query reads, asked of a real broker and without Spark: starts, ends, and what is lost."""

import json

import pytest

import headwater
from headwater.client.errors import TimedOutError, UnknownTopicOrPartitionError
from headwater.config.keys import ConfigError
from headwater.model import TopicPartition
from headwater.pipelines.topic_source.broker_client_loop import broker_client
from headwater.pipelines.topic_source.offsets import OffsetRange, to_json
from headwater.pipelines.topic_source.options import parse
from headwater.pipelines.topic_source.range_reader import DataLossError, RangeReader
from headwater.pipelines.topic_source.stream_plan import StreamPlan
from headwater.pipelines.topic_source.topics_view import TopicsView
from headwater.testing import Broker


@pytest.fixture
def admin(bootstrap):
    with headwater.Admin(bootstrap_servers=bootstrap) as one:
        yield one


@pytest.fixture
def options(bootstrap):
    def make(topic=None, *, streaming=True, **chosen):
        base = {"kafka.bootstrap.servers": bootstrap}
        if topic is not None:
            base["subscribe"] = topic
        return parse({**base, **chosen}, streaming=streaming)

    return make


@pytest.fixture
def plan(options):
    def make(topic=None, **chosen):
        return StreamPlan(options(topic, **chosen))

    return make


@pytest.fixture
def batch_ranges(options):
    def make(topic=None, **chosen):
        asked = options(topic, streaming=False, **chosen)
        view = TopicsView(asked)
        ends = view.ends(view.all_seen().partitions)
        return view.between(view.starts(asked.starting, ends), view.stops(asked.ending, ends), ends)

    return make


def step(plan, start, max_rows=None, min_rows=None):
    """One trigger: the end of the batch, and what it reads."""
    end = plan.next_end(start, max_rows, min_rows)
    return end, [tuple(one) for one in plan.ranges(start, end)]


# -- batch


def test_a_batch_reads_everything_by_default(batch_ranges, topic, produce):
    name = topic(partitions=2)
    produce(name, [b"a", b"b"], partition=1)
    assert batch_ranges(name) == [OffsetRange(name, 1, 0, 2)]


def test_offsets_of_a_batch_may_be_given_for_each_partition(batch_ranges, topic, produce):
    name = topic(partitions=2)
    produce(name, [b"a", b"b", b"c"], partition=0)
    produce(name, [b"a", b"b", b"c"], partition=1)
    start = f'{{"{name}": {{"0": 1, "1": -2}}}}'
    end = f'{{"{name}": {{"0": -1, "1": 2}}}}'
    found = batch_ranges(name, startingOffsets=start, endingOffsets=end)
    assert found == [OffsetRange(name, 0, 1, 3), OffsetRange(name, 1, 0, 2)]


def test_offsets_must_name_every_partition_and_no_other(batch_ranges, topic):
    name = topic(partitions=2)
    with pytest.raises(ConfigError, match=f"startingOffsets leaves out {name}-1"):
        batch_ranges(name, startingOffsets=f'{{"{name}": {{"0": 1}}}}')
    with pytest.raises(ConfigError, match=f"endingOffsets names {name}-2, which"):
        batch_ranges(name, endingOffsets=f'{{"{name}": {{"0": 1, "1": 1, "2": 1}}}}')


def test_times_choose_the_first_record_at_or_after_them(batch_ranges, topic, produce):
    name = topic(partitions=2)
    for partition in (0, 1):
        for moment in (1000, 2000, 3000):
            produce(name, [b"x"], partition=partition, timestamp=moment)
    assert batch_ranges(name, startingTimestamp="1500", endingTimestamp="3000") == [
        OffsetRange(name, 0, 1, 2), OffsetRange(name, 1, 1, 2)
    ]  # fmt: skip
    found = batch_ranges(
        name,
        startingOffsetsByTimestamp=f'{{"{name}": {{"0": 3000, "1": 2000}}}}',
        endingTimestamp="9000",
    )
    assert found == [OffsetRange(name, 0, 2, 3), OffsetRange(name, 1, 1, 3)]


def test_a_starting_time_after_everything_is_an_error_unless_latest_is_chosen(
    batch_ranges, topic, produce
):
    name = topic()
    produce(name, [b"x"], timestamp=1000)
    with pytest.raises(ConfigError, match="startingOffsetsByTimestampStrategy=latest"):
        batch_ranges(name, startingTimestamp="2000")
    chosen = {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch_ranges(name, startingTimestamp="2000", **chosen) == []


def test_a_topic_that_does_not_exist_is_named_with_its_nearest(batch_ranges, topic):
    name = topic("unlike-all-others")
    with pytest.raises(UnknownTopicOrPartitionError, match=f"did you mean {name}"):
        batch_ranges(name.replace("unlike", "unlyke"))
    with pytest.raises(UnknownTopicOrPartitionError, match="which does not exist"):
        batch_ranges(assign=f'{{"{name}": [0, 7]}}')


def test_patterns_mean_whole_names_and_no_internal_topics(batch_ranges, topic, produce):
    one, two = topic("pattern-a"), topic("pattern-b")
    for name in (one, two):
        produce(name, [b"x"])
    assert {found.topic for found in batch_ranges(subscribePattern="pattern-[ab].*")} == {one, two}
    assert batch_ranges(subscribePattern="pattern-") == []
    assert not any(found.topic.startswith("__") for found in batch_ranges(subscribePattern=".*"))


def test_single_partitions_may_be_assigned(batch_ranges, topic, produce):
    name = topic(partitions=3)
    for partition in range(3):
        produce(name, [b"x"], partition=partition)
    found = batch_ranges(assign=f'{{"{name}": [0, 2]}}')
    assert [one.partition for one in found] == [0, 2]


def test_a_batch_over_deleted_records_says_so(batch_ranges, topic, produce, admin):
    name = topic()
    produce(name, [b"x"] * 5)
    admin.delete_records({TopicPartition(name, 0): 3})
    start = {"startingOffsets": f'{{"{name}": {{"0": 1}}}}'}
    with pytest.raises(DataLossError, match="offsets 1 to 2 are gone"):
        batch_ranges(name, **start)
    assert batch_ranges(name, failOnDataLoss="false", **start) == [OffsetRange(name, 0, 3, 5)]
    with pytest.raises(DataLossError, match="it ends at 5, before offset 9"):
        batch_ranges(name, endingOffsets=f'{{"{name}": {{"0": 9}}}}')


def test_a_batch_that_ends_before_it_begins_is_refused(batch_ranges, topic, produce):
    name = topic()
    produce(name, [b"x"] * 5)
    with pytest.raises(ConfigError, match="the ending offset 2 is before the starting offset 4"):
        batch_ranges(
            name,
            startingOffsets=f'{{"{name}": {{"0": 4}}}}',
            endingOffsets=f'{{"{name}": {{"0": 2}}}}',
        )


# -- streams


def test_a_query_that_starts_at_latest_records_its_start_in_an_empty_first_batch(
    plan, topic, produce
):
    """Spark forgets the start of a query that dies in its first batch; see stream_plan."""
    name = topic()
    here = TopicPartition(name, 0)
    produce(name, [b"old"])
    first = plan(name)
    start = first.initial()
    produce(name, [b"new"])
    end, read = step(first, start)
    assert (start, end, read) == ({here: 1}, {here: 1}, [])

    again = plan(name)  # the driver died in batch 0, whose end Spark has kept
    assert again.initial() == {here: 2}
    assert again.ranges(again.initial(), end) == []
    assert step(again, end) == ({here: 2}, [(name, 0, 1, 2)])


def test_without_a_crash_the_second_batch_follows_the_empty_first(plan, topic, produce):
    name = topic()
    here = TopicPartition(name, 0)
    query = plan(name)
    start = query.initial()
    produce(name, [b"a"])
    end, read = step(query, start)
    assert read == []
    assert step(query, end) == ({here: 1}, [(name, 0, 0, 1)])


def test_the_empty_first_batch_holds_nobody_up_if_spark_does_not_plan_it(plan, topic, produce):
    name = topic()
    query = plan(name)
    start = query.initial()
    produce(name, [b"a"])
    assert query.next_end(start, None, None) == start
    assert query.next_end(start, None, None) == {TopicPartition(name, 0): 1}


def test_a_query_that_starts_at_the_earliest_reads_at_once(plan, topic, produce):
    name = topic()
    produce(name, [b"a", b"b"])
    query = plan(name, startingOffsets="earliest")
    assert step(query, query.initial())[1] == [(name, 0, 0, 2)]


def test_a_group_may_be_taken_over_from_its_committed_offsets(plan, topic, produce, admin):
    name = topic(partitions=2)
    for partition in (0, 1):
        produce(name, [b"x"] * 3, partition=partition)
    admin.set_group_offsets(f"group-{name}", {TopicPartition(name, 0): 2})
    query = plan(name, startingOffsets="committed", **{"group.id": f"group-{name}"})
    assert to_json(query.initial()) == {name: {"0": 2, "1": 0}}


def test_new_partitions_are_found_and_read_from_their_beginning(plan, topic, produce, admin):
    name = topic()
    query = plan(name, startingOffsets="earliest")
    start = query.initial()
    admin.create_partitions({name: 2})
    produce(name, [b"x"], partition=1)
    end, read = step(query, start)
    assert to_json(end) == {name: {"0": 0, "1": 1}}
    assert read == [(name, 1, 0, 1)]


def test_new_topics_of_a_pattern_are_found(plan, topic, produce):
    query = plan(subscribePattern="late-.*", startingOffsets="earliest")
    assert query.initial() == {}
    name = topic("late")
    produce(name, [b"x"])
    assert step(query, {})[1] == [(name, 0, 0, 1)]


def test_available_now_reads_what_was_there_and_nothing_that_came_later(plan, topic, produce):
    name = topic()
    here = TopicPartition(name, 0)
    produce(name, [b"x"] * 5)
    query = plan(name, startingOffsets="earliest")
    query.stop_here()
    position = query.initial()
    produce(name, [b"later"] * 5)
    read = []
    while (found := step(query, position, max_rows=2))[0] != position:
        position = found[0]
        read += found[1]
    assert position == {here: 5}
    assert read == [(name, 0, 0, 2), (name, 0, 2, 4), (name, 0, 4, 5)]


def test_a_deleted_topic_fails_the_query_or_is_left_out(plan, topic, produce, broker, caplog):
    name, other = topic(), topic()
    for one in (name, other):
        produce(one, [b"x"])
    both = f"{name},{other}"
    query = plan(both, startingOffsets="earliest")
    start, _ = step(query, query.initial())
    broker.delete_topic(name)
    with pytest.raises(DataLossError, match=f"{name}-0 is gone: the topic was deleted"):
        query.next_end(start, None, None)
    lenient = plan(both, failOnDataLoss="false")
    assert step(lenient, start) == ({TopicPartition(other, 0): 1}, [])
    assert f"{name}-0 is gone" in caplog.text


def test_a_topic_made_anew_is_noticed_although_it_is_as_long_as_before(
    plan, topic, produce, broker
):
    name = topic()
    produce(name, [b"old"] * 3)
    strict = plan(name, startingOffsets="earliest")
    lenient = plan(name, startingOffsets="earliest", failOnDataLoss="false")
    start, _ = step(strict, strict.initial())
    step(lenient, lenient.initial())
    broker.delete_topic(name)
    broker.create_topic(name)
    produce(name, [b"new"] * 4)
    with pytest.raises(DataLossError, match="deleted and recreated"):
        strict.next_end(start, None, None)
    end, read = step(lenient, start)
    assert read == [(name, 0, 0, 2)]
    assert step(lenient, end)[1] == [(name, 0, 2, 4)]


def test_a_topic_made_anew_between_two_runs_is_noticed_while_it_is_shorter(plan, topic, produce):
    name = topic()
    produce(name, [b"new"])
    checkpoint = {TopicPartition(name, 0): 3}
    with pytest.raises(DataLossError, match="read to offset 3, and the partition ends at 1"):
        plan(name).next_end(checkpoint, None, None)
    assert step(plan(name, failOnDataLoss="false"), checkpoint)[1] == [(name, 0, 0, 1)]


class Clock:
    now = 0

    def wall_ms(self):
        return self.now

    def monotonic_ms(self):
        return self.now


def test_a_batch_may_wait_for_enough_rows_but_not_for_ever(options, topic, produce):
    name, clock = topic(), Clock()
    query = StreamPlan(
        options(name, startingOffsets="earliest", maxTriggerDelay="10s"), clock=clock
    )
    assert query.next_end(query.initial(), None, 5) == {TopicPartition(name, 0): 0}
    produce(name, [b"x"])
    first = query.next_end(query.initial(), None, 5)
    assert first == {TopicPartition(name, 0): 1}, "the first batch waits for nothing"
    produce(name, [b"x"] * 3)
    assert query.next_end(first, None, 5) == first
    clock.now = 10_000
    second = query.next_end(first, None, 5)
    assert second == {TopicPartition(name, 0): 4}
    produce(name, [b"x"] * 5)
    assert query.next_end(second, None, 5) == {TopicPartition(name, 0): 9}


def test_a_target_time_makes_batches_grow_and_shrink(options, topic, produce):
    name, clock = topic(), Clock()
    here = TopicPartition(name, 0)
    produce(name, [b"x" * 10] * 60_000)
    query = StreamPlan(
        options(name, startingOffsets="earliest", targetBatchTime="10s"), clock=clock
    )
    first = query.next_end(query.initial(), 1 << 40, None)
    assert first == {here: 20_000}
    clock.now += 40_000
    assert query.next_end(first, 1 << 40, None) == {here: 25_000}


# -- transactions


@pytest.fixture
def transactional(bootstrap):
    with headwater.Producer(
        bootstrap_servers=bootstrap, transactional_id="sources", transaction_timeout_ms=900_000
    ) as sender:
        sender.init_transactions()
        yield sender


@pytest.fixture
def open_transaction(topic, produce, transactional):
    """A topic with two records, two of an open transaction, and one after them."""
    name = topic()
    produce(name, [b"a", b"b"])
    transactional.begin_transaction()
    transactional.send_many(name, [b"open 1", b"open 2"]).result()
    produce(name, [b"c"])
    yield name
    if transactional._core.transactions.manager.state.name == "IN_TRANSACTION":
        transactional.abort_transaction()


def test_a_stream_waits_for_open_transactions_and_passes_aborted_ones_and_markers(
    open_transaction, transactional, plan, values, bootstrap, produce
):
    here, query = (
        TopicPartition(open_transaction, 0),
        plan(open_transaction, startingOffsets="earliest"),
    )
    first, read = step(query, query.initial())
    assert read == [(*here, 0, 2)]
    assert step(query, first) == (first, [])
    transactional.abort_transaction()
    second, read = step(query, first)
    assert read == [(*here, 2, 6)]
    assert values(bootstrap, OffsetRange(*here, 0, 6)) == [b"a", b"b", b"c"]
    assert values(bootstrap, OffsetRange(*here, 2, 4)) == []
    assert values(bootstrap, OffsetRange(*here, 5, 6)) == [], "a marker alone"
    with transactional.transaction():
        transactional.send(open_transaction, b"d")
    third, read = step(query, second)
    assert (third, read) == ({here: 8}, [(*here, 6, 8)])
    assert values(bootstrap, OffsetRange(*here, 0, 8)) == [b"a", b"b", b"c", b"d"]
    assert step(query, third) == (third, [])


def test_what_was_read_uncommitted_is_no_loss_and_may_still_be_chosen(
    open_transaction, plan, batch_ranges
):
    here = TopicPartition(open_transaction, 0)
    everything = {"kafka.isolation.level": "read_uncommitted"}
    query = plan(open_transaction, startingOffsets="earliest", **everything)
    end, _ = step(query, query.initial())
    assert end == {here: 5}
    assert step(plan(open_transaction), end) == (end, [])
    assert batch_ranges(open_transaction) == [OffsetRange(*here, 0, 2)]
    assert batch_ranges(open_transaction, **everything) == [OffsetRange(*here, 0, 5)]


def test_a_batch_to_an_offset_beyond_an_open_transaction_waits_for_it(
    open_transaction, batch_ranges, bootstrap
):
    chosen = to_json({TopicPartition(open_transaction, 0): 5})
    (wanted,) = batch_ranges(open_transaction, endingOffsets=json.dumps(chosen))
    assert wanted == OffsetRange(open_transaction, 0, 0, 5)
    client = {"fetch_max_wait_ms": "10", "isolation_level": "read_committed"}
    reader = RangeReader(
        broker_client({"bootstrap_servers": bootstrap, **client}),
        headers=False, fail_on_data_loss=True, timeout_ms=150,
    )  # fmt: skip
    with pytest.raises(TimedOutError, match=r"from offset 2 on: .*a transaction may be open"):
        list(reader.read(wanted))


# -- reading


def test_a_range_that_never_comes_ends_in_an_error_that_names_it(bootstrap, topic):
    name = topic()
    reader = RangeReader(
        broker_client({"bootstrap_servers": bootstrap, "fetch_max_wait_ms": "10"}),
        headers=False, fail_on_data_loss=True, timeout_ms=150,
    )  # fmt: skip
    with pytest.raises(TimedOutError) as problem:
        list(reader.read(OffsetRange(name, 0, 0, 5)))
    assert f"{name}-0" in problem.value.message
    assert "from offset 0" in problem.value.message
    assert "pollTimeoutMs" in problem.value.message


@pytest.fixture
def values():
    """The values of a range, read as executors read it."""

    def read(bootstrap, wanted, *, fail=True):
        client = {
            "bootstrap_servers": bootstrap,
            "request_timeout_ms": "1000",
            "isolation_level": "read_committed",
        }
        reader = RangeReader(
            broker_client(client), headers=False, fail_on_data_loss=fail, timeout_ms=20_000
        )
        return [value for batch in reader.read(wanted) for value in batch["value"].to_pylist()]

    return read


def test_a_topic_deleted_before_its_range_was_read_is_lost_and_no_endless_wait(
    values, bootstrap, broker, topic, produce
):
    name = topic()
    produce(name, [b"x"])
    wanted = OffsetRange(name, 0, 0, 1)
    assert values(bootstrap, wanted) == [b"x"]
    broker.delete_topic(name)
    with pytest.raises(DataLossError, match="the topic was deleted"):
        values(bootstrap, wanted)
    assert values(bootstrap, wanted, fail=False) == []


def test_a_broker_that_restarts_is_found_again(values):
    with Broker(subprocess=True) as broker:
        broker.create_topic("t")
        with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("t", b"x")
        assert values(broker.bootstrap, OffsetRange("t", 0, 0, 1)) == [b"x"]
        broker.restart()
        assert values(broker.bootstrap, OffsetRange("t", 0, 0, 1)) == [b"x"]


def test_a_process_opens_its_connections_once(bootstrap):
    assert broker_client({"bootstrap_servers": bootstrap}) is broker_client(
        {"bootstrap_servers": bootstrap}
    )
