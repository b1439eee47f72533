"""A controller on an embedded store with one broker, from the command to the answer."""

import json

import pytest

from headwater.broker.producer_ids import BLOCK_SIZE, REFILL_BELOW, ProducerIdBlocks
from headwater.controller.commands import (
    AlterConfigs,
    AlteredResource,
    ConfigEdit,
    ConfigOperation,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    ResourceKind,
    TopicCreation,
)
from headwater.controller.control_requests import FULL
from headwater.controller.state import (
    ClusterState,
    LiveBroker,
    PartitionRegistration,
    TopicState,
)
from headwater.controller.store.metadata_store import StoreError, StoreFailure
from headwater.controller.store.znodes import BrokerNode
from headwater.controller.topic_rules import ControllerSettings, plan_partitions
from headwater.errors import E, KafkaError
from headwater.wire.messages.control import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tests.unit.controller.fake_loop import OneBroker


@pytest.fixture
def broker():
    return OneBroker()


def create(broker: OneBroker, *topics: TopicCreation, **how: object) -> list[tuple[str | None, E]]:
    outcomes = broker.submit(CreateTopics(topics, **how))
    return [(outcome.name, outcome.error) for outcome in outcomes]


def state_of(broker: OneBroker, topic: str, partition: int) -> dict[str, object]:
    return json.loads(broker.data(f"/brokers/topics/{topic}/partitions/{partition}/state"))


# Coming up


def test_the_store_gets_kafkas_nodes(broker):
    assert json.loads(broker.data("/controller"))["brokerid"] == 0
    assert broker.data("/controller_epoch") == b"1"
    assert json.loads(broker.data("/cluster/id")) == {"version": "1", "id": "a-cluster"}
    registered = json.loads(broker.data("/brokers/ids/0"))
    assert registered["endpoints"] == ["PLAINTEXT://localhost:9092"]
    assert (registered["host"], registered["port"], registered["version"]) == ("localhost", 9092, 5)


def test_the_broker_learns_of_itself_before_any_topic(broker):
    (first, *_) = broker.messages(UpdateMetadataRequest)
    assert [one.id for one in first.live_brokers] == [0]
    assert first.broker_epoch == broker.epoch
    assert broker.controller.controller_id == 0


def test_the_cluster_id_is_kept_and_the_controller_epoch_grows_over_restarts(broker):
    again = OneBroker(broker.files)
    assert again.cluster_id == "a-cluster"
    assert again.data("/controller_epoch") == b"2"
    assert again.epoch > broker.epoch


# CreateTopics


def test_a_topic_is_stored_and_announced_before_the_answer(broker):
    broker.held = []
    answers: list[object] = []
    broker.controller.submit(CreateTopics([TopicCreation("t", 2, 1)]), answers.append)
    broker.loop.run()
    assert answers == [], "the broker has not applied it yet"
    assert state_of(broker, "t", 1)["leader"] == 0
    while broker.held:
        broker.held.pop(0)()
        broker.loop.run()
    assert len(answers) == 1
    told = broker.messages(LeaderAndIsrRequest)[-1]
    (topic,) = told.topic_states
    assert topic.topic_name == "t"
    assert [(one.partition_index, one.leader, one.is_new) for one in topic.partition_states] == [
        (0, 0, True),
        (1, 0, True),
    ]
    assert broker.messages(UpdateMetadataRequest)[-1].topic_states[0].topic_id == topic.topic_id


def test_the_nodes_of_a_topic_are_kafkas(broker):
    create(broker, TopicCreation("t", 2, 1, configs={"retention.ms": "5"}))
    topic = json.loads(broker.data("/brokers/topics/t"))
    assert topic["partitions"] == {"0": [0], "1": [0]}
    assert topic["version"] == 3
    assert len(topic["topic_id"]) == 22
    assert state_of(broker, "t", 0) == {
        "controller_epoch": 1,
        "leader": 0,
        "version": 1,
        "leader_epoch": 0,
        "isr": [0],
    }
    assert json.loads(broker.data("/config/topics/t")) == {
        "version": 1,
        "config": {"retention.ms": "5"},
    }


TOO_LONG = {"leader.replication.throttled.replicas": ",".join(["100:1000"] * 100_000)}
"""ZooKeeper would end the connection that this comes through."""


