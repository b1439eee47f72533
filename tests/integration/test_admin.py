"""The admin client, in both faces, against a real broker."""

import asyncio
import datetime as dt
import time
import uuid

import pytest

import headwater
from headwater import aio
from headwater.client.admin import (
    AlterConfigOp,
    ConfigChange,
    ConfigResource,
    GroupNotEmptyError,
    NewTopic,
    ResetTo,
)
from headwater.client.errors import ClosedError, TimedOutError, UnknownTopicOrPartitionError
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from tests.integration.either import EITHER, either


def eventually(condition):
    """Brokers hear of changes a moment after the controller has answered."""
    limit = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < limit


@pytest.fixture(scope="module", params=EITHER)
def broker(request):
    yield from either(request)


@pytest.fixture
def admin(broker):
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


@pytest.fixture
def topic(admin):
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, partitions=2)])
    eventually(lambda: name in admin.list_topics())
    return name


def fill(broker, topic, count, **options):
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0, **options)


def test_topics_are_made_listed_described_grown_and_deleted(admin) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 3, 1, {"retention.ms": "1000"})], validate_only=True)
    assert name not in admin.list_topics()
    admin.create_topics([NewTopic(name, 3, 1, {"retention.ms": "1000"})])
    eventually(lambda: name in admin.list_topics())
    view = admin.describe_topics([name])[name]
    assert [row.partition for row in view.partitions] == [0, 1, 2]
    assert all(row.leader == 1 and row.isr == (1,) for row in view.partitions)
    with pytest.raises(KafkaError) as exists:
        admin.create_topics([name])
    assert exists.value.code is E.TOPIC_ALREADY_EXISTS
    admin.create_partitions({name: 5})
    eventually(lambda: len(admin.describe_topics([name])[name].partitions) == 5)
    with pytest.raises(KafkaError) as fewer:
        admin.create_partitions({name: 2})
    assert fewer.value.code is E.INVALID_PARTITIONS
    admin.delete_topics([name])
    eventually(lambda: name not in admin.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_topics([name])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_replicas_can_be_chosen_and_bad_topics_are_named_together(admin) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, replicas={0: [1], 1: [1]})])
    eventually(lambda: name in admin.list_topics())
    assert len(admin.describe_topics([name])[name].partitions) == 2
    with pytest.raises(KafkaError) as refused:
        admin.create_topics(["a b", NewTopic(f"{name}-x", configs={"nonsense": "1"})])
    with pytest.raises(KafkaError) as none:
        admin.create_topics([NewTopic(f"{name}-none", partitions=0)])
    assert none.value.code is E.INVALID_PARTITIONS
    with pytest.raises(TypeError, match=r"write Resource\.topic\('orders'\)"):
        admin.describe_configs(["orders"])
    assert "a b" in refused.value.message
    assert f"{name}-x" in refused.value.message


def shown(admin, resource):
    return admin.describe_configs([resource])[resource]


def test_configs_are_changed_and_return_to_their_defaults(admin, topic) -> None:
    resource = ConfigResource.topic(topic)
    admin.alter_configs({resource: {"retention.ms": "5000", "cleanup.policy": "compact"}})
    admin.alter_configs(
        {resource: [ConfigChange("cleanup.policy", "delete", AlterConfigOp.APPEND)]}
    )
    eventually(lambda: "delete" in shown(admin, resource)["cleanup.policy"].value)
    configs = admin.describe_configs([resource], documentation=True)[resource]
    assert configs["retention.ms"].value == "5000"
    assert not configs["retention.ms"].is_default
    assert configs["retention.ms"].documentation
    assert set(configs["cleanup.policy"].value.split(",")) == {"compact", "delete"}
    admin.alter_configs({resource: {"retention.ms": None}})
    eventually(lambda: shown(admin, resource)["retention.ms"].is_default)
    admin.replace_configs({resource: {"segment.bytes": "1048576"}})
    eventually(lambda: shown(admin, resource)["segment.bytes"].value == "1048576")
    assert shown(admin, resource)["cleanup.policy"].is_default
    with pytest.raises(KafkaError) as refused:
        admin.alter_configs({resource: {"retention.ms": "soon"}})
    assert refused.value.code is E.INVALID_CONFIG
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_configs([ConfigResource.topic("no-such-topic")])


def test_brokers_tell_of_themselves(admin, broker, topic) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert [(node.id, node.port) for node in cluster.brokers] == [(1, broker.port)]
    fill(broker, topic, 10)
    (folder,) = admin.describe_log_dirs()
    assert folder.error is E.NONE
    assert folder.sizes[TopicPartition(topic, 0)] > 0
    node = ConfigResource.broker(1)
    assert admin.describe_configs([node])[node]["log.dirs"].value == folder.path
    with pytest.raises(KafkaError, match="no broker 9"):
        admin.describe_log_dirs([9])


