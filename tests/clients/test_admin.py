"""What an admin promises, on both brokers."""

import asyncio
import datetime as dt

import pytest

import headwater
from headwater import (
    AlterConfigOp,
    ClosedError,
    ConfigChange,
    ConfigResource,
    GroupNotEmptyError,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    QuotaEntity,
    ResetTo,
    TimedOutError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    aio,
)
from headwater.errors import E
from tests.clients.broker_under_test import poll_until, until

BEGIN_MS = 1_700_000_000_000


@pytest.fixture
def admin(bootstrap):
    with headwater.Admin(bootstrap_servers=bootstrap) as made:
        yield made


@pytest.fixture
def at_ten(broker, admin, group, lane):
    """A lane of a hundred records, ten milliseconds apart, where the group is at ten."""
    broker.fill(lane, [b"%d" % n for n in range(100)], timestamp=lambda n: BEGIN_MS + 10 * n)
    admin.set_group_offsets(group, {TopicPartition(lane, 0): 10})
    return TopicPartition(lane, 0)


# -- topics


def test_topics_are_made_listed_described_grown_and_deleted(broker, admin):
    one, two = broker.name("made"), broker.name("made")
    admin.create_topics([NewTopic(one, 4, configs={"retention.ms": "1000"}), two])
    until("every broker lists them", lambda: {one, two} <= set(admin.list_topics()))
    views = admin.describe_topics([one, two])
    assert [len(view.partitions) for view in views.values()] == [4, 1]
    assert all(row.leader >= 0 for row in views[one].partitions)
    admin.create_partitions({one: 6})
    until("it has grown", lambda: len(admin.describe_topics([one])[one].partitions) == 6)
    admin.delete_topics([one, two])
    until("they are gone", lambda: not {one, two} & set(admin.list_topics()))