def test_counts_of_minus_one_are_the_brokers_defaults():
    broker = OneBroker(settings=ControllerSettings(num_partitions=3))
    (outcome,) = broker.submit(CreateTopics([TopicCreation("t")]))
    assert (outcome.partitions, outcome.replication_factor) == (3, 1)


def test_each_topic_of_a_request_succeeds_or_fails_by_itself(broker):
    create(broker, TopicCreation("old"), TopicCreation("a.b"))
    assert create(
        broker,
        TopicCreation("fine"),
        TopicCreation("twice"),
        TopicCreation("old"),
        TopicCreation("a_b"),
        TopicCreation("sl/ash"),
        TopicCreation("twice"),
        TopicCreation("zero", 0),
        TopicCreation("none", 1, 0),
        TopicCreation("many", 1, 2),
        TopicCreation("odd", configs={"retention.ms": "soon"}),
        TopicCreation("odder", configs={"no.such.key": "1"}),
        TopicCreation("null", configs={"retention.ms": None}),
        TopicCreation("long", configs=TOO_LONG),
        TopicCreation("__consumer_offsets"),
    ) == [
        ("fine", E.NONE),
        ("twice", E.INVALID_REQUEST),
        ("old", E.TOPIC_ALREADY_EXISTS),
        ("a_b", E.INVALID_TOPIC_EXCEPTION),
        ("sl/ash", E.INVALID_TOPIC_EXCEPTION),
        ("zero", E.INVALID_PARTITIONS),
        ("none", E.INVALID_REPLICATION_FACTOR),
        ("many", E.INVALID_REPLICATION_FACTOR),
        ("odd", E.INVALID_CONFIG),
        ("odder", E.INVALID_CONFIG),
        ("null", E.INVALID_CONFIG),
        ("long", E.INVALID_CONFIG),
        ("__consumer_offsets", E.INVALID_TOPIC_EXCEPTION),
    ]


@pytest.mark.parametrize(
    ("assignments", "counts", "error"),
    [
        ([(0, [0]), (1, [0])], (-1, -1), E.NONE),
        ([(1, [0]), (0, [0])], (-1, -1), E.NONE),
        ([(0, [0])], (1, -1), E.INVALID_REQUEST),
        ([(0, [0])], (-1, 1), E.INVALID_REQUEST),
        ([(1, [0])], (-1, -1), E.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [0]), (0, [0])], (-1, -1), E.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [])], (-1, -1), E.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [0, 0])], (-1, -1), E.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [7])], (-1, -1), E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_explicit_assignments_are_checked(broker, assignments, counts, error):
    assert create(broker, TopicCreation("t", *counts, assignments)) == [("t", error)]


def test_validation_alone_changes_nothing(broker):
    (outcome,) = broker.submit(CreateTopics([TopicCreation("t", 4, 1)], validate_only=True))
    assert (outcome.error, outcome.partitions) == (E.NONE, 4)
    assert isinstance(broker.call(lambda r: broker.store.get("/brokers/topics/t", r)), StoreError)
    assert create(broker, TopicCreation("t")) == [("t", E.NONE)]


def test_internal_topics_take_as_many_replicas_as_there_are_brokers(broker):
    (outcome,) = broker.submit(
        CreateTopics([TopicCreation("__consumer_offsets", 50, 3, internal=True, clamped=True)])
    )
    assert (outcome.error, outcome.partitions, outcome.replication_factor) == (E.NONE, 50, 1)


def test_an_internal_topic_whose_replicas_were_asked_for_waits_for_the_brokers(broker):
    (outcome,) = broker.submit(
        CreateTopics([TopicCreation("__consumer_offsets", 50, 3, internal=True)])
    )
    assert outcome.error is E.INVALID_REPLICATION_FACTOR
    assert "replication factor 3" in outcome.message
    assert "live brokers, 1" in outcome.message


def test_too_many_partitions_in_one_request_are_refused(broker):
    assert create(broker, TopicCreation("t", 6000), TopicCreation("u", 6000)) == [
        ("t", E.NONE),
        ("u", E.POLICY_VIOLATION),
    ]


def test_a_large_topic_is_made_in_steps_that_let_the_loop_turn(broker):
    turns = 0
    answers: list[object] = []
    broker.controller.submit(CreateTopics([TopicCreation("t", 1000)]), answers.append)
    while broker.loop.step():
        turns += 1
    assert len(answers) == 1
    assert turns > 10
    sizes = [
        len(topic.partition_states)
        for message in broker.messages(LeaderAndIsrRequest)
        for topic in message.topic_states
    ]
    assert sum(sizes) == 1000
    assert max(sizes) <= 10