def test_records_are_deleted_up_to_an_offset(admin, broker, topic) -> None:
    place = TopicPartition(topic, 0)
    fill(broker, topic, 10)
    assert admin.delete_records({place: 4}) == {place: 4}
    assert admin.beginning_offsets([place]) == {place: 4}
    assert admin.delete_records({place: -1}) == {place: 10}
    assert admin.end_offsets([place]) == {place: 10}
    with pytest.raises(KafkaError) as refused:
        admin.delete_records({place: 99})
    assert refused.value.code is E.OFFSET_OUT_OF_RANGE


def test_groups_are_listed_described_and_deleted(admin, broker, topic) -> None:
    group = f"g-{topic}"
    with headwater.Consumer(bootstrap_servers=broker.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        assert group in [row.group_id for row in admin.list_groups(["Stable"])]
        told = admin.describe_group(group)
        assert (told.state, told.strategy) == ("Stable", "range")
        assert set(told.members[0].assignment) == {(topic, 0), (topic, 1)}
        with pytest.raises(KafkaError) as busy:
            admin.delete_groups([group])
        assert busy.value.code is E.NON_EMPTY_GROUP
        with pytest.raises(GroupNotEmptyError, match="stop them first"):
            admin.reset_group_offsets(group, ResetTo.earliest(), [topic])
        with pytest.raises(GroupNotEmptyError):
            admin.set_group_offsets(group, {TopicPartition(topic, 0): 0})
    assert admin.describe_group(group).state == "Empty"
    admin.delete_groups([group])
    with pytest.raises(KafkaError) as gone:
        admin.describe_group(group)
    assert gone.value.code is E.GROUP_ID_NOT_FOUND


@pytest.fixture
def placed(admin, broker, topic):
    """A group at offset 5 of ten records, one a second from 1,000 s on."""
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"", partition=0, timestamp=1_000_000 + 1000 * number)
    place = TopicPartition(topic, 0)
    admin.delete_records({place: 2})
    admin.set_group_offsets(f"g-{topic}", {place: 5})
    return f"g-{topic}", place


@pytest.mark.parametrize(
    ("to", "after"),
    [
        (ResetTo.earliest(), 2),
        (ResetTo.latest(), 10),
        (ResetTo.current(), 5),
        (ResetTo.offset(7), 7),
        (ResetTo.offset(0), 2),
        (ResetTo.offset(70), 10),
        (ResetTo.shift_by(3), 8),
        (ResetTo.shift_by(-2), 3),
        (ResetTo.shift_by(-50), 2),
        (ResetTo.datetime(1_006_500), 7),
        (ResetTo.datetime("1970-01-01T00:16:44"), 4),
        (ResetTo.datetime(dt.datetime(2100, 1, 1, tzinfo=dt.UTC)), 10),
        (ResetTo.duration("PT1H"), 10),
        (ResetTo.duration("P100000D"), 2),
    ],
)
def test_offsets_are_reset_by_every_strategy_and_a_dry_run_changes_nothing(
    admin, placed, to, after
) -> None:
    group, place = placed
    expected = [(place, 5, after)]
    assert admin.reset_group_offsets(group, to, [place], dry_run=True) == expected
    assert admin.group_offsets(group)[place].offset == 5
    assert admin.reset_group_offsets(group, to) == expected
    assert admin.group_offsets(group)[place].offset == after


def test_a_reset_covers_whole_topics_and_says_what_it_cannot_shift(admin, placed) -> None:
    group, place = placed
    other = TopicPartition(place.topic, 1)
    changes = admin.reset_group_offsets(group, ResetTo.shift_by(1), [place.topic])
    assert changes == [(place, 5, 6), (other, None, None)]
    assert other not in admin.group_offsets(group)
    admin.reset_group_offsets(group, ResetTo.earliest(), [place.topic])
    assert {n: row.offset for n, row in admin.group_offsets(group).items()} == {place: 2, other: 0}
    admin.delete_group_offsets(group, [other])
    assert other not in admin.group_offsets(group)


def test_nothing_hangs_where_no_broker_is() -> None:
    with headwater.Admin(
        bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=300, request_timeout_ms=200
    ) as admin:
        with pytest.raises(TimedOutError, match=r"default\.api\.timeout\.ms=300.*127\.0\.0\.1:1"):
            admin.list_topics()
        with pytest.raises(TimedOutError):
            admin.describe_group("g")
    with pytest.raises(ClosedError):
        admin.list_topics()


def test_the_asyncio_face_does_the_same(broker) -> None:
    async def run():
        async with aio.Admin(bootstrap_servers=broker.bootstrap) as admin:
            name = f"t-{uuid.uuid4().hex[:8]}"
            await admin.create_topics([name])
            while name not in await admin.list_topics():
                await admin.describe_cluster()
            await admin.delete_topics([name])
            return (await admin.describe_cluster()).controller_id

    assert asyncio.run(asyncio.wait_for(run(), 20)) == 1