def test_a_wish_that_cannot_be_met_is_refused_with_its_reason(broker, admin, topic):
    for wish, code in (
        (NewTopic(topic), E.TOPIC_ALREADY_EXISTS),
        (NewTopic("no topic"), E.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x", replication_factor=9), E.INVALID_REPLICATION_FACTOR),
        (NewTopic("x", configs={"retention.ms": "soon"}), E.INVALID_CONFIG),
    ):
        with pytest.raises(KafkaError) as caught:
            admin.create_topics([wish])
        assert caught.value.code is code
        assert wish.name in str(caught.value)
    with pytest.raises(KafkaError) as caught:
        admin.create_partitions({topic: 2})
    assert caught.value.code is E.INVALID_PARTITIONS
    with pytest.raises(UnknownTopicOrPartitionError, match="nothing"):
        admin.describe_topics(["nothing"])
    with pytest.raises(UnknownTopicOrPartitionError, match="nothing"):
        admin.delete_topics(["nothing"])


def test_replicas_can_be_chosen_and_bad_topics_are_named_together(broker, admin):
    name = broker.name("placed")
    (node,) = admin.describe_cluster().brokers
    admin.create_topics([NewTopic(name, replicas={0: [node.id], 1: [node.id]})])
    until("the broker knows it", lambda: name in admin.list_topics())
    assert len(admin.describe_topics([name])[name].partitions) == 2
    with pytest.raises(KafkaError, match=rf"a b.*{name}-x|{name}-x.*a b"):
        admin.create_topics(["a b", NewTopic(f"{name}-x", configs={"nonsense": "1"})])
    with pytest.raises(KafkaError) as none:
        admin.create_topics([NewTopic(f"{name}-none", partitions=0)])
    assert none.value.code is E.INVALID_PARTITIONS


def test_validation_alone_makes_nothing(broker, admin):
    name = broker.name("checked")
    admin.create_topics([NewTopic(name, 3)], validate_only=True)
    assert name not in admin.list_topics()


def test_records_below_an_offset_are_deleted(broker, admin, topic):
    broker.fill(topic, [b"%d" % n for n in range(50)], partition=1)
    broker.fill(topic, [b"%d" % n for n in range(50)], partition=2)
    one, two = TopicPartition(topic, 1), TopicPartition(topic, 2)
    assert admin.delete_records({one: 20, two: -1}) == {one: 20, two: 50}
    assert admin.beginning_offsets([one, two]) == {one: 20, two: 50}
    assert admin.end_offsets([one, two]) == {one: 50, two: 50}
    assert broker.values(topic) == [b"%d" % n for n in range(20, 50)]
    with pytest.raises(KafkaError) as caught:
        admin.delete_records({one: 51})
    assert caught.value.code is E.OFFSET_OUT_OF_RANGE


# -- configs


def test_configs_are_changed_one_by_one_and_replaced_as_a_whole(admin, topic):
    resource = ConfigResource.topic(topic)

    def chosen():
        entries = admin.describe_configs([resource])[resource]
        return {name: row.value for name, row in entries.items() if row.source == 1}

    admin.alter_configs({resource: {"retention.ms": "1000", "segment.bytes": "2000000"}})
    until("set", lambda: chosen() == {"retention.ms": "1000", "segment.bytes": "2000000"})
    admin.alter_configs({resource: {"retention.ms": None}})
    until("unset", lambda: chosen() == {"segment.bytes": "2000000"})
    admin.alter_configs(
        {resource: [ConfigChange("cleanup.policy", "compact", AlterConfigOp.APPEND)]},
    )
    until("appended", lambda: chosen().get("cleanup.policy") == "delete,compact")
    admin.replace_configs({resource: {"max.message.bytes": "5000"}})
    until("replaced", lambda: chosen() == {"max.message.bytes": "5000"})
    admin.alter_configs({resource: {"max.message.bytes": "6000"}}, validate_only=True)
    assert chosen() == {"max.message.bytes": "5000"}
    with pytest.raises(KafkaError) as caught:
        admin.alter_configs({resource: {"retention.ms": "soon"}})
    assert caught.value.code is E.INVALID_CONFIG
    assert topic in str(caught.value)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_configs([ConfigResource.topic("no-such-topic")])
    with pytest.raises(TypeError, match=r"write ConfigResource\.topic\('orders'\)"):
        admin.describe_configs(["orders"])


def test_configs_of_brokers_are_described_with_words(admin):
    node = admin.describe_cluster().brokers[0].id
    resource = ConfigResource.broker(node)
    entries = admin.describe_configs([resource], documentation=True)[resource]
    row = entries["group.initial.rebalance.delay.ms"]
    assert (row.value, row.is_default) == ("0", False)
    assert row.documentation


# -- groups


def test_a_group_is_listed_described_and_deleted(broker, bootstrap, admin, group, topic):
    with headwater.Consumer(
        bootstrap_servers=bootstrap, group_id=group, client_id="me", group_instance_id="one"
    ) as member:
        member.subscribe([topic])
        until("joined", member.assignment, lambda: member.poll(0.02))
        row = next(row for row in admin.list_groups() if row.group_id == group)
        assert (row.state, row.protocol_type) == ("Stable", "consumer")
        assert group not in [row.group_id for row in admin.list_groups(["Empty"])]
        told = admin.describe_group(group)
        assert (told.state, told.strategy) == ("Stable", "range")
        (one,) = told.members
        assert (one.client_id, one.instance_id) == ("me", "one")
        assert set(one.assignment) == member.assignment()
        with pytest.raises(KafkaError) as caught:
            admin.delete_groups([group])
        assert caught.value.code is E.NON_EMPTY_GROUP
        with pytest.raises(GroupNotEmptyError, match="stop them first"):
            admin.reset_group_offsets(group, ResetTo.earliest(), [topic])
        with pytest.raises(GroupNotEmptyError):
            admin.set_group_offsets(group, {TopicPartition(topic, 0): 0})


def test_offsets_of_a_group_are_set_read_and_deleted(admin, group, topic):
    one, two = TopicPartition(topic, 1), TopicPartition(topic, 2)
    admin.set_group_offsets(group, {one: 7, two: OffsetAndMetadata(9, "note")})
    found = admin.group_offsets(group)
    assert {place: row[:2] for place, row in found.items()} == {one: (7, ""), two: (9, "note")}
    admin.delete_group_offsets(group, [one])
    assert set(admin.group_offsets(group)) == {two}
    admin.delete_groups([group])
    assert admin.group_offsets(group) == {}
    with pytest.raises(KafkaError) as gone:
        admin.describe_group(group)
    assert gone.value.code is E.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("to", "after"),
    [
        (ResetTo.earliest(), 0),
        (ResetTo.latest(), 100),
        (ResetTo.current(), 10),
        (ResetTo.offset(42), 42),
        (ResetTo.offset(420), 100),
        (ResetTo.shift_by(5), 15),
        (ResetTo.shift_by(-50), 0),
        (ResetTo.datetime(BEGIN_MS + 495), 50),
        (ResetTo.datetime(dt.datetime.fromtimestamp(BEGIN_MS / 1000, dt.UTC).isoformat()), 0),
        (ResetTo.duration("PT0.001S"), 100),
        (ResetTo.duration(dt.timedelta(days=100_00)), 0),
    ],
    ids=lambda value: f"{value.target.value} {value.number}" if isinstance(value, ResetTo) else "",
)
def test_a_group_is_reset_and_a_dry_run_only_tells(admin, group, at_ten, to, after):
    change = (at_ten, 10, after)
    assert admin.reset_group_offsets(group, to, dry_run=True) == [change]
    assert admin.group_offsets(group)[at_ten].offset == 10
    assert admin.reset_group_offsets(group, to, [at_ten.topic]) == [change]
    assert admin.group_offsets(group)[at_ten].offset == after


def test_a_reset_covers_whole_topics_from_their_start_and_says_what_it_cannot_shift(
    broker, admin, group, topic
):
    one, *others = (TopicPartition(topic, number) for number in range(3))
    broker.fill(topic, [b"%d" % n for n in range(10)], partition=0)
    admin.delete_records({one: 2})
    admin.set_group_offsets(group, {one: 5})
    changes = admin.reset_group_offsets(group, ResetTo.shift_by(1), [topic])
    assert changes == [(one, 5, 6), *((other, None, None) for other in others)]
    assert set(admin.group_offsets(group)) == {one}
    for below in (ResetTo.earliest(), ResetTo.offset(0), ResetTo.shift_by(-50)):
        admin.reset_group_offsets(group, below, [one])
        assert admin.group_offsets(group)[one].offset == 2
    admin.reset_group_offsets(group, ResetTo.earliest(), [topic])
    assert set(admin.group_offsets(group)) == {one, *others}