def test_a_broker_that_does_not_apply_in_time_means_a_timeout_and_the_topic_exists(broker):
    broker.held = []
    answers: list[list[object]] = []
    command = CreateTopics([TopicCreation("t"), TopicCreation("sl/ash")], timeout_ms=100)
    broker.controller.submit(command, answers.append)
    broker.loop.run()
    broker.loop.sleep(99)
    assert answers == []
    broker.loop.sleep(1)
    (outcomes,) = answers
    assert [one.error for one in outcomes] == [E.REQUEST_TIMED_OUT, E.INVALID_TOPIC_EXCEPTION]
    while broker.held:
        broker.held.pop(0)()
        broker.loop.run()
    assert len(answers) == 1, "answered once only"
    assert create(broker, TopicCreation("t")) == [("t", E.TOPIC_ALREADY_EXISTS)]


def test_a_topics_overrides_can_be_learned_before_its_partitions_are_held(broker):
    known: list[dict[str, str]] = []
    apply = broker._apply

    def watching(message: object, reply: object) -> None:
        if isinstance(message, LeaderAndIsrRequest):
            known.append(dict(broker.topic_configs["t"]))
        apply(message, reply)

    broker._apply = watching
    create(broker, TopicCreation("t", configs={"retention.ms": "5"}))
    assert known == [{"retention.ms": "5"}]


def test_a_broker_that_comes_up_hears_when_it_was_told_everything(broker):
    create(broker, TopicCreation("t", 120))
    again = OneBroker(broker.files)
    *before, last = again.received
    assert (last.type, last.topic_states) == (FULL, [])
    named = [
        state.partition_index
        for one in before
        if isinstance(one, LeaderAndIsrRequest)
        for topic in one.topic_states
        for state in topic.partition_states
    ]
    assert sorted(set(named)) == list(range(120))


# Restarts


def test_a_restart_raises_every_leader_epoch_and_tells_the_broker_all(broker):
    create(broker, TopicCreation("t", 3, 1), TopicCreation("u", 1, 1))
    again = OneBroker(broker.files)
    assert state_of(again, "t", 2)["leader_epoch"] == 1
    told = {
        (topic.topic_name, one.partition_index, one.leader_epoch, one.partition_epoch)
        for message in again.messages(LeaderAndIsrRequest)
        for topic in message.topic_states
        for one in topic.partition_states
    }
    assert told == {("t", 0, 1, 1), ("t", 1, 1, 1), ("t", 2, 1, 1), ("u", 0, 1, 1)}


def test_a_crash_in_the_middle_of_a_creation_is_completed_by_the_next_life(broker):
    broker.controller.submit(CreateTopics([TopicCreation("t", 500)]), lambda _: None)
    journal = broker.files.content["/store/journal"]
    while b"/t/partitions/0/state" not in journal:
        broker.loop.step()
    assert b"/t/partitions/499/state" not in journal
    again = OneBroker(broker.files)
    made = json.loads(again.data("/brokers/topics/t"))["partitions"]
    assert len(made) == 500
    assert state_of(again, "t", 499)["leader"] == 0
    assert state_of(again, "t", 499)["leader_epoch"] == 0


def test_removing_the_controllers_node_causes_an_election(broker):
    broker.call(lambda reply: broker.store.delete("/controller", -1, reply))
    assert broker.data("/controller_epoch") == b"2"
    assert broker.controller.active
    assert create(broker, TopicCreation("t")) == [("t", E.NONE)]


def test_a_controller_that_was_overtaken_writes_nothing_more(broker):
    broker.call(lambda reply: broker.store.set("/controller_epoch", b"7", -1, reply))
    assert create(broker, TopicCreation("t")) == [("t", E.NOT_CONTROLLER)]
    assert isinstance(broker.call(lambda r: broker.store.get("/brokers/topics/t", r)), StoreError)
    broker.loop.sleep(1000)
    assert broker.data("/controller_epoch") == b"8"
    assert create(broker, TopicCreation("t")) == [("t", E.NONE)]


