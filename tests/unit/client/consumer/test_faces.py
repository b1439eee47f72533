"""What both faces of consumer and admin offer beyond poll: ends, lag, arguments, listeners, fencing."""

import asyncio
import itertools
import logging
import pickle
import threading
import time

import pytest

import headwater
import headwater.aio
from headwater.client.admin import PartitionLag
from headwater.client.consumer import consumer_core
from headwater.client.errors import ClosedError, IllegalStateError
from headwater.config.client import AdminSettings, ConsumerSettings, ProducerSettings
from headwater.config.keys import ConfigError
from headwater.config.other_clients import OTHER_CLIENTS
from headwater.errors import FencedInstanceIdError, UnknownTopicOrPartitionError
from headwater.model import TopicPartition
from headwater.testing import Broker

HERE = TopicPartition("t", 0)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker():
    with Broker({"group.min.session.timeout.ms": 100}) as running:
        running.create_topic("t", 2)
        running.create_topic("empty")
        with headwater.Producer(bootstrap_servers=running.bootstrap) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number, partition=number % 2)
        yield running


@pytest.fixture
def options(broker):
    return {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest"}


@pytest.fixture
def group():
    return f"group-{next(_numbers)}"


@pytest.fixture
def admin(broker):
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


def test_close_in_a_signal_handler_ends_the_wait_of_the_poll_below_it(options, monkeypatch) -> None:
    with headwater.Consumer(**options) as consumer:
        consumer.assign([("empty", 0)])
        wakeup, woken = consumer._core.poll_wakeup, []

        def interrupted(limit_s: float) -> bool:
            consumer.close()
            woken.append(wait(0))
            return woken[-1]

        wait = wakeup.wait_in_thread
        monkeypatch.setattr(wakeup, "wait_in_thread", interrupted)
        with pytest.raises(ClosedError):
            consumer.poll(60)
        assert woken == [True]


def test_close_in_another_task_ends_a_poll(options, monkeypatch) -> None:
    monkeypatch.setattr(consumer_core, "_LONGEST_WAIT_MS", 10**9)

    async def main() -> None:
        consumer = headwater.aio.Consumer(**options, max_poll_interval_ms=10**9)
        await consumer.assign([("empty", 0)])
        await consumer.poll(0.1)
        wakeup, waits = consumer._core.poll_wakeup, asyncio.Event()
        wait = wakeup.wait

        async def noted(limit_s: float) -> None:
            waits.set()
            await wait(limit_s)

        monkeypatch.setattr(wakeup, "wait", noted)
        poll = asyncio.ensure_future(consumer.poll(60))
        await waits.wait()
        await consumer.close()
        with pytest.raises(ClosedError):
            await asyncio.wait_for(poll, 30)

    asyncio.run(main())


# -- up to the end


def test_read_to_end_gives_everything_once_and_ends(options) -> None:
    with headwater.Consumer(**options, max_poll_records=7) as consumer:
        consumer.assign([("t", 0), ("t", 1), ("empty", 0)])
        seen = [(record.partition, record.offset) for record in consumer.read_to_end()]
        assert sorted(seen) == [(p, n) for p in (0, 1) for n in range(50)]
        assert list(consumer.read_to_end()) == []


def test_read_to_end_leaves_later_records_for_poll(broker, options) -> None:
    broker.create_topic(name := f"growing-{next(_numbers)}")
    with (
        headwater.Producer(bootstrap_servers=broker.bootstrap) as producer,
        headwater.Consumer(**options) as consumer,
    ):
        producer.send_many(name, [b"a", b"b"]).result(60)
        consumer.assign([(name, 0)])
        assert [record.value for record in consumer.read_to_end()] == [b"a", b"b"]
        producer.send(name, b"c").result(60)
        assert [record.value for record in consumer.poll(30)] == [b"c"]


def test_read_to_end_waits_for_the_partitions_of_a_subscription(options, group) -> None:
    with headwater.Consumer(**options, group_id=group) as consumer:
        consumer.subscribe(["t"])
        assert sum(1 for _ in consumer.read_to_end()) == 100


def test_the_asyncio_consumer_reads_to_the_end_too(options) -> None:
    async def main() -> int:
        async with headwater.aio.Consumer(**options) as consumer:
            await consumer.assign([("t", 0), ("t", 1)])
            return len([record async for record in consumer.read_to_end()])

    assert asyncio.run(main()) == 100


# -- groups


def test_the_lag_of_a_group_is_told_for_what_it_reads_and_has_committed(
    options, group, admin
) -> None:
    admin.set_group_offsets(group, {HERE: 40})
    assert admin.lag(group) == {HERE: PartitionLag(40, 50, 10)}
    with headwater.Consumer(**options, group_id=group, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(0.1)
        assert admin.lag(group) == {
            HERE: PartitionLag(40, 50, 10),
            TopicPartition("t", 1): PartitionLag(None, 50, None),
        }


def test_several_groups_are_described_at_once(group, admin) -> None:
    admin.set_group_offsets(group, {HERE: 40})
    admin.set_group_offsets(f"{group}-other", {HERE: 40})
    found = admin.describe_groups([group, f"{group}-other"])
    assert [(name, row.group_id, row.state) for name, row in found.items()] == [
        (group, group, "Empty"),
        (f"{group}-other", f"{group}-other", "Empty"),
    ]


def test_a_fenced_member_stays_fenced_and_leaves_its_successor_alone(options, group) -> None:
    shared = {**options, "group_id": group, "group_instance_id": "one", "heartbeat_interval_ms": 50}
    with headwater.Consumer(**shared) as first, headwater.Consumer(**shared) as second:
        for consumer in (first, second):
            consumer.subscribe(["t"])
            while not consumer.assignment():
                consumer.poll(0.1)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                first.poll(0.1)
            except FencedInstanceIdError:
                break
        for _ in range(3):
            with pytest.raises(FencedInstanceIdError, match=r"group\.instance\.id"):
                first.poll(0.2)
        second.poll(0.3)
        second.commit()


def test_a_consumer_that_waits_inside_poll_stays_in_its_group(options, group, caplog) -> None:
    short = {"max_poll_interval_ms": 300, "session_timeout_ms": 6000, "heartbeat_interval_ms": 50}
    with headwater.Consumer(
        **options, **short, group_id=group, enable_auto_commit=False
    ) as consumer:
        consumer.subscribe(["empty"])
        while not consumer.assignment():
            consumer.poll(0.1)
        assert consumer.poll(1.2) == []
        assert consumer.assignment() == {TopicPartition("empty", 0)}
    assert "did not poll" not in caplog.text


def test_poll_inside_a_listener_is_refused_in_words(options, group) -> None:
    said = []

    class Polls(headwater.RebalanceListener):
        def on_assigned(self, partitions):
            try:
                consumer.poll(0)
            except IllegalStateError as problem:
                said.append(str(problem))
            consumer.seek(HERE, 30)  # other calls are welcome

    with headwater.Consumer(**options, group_id=group) as consumer:
        consumer.subscribe(["t"], listener=Polls())
        seen = []
        while not any(record.partition == 0 for record in seen):
            seen = consumer.poll(5)
        assert next(record for record in seen if record.partition == 0).offset == 30
    assert "inside a rebalance listener" in said[0]


# -- arguments


def test_a_text_or_mapping_in_place_of_a_list_is_refused(admin) -> None:
    calls = [
        ("create_topics", "abc"), ("delete_topics", "zz1"), ("describe_topics", "t"),
        ("delete_groups", "g"), ("describe_groups", "g"), ("create_topics", {"a": 1}),
        ("delete_topics", {"a": 1}), ("delete_topics", b"ab"),
    ]  # fmt: skip
    for call, given in calls:
        with pytest.raises(TypeError, match=rf"{call} takes a list"):
            getattr(admin, call)(given)
    with pytest.raises(TypeError, match="create_partitions takes"):
        admin.create_partitions(["t"])
    assert "t" in admin.list_topics()


def test_numbers_and_booleans_in_configs_are_taken(admin) -> None:
    name = f"configured-{next(_numbers)}"
    admin.create_topics([headwater.NewTopic(name, configs={"retention.ms": 3_600_000})])
    resource = headwater.ConfigResource.topic(name)
    admin.alter_configs({resource: {"max.message.bytes": 2000, "preallocate": False}})
    found = admin.describe_configs([resource])[resource]
    assert (found["retention.ms"].value, found["max.message.bytes"].value) == ("3600000", "2000")
    admin.replace_configs({resource: {"retention.ms": 7_200_000}})
    assert admin.describe_configs([resource])[resource]["retention.ms"].value == "7200000"
    with pytest.raises(TypeError, match=r"retention\.ms cannot be of type list"):
        admin.create_topics([headwater.NewTopic("x", configs={"retention.ms": [1]})])


@pytest.mark.parametrize("wrong", [{"orders": 1}, {"ab": 1}, {("t", "0"): 1}, {0: 1}])
def test_a_commit_of_something_else_than_partitions_says_what_to_write(
    options, group, wrong
) -> None:
    with headwater.Consumer(**options, group_id=group) as consumer:
        consumer.assign([HERE])
        with pytest.raises(TypeError, match=r"is not a \(topic, partition\), such as"):
            consumer.commit(wrong)
        with pytest.raises(TypeError, match="an offset is a whole number"):
            consumer.commit({HERE: "1"})


def test_the_asyncio_face_takes_timeout_under_both_names(options) -> None:
    async def main() -> None:
        async with headwater.aio.Consumer(**options) as consumer:
            await consumer.assign([("empty", 0)])
            assert await consumer.poll(timeout=0.01) == []
            assert await consumer.poll(timeout_s=0.01) == []
            assert await consumer.poll_arrow(timeout=0.01) is None
            assert await consumer.poll_arrow(timeout_s=0.01) is None
            with pytest.raises(TypeError, match="unexpected keyword argument 'timeot'"):
                await consumer.poll(timeot=1)
            await consumer.close(timeout=5)

    asyncio.run(main())


def test_words_of_other_clients_lead_to_ours_and_never_to_something_else() -> None:
    roles = (ConsumerSettings, ProducerSettings, AdminSettings)
    for name, instead in OTHER_CLIENTS.items():
        assert not any(name in role.KEYS for role in roles), name
        keyword = name.replace(".", "_")
        for role in roles:
            with pytest.raises(ConfigError) as refused:
                role.of({"bootstrap_servers": "a:1", keyword: "1"})
            expected = instead.replace(".", "_") if instead in role.KEYS else instead
            assert str(refused.value).startswith(f"unknown setting {keyword}")
            assert expected in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        ConsumerSettings.of({"bootstrap_servers": "a:1", "consumer_timout_ms": "1"})
    assert "session_timeout_ms" not in str(refused.value)


def test_keys_with_dots_are_taken_and_corrected_with_dots() -> None:
    given = {"bootstrap.servers": "a:1", "group.id": "g"}
    assert ConsumerSettings.of(given).group_id == "g"
    with pytest.raises(ConfigError, match=r"did you mean auto\.offset\.reset\?"):
        ConsumerSettings.of({**given, "auto.ofset.reset": "earliest"})
    with pytest.raises(ConfigError, match=r"its name here is bootstrap\.servers"):
        ConsumerSettings.of({"metadata.broker.list": "a:1"})
    with pytest.raises(ConfigError, match=r"group\.id is set twice"):
        ConsumerSettings.of({**given, "group_id": "other"})


CONFLUENT = {
    "bootstrap.servers": "a:1",
    "message.timeout.ms": 1000,
    "key.serializer": str.encode,
    "error.cb": print,
    "lingr.ms": 5,
}


@pytest.mark.parametrize("package", [headwater, headwater.aio], ids=["blocking", "asyncio"])
def test_a_dict_as_other_clients_take_it_is_answered_with_what_to_write(package) -> None:
    for kind in ("Producer", "Consumer", "Admin"):
        with pytest.raises(TypeError) as refused:
            getattr(package, kind)({"bootstrap.servers": "a:1"})
        told = f"{kind}() takes its settings as keywords, not as a dict: {kind}(**{{…}})"
        assert str(refused.value) == told
    with pytest.raises(TypeError) as refused:
        package.Producer(CONFLUENT)
    assert str(refused.value).partition("these changes: ")[2].split("; ") == [
        "rename message.timeout.ms to delivery.timeout.ms",
        "rename key.serializer to key_serializer",
        "remove error.cb (errors are raised by the calls they belong to, and logged)",
        "unknown setting lingr.ms",
        "did you mean linger.ms?",
    ]
    with pytest.raises(TypeError, match=r"Consumer\(.*localhost:9092.*\), then subscribe\("):
        package.Consumer("orders", bootstrap_servers="a:1")


def test_an_address_with_a_protocol_in_front_is_refused() -> None:
    with pytest.raises(ConfigError, match="write 'host:9092'"):
        AdminSettings.of({"bootstrap_servers": "kafka://host:9092"})
    assert AdminSettings.of({"bootstrap_servers": "a:1, b:2,a:1"}).bootstrap_servers == (
        "a:1",
        "b:2",
    )


def test_heartbeats_that_one_loss_would_turn_into_a_rebalance_are_warned_of(caplog) -> None:
    tight = {"heartbeat_interval_ms": 4000, "session_timeout_ms": 10_000}
    settings = ConsumerSettings.of({"bootstrap_servers": "a:1", "group_id": "g", **tight})
    assert "over a third of session.timeout.ms=10000" in settings.warnings()[0]
    with headwater.Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", **tight):
        pass
    assert [row.levelno for row in caplog.records if "over a third" in row.getMessage()] == [
        logging.WARNING
    ]
    fine = {"heartbeat_interval_ms": 3333, "session_timeout_ms": 10_000}
    assert not ConsumerSettings.of({"bootstrap_servers": "a:1", "group_id": "g", **fine}).warnings()


def test_ctrl_c_shows_no_frames_of_the_package_below_the_face(options) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with headwater.Consumer(**options) as consumer:
        consumer.assign([HERE])
        consumer._core.ready.take_records = lambda limit: interrupted()
        with pytest.raises(KeyboardInterrupt) as stopped:
            consumer.poll(5)
    frames = [row.name for row in stopped.traceback]
    assert frames[1:] == ["poll", "poll"]
    assert stopped.value.__suppress_context__


def test_a_topic_is_created_from_a_test_that_is_a_coroutine(broker) -> None:
    async def main() -> None:
        broker.create_topic("made-in-a-coroutine", configs={"retention.ms": 1000})
        async with headwater.aio.Admin(bootstrap_servers=broker.bootstrap) as admin:
            assert "made-in-a-coroutine" in await admin.list_topics()
        broker.delete_topic("made-in-a-coroutine")

    asyncio.run(main())


def test_a_partition_lag_is_a_plain_tuple() -> None:
    assert pickle.loads(pickle.dumps(PartitionLag(1, 2, 1))) == (1, 2, 1)


# -- offsets that cannot be, and partitions that are gone


@pytest.mark.parametrize("offset", [1.5, "7", None, -1, 2**63])
def test_an_offset_that_cannot_be_is_refused_at_once_and_the_consumer_reads_on(
    options, group, offset
) -> None:
    with headwater.Consumer(group_id=group, **options) as consumer:
        consumer.assign([HERE])
        with pytest.raises((TypeError, ValueError), match="t-0: an offset is"):
            consumer.seek(HERE, offset)
        with pytest.raises((TypeError, ValueError), match="t-0: an offset is"):
            consumer.commit({HERE: offset})
        assert consumer.poll(10)[0].offset == 0


def test_a_commit_for_a_partition_that_does_not_exist_says_so_and_keeps_the_others(
    options, group
) -> None:
    absent = TopicPartition("t", 77)
    with headwater.Consumer(group_id=group, default_api_timeout_ms=10_000, **options) as consumer:
        consumer.assign([HERE])
        with pytest.raises(UnknownTopicOrPartitionError, match="t-77"):
            consumer.commit({absent: 1, HERE: 5})
        assert consumer.committed([HERE])[HERE].offset == 5


@pytest.mark.parametrize("way", ["poll", "process"])
def test_a_group_goes_on_with_its_other_topics_when_one_is_deleted(group, way, caplog) -> None:
    """The offsets of the deleted topic can no longer be committed, which must not hold it up."""
    stays, goes, seen = "stays", "goes", []

    def note(record):
        seen.append(record.value)
        if record.value == b"2":
            consumer.stop_processing()

    with (
        Broker({"auto.create.topics.enable": "false"}) as broker,
        headwater.Producer(bootstrap_servers=broker.bootstrap) as producer,
        headwater.Consumer(
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            metadata_max_age_ms=100,
            request_timeout_ms=10_000,
            default_api_timeout_ms=10_000,
        ) as consumer,
    ):
        for name in (stays, goes):
            broker.create_topic(name)
            producer.send(name, b"1").result(60)
        consumer.subscribe([stays, goes])

        def delete_and_send():
            while seen.count(b"1") < 2:
                time.sleep(0.01)
            broker.delete_topic(goes)
            while "before a rebalance failed" not in caplog.text:
                time.sleep(0.01)
            producer.send(stays, b"2").result(60)

        helper = threading.Thread(target=delete_and_send, daemon=True)
        helper.start()
        if way == "process":
            consumer.process(note)
        while b"2" not in seen:
            seen.extend(record.value for record in consumer.poll(0.1))
        helper.join()
    assert "goes-0: this broker has no such topic or partition" in caplog.text


# -- work that process() cannot do


def test_work_that_nobody_would_await_is_refused_before_anything_is_committed(
    options, group
) -> None:
    async def work(record):
        raise AssertionError("never awaited")

    def begun(record):
        return work(record)

    with headwater.Consumer(group_id=group, **options) as consumer:
        consumer.subscribe(["t"])
        for wrong in (work, begun, 5):
            with pytest.raises(TypeError, match=r"headwater\.aio"):
                consumer.process(wrong)
        assert not any(row.offset for row in consumer.committed([HERE]).values() if row)


def test_plain_work_in_asyncio_is_refused_after_one_call_and_not_repeated(options, group) -> None:
    calls = []

    async def main():
        async with headwater.aio.Consumer(group_id=group, **options) as consumer:
            await consumer.subscribe(["t"])
            with pytest.raises(TypeError, match="async def"):
                await consumer.process(calls.append, workers=1, dead_letter_topic="empty")
            return await consumer.end_offsets([("empty", 0)])

    assert list(asyncio.run(main()).values()) == [0]
    assert len(calls) == 1


@pytest.mark.parametrize("wish", [{"topics": ["t"]}, {"pattern": "t.*"}])
def test_a_dead_letter_topic_that_the_consumer_reads_itself_is_refused(
    options, group, wish
) -> None:
    with headwater.Consumer(group_id=group, **options) as consumer:
        consumer.subscribe(**wish)
        with pytest.raises(ValueError, match="dead_letter_topic 't' is one that this consumer"):
            consumer.process(print, dead_letter_topic="t")


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_record_that_fails_while_process_stops_keeps_its_repetitions(
    options, group, face
) -> None:
    """It comes again at the next start; it is not a dead letter, and its failure is not an error."""

    def failing(record):
        consumer.stop_processing()
        raise ConnectionError("the database has gone first")

    async def failing_soon(record):
        failing(record)

    async def main():
        nonlocal consumer
        async with headwater.aio.Consumer(group_id=group, **options) as consumer:
            await consumer.subscribe(["t"])
            await consumer.process(failing_soon, workers=1, retries=5, dead_letter_topic="empty")
            return await consumer.end_offsets([("empty", 0)]), await consumer.committed([HERE])

    if face == "asyncio":
        consumer = None
        letters, committed = asyncio.run(main())
    else:
        with headwater.Consumer(group_id=group, **options) as consumer:
            consumer.subscribe(["t"])
            consumer.process(failing, workers=1, retries=5, dead_letter_topic="empty")
            letters = consumer.end_offsets([("empty", 0)])
            committed = consumer.committed([HERE])
    assert list(letters.values()) == [0]
    assert not any(row.offset for row in committed.values() if row)