def test_a_reset_is_where_members_begin(bootstrap, admin, group, at_ten):
    admin.reset_group_offsets(group, ResetTo.offset(97), [at_ten])
    with headwater.Consumer(bootstrap_servers=bootstrap, group_id=group) as member:
        member.subscribe([at_ten.topic])
        assert [record.offset for record in poll_until(3, member)] == [97, 98, 99]


# -- the cluster


def test_the_cluster_and_its_disks_are_described(broker, admin, lane):
    broker.fill(lane, [b"x" * 1000])
    told = admin.describe_cluster()
    (node,) = told.brokers
    assert told.controller_id == node.id
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert told.cluster_id
    folders = admin.describe_log_dirs()
    sizes = {place: size for folder in folders for place, size in folder.sizes.items()}
    assert 1000 < sizes[TopicPartition(lane, 0)] < 2000
    assert {folder.error for folder in folders} == {E.NONE}
    resource = ConfigResource.broker(node.id)
    configured = admin.describe_configs([resource])[resource]["log.dirs"].value
    assert configured in [folder.path for folder in folders]
    with pytest.raises(KafkaError, match="no broker 9"):
        admin.describe_log_dirs([9])


def test_offsets_are_listed_by_time(admin, at_ten):
    assert admin.list_offsets({at_ten: BEGIN_MS + 1})[at_ten][:2] == (1, BEGIN_MS + 10)
    assert admin.list_offsets({at_ten: BEGIN_MS + 10_000}) == {at_ten: None}


def test_the_asyncio_face_does_the_same(bootstrap, broker):
    name = broker.name("made")

    async def work():
        async with aio.Admin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(name, 2)])
            topics, _ = await asyncio.gather(admin.list_topics(), admin.list_groups())
            while name not in topics:  # Apache Kafka spreads the news a little later
                topics = await admin.list_topics()
            return await admin.describe_topics([name])

    views = asyncio.run(work())
    assert len(views[name].partitions) == 2


def test_nothing_hangs_where_no_broker_is():
    with headwater.Admin(
        bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=300, request_timeout_ms=200
    ) as admin:
        with pytest.raises(TimedOutError, match=r"default\.api\.timeout\.ms=300.*127\.0\.0\.1:1"):
            admin.list_topics()
        with pytest.raises(TimedOutError):
            admin.describe_group("g")
    with pytest.raises(ClosedError):
        admin.list_topics()


# -- replicas


def test_leaders_are_elected_and_moves_are_begun_and_listed(admin, topic):
    here, nowhere = TopicPartition(topic, 0), TopicPartition(topic, 99)
    assert admin.elect_leaders([here, nowhere]) == {
        here: E.ELECTION_NOT_NEEDED,
        nowhere: E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    replicas = admin.describe_topics([topic])[topic].partitions[0].replicas
    admin.reassign_partitions({here: replicas})
    until("nothing is moved", lambda: admin.list_reassignments() == {})
    with pytest.raises(KafkaError) as refused:
        admin.reassign_partitions({here: [*replicas, 4711]})
    assert refused.value.code is E.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(KafkaError) as unknown:
        admin.reassign_partitions({here: replicas, nowhere: None})
    assert unknown.value.code is E.UNKNOWN_TOPIC_OR_PARTITION


def test_quotas_of_both_faces(broker, admin):
    alice, anyone = QuotaEntity("alice", "app"), QuotaEntity(user="")
    admin.alter_client_quotas(
        {alice: {"producer_byte_rate": 5}, anyone: {"request_percentage": 250}}
    )
    try:
        stored = {alice: {"producer_byte_rate": 5.0}, anyone: {"request_percentage": 250.0}}
        until("both are there", lambda: admin.describe_client_quotas() == stored)
        assert list(admin.describe_client_quotas(QuotaEntity("alice"))) == [alice]
        assert admin.describe_client_quotas(QuotaEntity("alice"), strict=True) == {}
        admin.alter_client_quotas({alice: {"producer_byte_rate": None}}, validate_only=True)
        assert list(admin.describe_client_quotas(alice)) == [alice]
        with pytest.raises(KafkaError, match=r"client-id 'app'.*must be greater than 0"):
            admin.alter_client_quotas({alice: {"producer_byte_rate": 0}})
        with pytest.raises(TypeError, match="write QuotaEntity"):
            admin.alter_client_quotas({"alice": {"producer_byte_rate": 1}})
    finally:
        admin.alter_client_quotas(
            {alice: {"producer_byte_rate": None}, anyone: {"request_percentage": None}}
        )
    until("both are gone", lambda: admin.describe_client_quotas() == {})