def test_a_full_disk_refuses_changes_until_there_is_room_again(broker):
    create(broker, TopicCreation("t"))
    broker.files.full = True
    assert create(broker, TopicCreation("u")) == [("u", E.NOT_CONTROLLER)]
    for _ in range(3):
        broker.loop.sleep(1000)
        assert create(broker, TopicCreation("u")) == [("u", E.NOT_CONTROLLER)]
    broker.files.full = False
    broker.loop.sleep(1000)
    assert create(broker, TopicCreation("u")) == [("u", E.NONE)]
    assert state_of(broker, "t", 0)["leader_epoch"] == 0, "its leader never went away"
    set_it = AlteredResource(ResourceKind.TOPIC, "t", {"retention.ms": "5"})
    (altered,) = broker.submit(AlterConfigs([set_it]))
    assert altered.error is E.NONE
    assert broker.topic_configs["t"] == {"retention.ms": "5"}


def test_a_failed_sync_ends_the_part_of_this_broker_as_controller(broker):
    broker.files.broken_sync = True
    assert create(broker, TopicCreation("t")) == [("t", E.NOT_CONTROLLER)]
    assert not broker.controller.active
    broker.files.broken_sync = False
    again = OneBroker(broker.files)
    assert create(again, TopicCreation("u")) == [("u", E.NONE)]


def test_a_reply_may_ask_for_more(broker):
    answers: list[object] = []

    def more(outcomes: object) -> None:
        answers.append(outcomes)
        broker.controller.submit(CreatePartitions([MorePartitions("t", 3)]), answers.append)

    broker.controller.submit(CreateTopics([TopicCreation("t")]), more)
    broker.loop.run()
    assert [[one.error for one in outcomes] for outcomes in answers] == [[E.NONE], [E.NONE]]


# DeleteTopics


def test_a_deleted_topic_leaves_no_node_and_its_name_is_free(broker):
    create(broker, TopicCreation("t", 3, 1, configs={"retention.ms": "5"}))
    (outcome,) = broker.submit(DeleteTopics(["t"]))
    assert outcome.error is E.NONE
    for path in ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"):
        assert isinstance(broker.call(lambda r, path=path: broker.store.get(path, r)), StoreError)
    (stop,) = broker.messages(StopReplicaRequest)
    (topic,) = stop.topic_states
    assert [
        (one.partition_index, one.leader_epoch, one.delete_partition)
        for one in topic.partition_states
    ] == [(0, -2, True), (1, -2, True), (2, -2, True)]
    gone = broker.messages(UpdateMetadataRequest)[-1].topic_states[0]
    assert {one.leader for one in gone.partition_states} == {-2}
    (again,) = broker.submit(CreateTopics([TopicCreation("t")]))
    assert again.error is E.NONE
    assert again.topic_id != outcome.topic_id
    assert broker.topic_configs["t"] == {}


def test_what_cannot_be_deleted_is_said_so(broker):
    broker.submit(
        CreateTopics([TopicCreation("__consumer_offsets", 1, 1, internal=True, clamped=True)])
    )
    outcomes = broker.submit(DeleteTopics(["nope", "__consumer_offsets"]))
    assert [one.error for one in outcomes] == [E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_REQUEST]


def test_a_topic_that_took_over_a_name_is_not_deleted_by_the_old_id(broker):
    (old,) = broker.submit(CreateTopics([TopicCreation("t")]))
    broker.submit(DeleteTopics(["t"]))
    gone = DeleteTopics(["t"], ids={"t": old.topic_id})
    assert [(one.error, one.topic_id) for one in broker.submit(gone)] == [
        (E.UNKNOWN_TOPIC_ID, old.topic_id)
    ]
    (new,) = broker.submit(CreateTopics([TopicCreation("t")]))
    assert [one.error for one in broker.submit(gone)] == [E.UNKNOWN_TOPIC_ID]
    assert [one.error for one in broker.submit(DeleteTopics(["t"], ids={"t": new.topic_id}))] == [
        E.NONE
    ]


def test_deletion_can_be_switched_off():
    broker = OneBroker(settings=ControllerSettings(delete_topic_enable=False))
    create(broker, TopicCreation("t"))
    (outcome,) = broker.submit(DeleteTopics(["t"]))
    assert outcome.error is E.TOPIC_DELETION_DISABLED


def test_a_deletion_cut_short_by_a_crash_is_taken_up_again(broker):
    create(broker, TopicCreation("t"))
    broker.held = []
    broker.controller.submit(DeleteTopics(["t"]), lambda _: None)
    broker.loop.run()
    again = OneBroker(broker.files)
    assert isinstance(again.call(lambda r: again.store.get("/brokers/topics/t", r)), StoreError)
    assert len(again.messages(StopReplicaRequest)) == 1
    *stopped, end = [one for one in again.received if not isinstance(one, UpdateMetadataRequest)]
    assert [type(one) for one in stopped] == [StopReplicaRequest], "nobody leads a topic that goes"
    assert end.type == FULL, "its log is not a stray while it is being deleted"


def test_a_name_is_taken_while_its_deletion_goes_on(broker):
    create(broker, TopicCreation("t"))
    broker.held = []
    broker.controller.submit(DeleteTopics(["t"]), lambda _: None)
    broker.loop.run()
    assert create(broker, TopicCreation("t")) == [("t", E.TOPIC_ALREADY_EXISTS)]


# CreatePartitions


def test_partitions_are_added_and_never_taken_away(broker):
    create(broker, TopicCreation("t", 2, 1))
    (grown,) = broker.submit(CreatePartitions([MorePartitions("t", 5)]))
    assert grown.error is E.NONE
    assert len(json.loads(broker.data("/brokers/topics/t"))["partitions"]) == 5
    assert state_of(broker, "t", 4)["leader"] == 0
    (fewer,) = broker.submit(CreatePartitions([MorePartitions("t", 3)]))
    assert fewer.error is E.INVALID_PARTITIONS
    assert "has 5 partitions and cannot shrink to 3" in fewer.message
    (same,) = broker.submit(CreatePartitions([MorePartitions("t", 5)]))
    assert same.error is E.INVALID_PARTITIONS


def test_a_topic_grows_no_further_than_its_node():
    listed = dict.fromkeys(range(20_000), PartitionRegistration((1, 2)))
    state = ClusterState(topics={"t": TopicState("t", bytes(16), listed)}, brokers=LIVE)
    assert plan_partitions(MorePartitions("t", 20_001), state).count == 1
    with pytest.raises(KafkaError, match="more than the metadata store can list") as refused:
        plan_partitions(MorePartitions("t", 28_000), state)
    assert refused.value.code is E.INVALID_PARTITIONS


LIVE = {number: LiveBroker(BrokerNode(number, ()), number) for number in (1, 2)}


def test_added_partitions_are_checked(broker):
    create(broker, TopicCreation("t", 1, 1))
    outcomes = broker.submit(
        CreatePartitions(
            [
                MorePartitions("nope", 2),
                MorePartitions("t", 3, [[0]]),
                MorePartitions("u", 1),
                MorePartitions("u", 1),
            ]
        )
    )
    assert [one.error for one in outcomes] == [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_REPLICA_ASSIGNMENT,
        E.INVALID_REQUEST,
    ]


# Configs


def set_config(name: str, value: str, operation: int = ConfigOperation.SET) -> ConfigEdit:
    return ConfigEdit(name, operation, value)


def test_a_config_change_is_stored_notified_and_applied_before_the_answer(broker):
    create(broker, TopicCreation("t", configs={"retention.ms": "5"}))
    edits = [set_config("segment.ms", "7"), ConfigEdit("retention.ms", ConfigOperation.DELETE)]
    (outcome,) = broker.submit(
        AlterConfigs([AlteredResource(ResourceKind.TOPIC, "t", edits=edits)])
    )
    assert outcome.error is E.NONE
    assert broker.topic_configs["t"] == {"segment.ms": "7"}
    notice = json.loads(broker.data("/config/changes/config_change_0000000000"))
    assert notice == {"version": 2, "entity_path": "topics/t"}


def test_lists_are_appended_to_and_subtracted_from_starting_at_the_default(broker):
    create(broker, TopicCreation("t"))
    for operation, expected in (
        (ConfigOperation.APPEND, "delete,compact"),
        (ConfigOperation.SUBTRACT, "delete"),
    ):
        edit = set_config("cleanup.policy", "compact", operation)
        broker.submit(AlterConfigs([AlteredResource(ResourceKind.TOPIC, "t", edits=[edit])]))
        assert broker.topic_configs["t"] == {"cleanup.policy": expected}


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (AlteredResource(2, "nope", {}), E.UNKNOWN_TOPIC_OR_PARTITION),
        (AlteredResource(2, "t", {"retention.ms": "x"}), E.INVALID_CONFIG),
        (AlteredResource(2, "t", {"retention.ms": None}), E.INVALID_REQUEST),
        (AlteredResource(2, "t", TOO_LONG), E.INVALID_CONFIG),
        (AlteredResource(2, "t", edits=[set_config("retention.ms", "1", 2)]), E.INVALID_CONFIG),
        (AlteredResource(2, "t", edits=[set_config("retention.ms", "1", 9)]), E.INVALID_REQUEST),
        (
            AlteredResource(2, "t", edits=[set_config("retention.ms", "1")] * 2),
            E.INVALID_REQUEST,
        ),
        (AlteredResource(4, "x", {}), E.INVALID_REQUEST),
        (AlteredResource(4, "9", {}), E.INVALID_REQUEST),
        (AlteredResource(4, "", {"node.id": "3"}), E.INVALID_REQUEST),
        (AlteredResource(8, "0", {}), E.INVALID_REQUEST),
    ],
)
def test_config_changes_are_checked(broker, resource, error):
    create(broker, TopicCreation("t"))
    (outcome,) = broker.submit(AlterConfigs([resource]))
    assert outcome.error is error


def test_a_resource_named_twice_is_refused_each_time(broker):
    create(broker, TopicCreation("t"))
    resource = AlteredResource(2, "t", {"retention.ms": "1"})
    outcomes = broker.submit(AlterConfigs([resource, resource]))
    assert [one.error for one in outcomes] == [E.INVALID_REQUEST] * 2
    assert broker.topic_configs["t"] == {}


def test_broker_configs_reach_the_broker_and_survive_a_restart(broker):
    broker.submit(
        AlterConfigs(
            [
                AlteredResource(4, "", {"log.retention.ms": "10"}),
                AlteredResource(4, "0", {"log.retention.ms": "20"}),
            ]
        )
    )
    expected = {"": {"log.retention.ms": "10"}, "0": {"log.retention.ms": "20"}}
    assert broker.broker_configs == expected
    assert json.loads(broker.data("/config/brokers/<default>"))["config"] == expected[""]
    assert OneBroker(broker.files).broker_configs == expected


def test_old_notifications_are_cleared_away(broker):
    create(broker, TopicCreation("t"))
    for number in range(130):
        resource = AlteredResource(2, "t", {"retention.ms": str(number)})
        broker.submit(AlterConfigs([resource]))
    left = broker.call(lambda reply: broker.store.children("/config/changes", reply))
    assert 100 <= len(left) <= 101
    assert broker.topic_configs["t"] == {"retention.ms": "129"}


# Producer ids


def test_producer_ids_are_given_out_while_the_store_is_away(broker, monkeypatch):
    ids, given = ProducerIdBlocks(broker.store, 1), []
    ids.claim_ahead()
    broker.loop.run()
    for _ in range(BLOCK_SIZE - REFILL_BELOW + 1):
        ids.next(given.append)
    broker.loop.run()

    def away(path, reply):
        reply(StoreError(StoreFailure.SESSION_EXPIRED, path))

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "get", away)
        while len(given) < 2 * BLOCK_SIZE:
            ids.next(given.append)
        ids.next(given.append)
    assert given[:-1] == list(range(2 * BLOCK_SIZE))
    assert isinstance(given[-1], KafkaError)
    assert broker.call(ids.next) == 2 * BLOCK_SIZE


def test_producer_ids_are_never_given_out_twice(broker):
    given = []
    for life in range(3):
        ids = ProducerIdBlocks(broker.store, life)
        given += [broker.call(ids.next) for _ in range(1001)]
        broker = OneBroker(broker.files)
    assert len(set(given)) == len(given)
    block = json.loads(broker.data("/latest_producer_id_block"))
    assert block == {"version": 1, "broker": 2, "block_start": "5000", "block_end": "5999"}


def test_a_lost_race_for_a_block_is_run_again(broker):
    one, other = ProducerIdBlocks(broker.store, 1), ProducerIdBlocks(broker.store, 2)
    given: list[int | KafkaError] = []
    one.next(given.append)
    other.next(given.append)
    broker.loop.run()
    assert sorted(given) == [0, 1000]
