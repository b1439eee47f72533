"""The handlers of topics, configs and the cluster on a whole controller, in every served version."""

from types import GeneratorType, SimpleNamespace
from typing import Any

import pytest

from headwater.broker.apis import SERVED
from headwater.broker.metadata_cache import MetadataCache
from headwater.broker.turns import finish
from headwater.config.broker import BrokerSettings
from headwater.errors import E, KafkaError
from headwater.model import CONSUMER_OFFSETS
from headwater.security.acls import OPERATIONS_ON, AclOperation, AclResourceType
from headwater.security.principals import ANONYMOUS
from headwater.security.rights import Right
from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.messages.cluster import DescribeClusterRequest
from headwater.wire.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from headwater.wire.messages.control import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    UpdateMetadataRequest,
)
from headwater.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from headwater.wire.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from headwater.wire.schema import Struct
from tests.unit.controller.fake_loop import OneBroker

NewTopic = CreateTopicsRequest.CreatableTopic


class Desk:
    """One broker, and clients who may do all that is not forbidden."""

    def __init__(self) -> None:
        self.broker = OneBroker()
        self.forbidden: set[tuple[AclOperation, AclResourceType]] = set()
        self.static = BrokerSettings.load(None, {})
        self.metadata = MetadataCache("a-cluster")
        self.seen = 0

    def context(self) -> Any:
        for message in self.broker.received[self.seen :]:
            if isinstance(message, UpdateMetadataRequest):
                self.metadata.apply(message)
        self.seen = len(self.broker.received)
        stored = self.broker.broker_configs
        return SimpleNamespace(
            node_id=0,
            settings=self.static.with_dynamic(stored.get("", {}), stored.get("0", {})),
            metadata=self.metadata,
            controller=self.broker.controller,
            configs=self.broker.configs,
            quotas=None,
            client_quotas=self.broker.quotas,
            users=self.broker.users,
            topic_overrides=self.broker.topic_configs,
            groups=SimpleNamespace(topic=SimpleNamespace(name=CONSUMER_OFFSETS)),
            authorize=self.permits,
            permits=self.permits,
            sees=self.permits,
            refusal=lambda request, right, name="": KafkaError(right.refusal),
            note_change=lambda *line, **right: None,
            authorized_operations=lambda request, kind, name: sum(
                1 << operation for operation in OPERATIONS_ON[kind]
            ),
        )

    def permits(self, request: object, right: Right, name: str = "") -> bool:
        return (right.operation, right.resource_type) not in self.forbidden

    def ask(self, body: Struct, version: int | None = None) -> Any:
        """The answer as the client of that version would read it."""
        api = next(one for one in API.values() if one.request is type(body))
        version = api.served[1] if version is None else version
        answers: list[Struct] = []
        request = SimpleNamespace(
            version=version,
            connection=SimpleNamespace(listener="PLAINTEXT", principal=ANONYMOUS),
            reply=answers.append,
            reply_in_turns=lambda made: answers.append(
                finish(made) if isinstance(made, GeneratorType) else made
            ),
        )
        sent, _ = codec.decode(api.request, version, codec.encode_bytes(body, version))
        answer = SERVED[api.key].answer(self.context(), request, sent)
        if isinstance(answer, GeneratorType):
            answer = finish(answer)
        self.broker.loop.run()
        (answer,) = answers if answer is None else [answer]
        read, _ = codec.decode(api.response, version, codec.encode_bytes(answer, version))
        return read

    def create(self, name: str, **how: Any) -> Any:
        topic = NewTopic(name=name, num_partitions=-1, replication_factor=-1, **how)
        (result,) = self.ask(CreateTopicsRequest(topics=[topic])).topics
        return result


@pytest.fixture
def desk():
    return Desk()


def versions(key: int) -> range:
    low, high = API[key].served
    return range(low, high + 1)


@pytest.mark.parametrize("version", versions(19))
def test_create_topics(desk, version):
    wanted = [
        NewTopic(name="t", num_partitions=2, replication_factor=1),
        NewTopic(name="bad/name", num_partitions=1, replication_factor=1),
    ]
    good, bad = desk.ask(CreateTopicsRequest(topics=wanted), version).topics
    assert (good.name, good.error_code) == ("t", E.NONE)
    assert (bad.name, bad.error_code) == ("bad/name", E.INVALID_TOPIC_EXCEPTION)
    if version >= 5:
        assert (good.num_partitions, good.replication_factor) == (2, 1)
        assert {"retention.ms", "cleanup.policy"} <= {one.name for one in good.configs}
    if version >= 7:
        assert good.topic_id == desk.context().metadata.topic_id("t")


def test_created_configs_come_back_with_their_source(desk):
    override = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="5")
    result = desk.create("t", configs=[override])
    (row,) = (one for one in result.configs if one.name == "retention.ms")
    assert (row.value, row.config_source) == ("5", 1)


def test_without_the_right_to_describe_the_configs_stay_hidden(desk):
    desk.forbidden = {(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC)}
    result = desk.create("t")
    assert result.error_code == E.NONE
    assert result.topic_config_error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert (result.num_partitions, result.configs) == (-1, [])


def test_without_the_right_to_create_nothing_is_created(desk):
    desk.forbidden = {
        (AclOperation.CREATE, AclResourceType.CLUSTER),
        (AclOperation.CREATE, AclResourceType.TOPIC),
    }
    assert desk.create("t").error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert desk.context().metadata.topics == {}


@pytest.mark.parametrize("version", versions(20))
def test_delete_topics_by_name(desk, version):
    desk.create("t")
    states = [
        DeleteTopicsRequest.DeleteTopicState(name="t"),
        DeleteTopicsRequest.DeleteTopicState(name="nope"),
    ]
    body = (
        DeleteTopicsRequest(topics=states, timeout_ms=1000)
        if version >= 6
        else DeleteTopicsRequest(topic_names=["t", "nope"], timeout_ms=1000)
    )
    results = {one.name: one.error_code for one in desk.ask(body, version).responses}
    assert results == {"t": E.NONE, "nope": E.UNKNOWN_TOPIC_OR_PARTITION}
    assert desk.context().metadata.topics == {}


def test_delete_topics_by_id_and_its_mistakes(desk):
    for name in ("t", "both"):
        desk.create(name)
    ids = {name: desk.context().metadata.topic_id(name) for name in ("t", "both")}
    State = DeleteTopicsRequest.DeleteTopicState  # noqa: N806
    wanted = [
        State(topic_id=ids["t"]),
        State(name="t"),
        State(name="both", topic_id=ids["both"]),
        State(),
        State(topic_id=b"\x07" * 16),
    ]
    results = desk.ask(DeleteTopicsRequest(topics=wanted, timeout_ms=1000)).responses
    assert [(one.name, one.error_code) for one in results] == [
        ("both", E.INVALID_REQUEST),
        (None, E.INVALID_REQUEST),
        (None, E.UNKNOWN_TOPIC_ID),
        ("t", E.INVALID_REQUEST),
    ]


@pytest.mark.parametrize("version", versions(37))
def test_create_partitions(desk, version):
    desk.create("t")
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=4, assignments=None)
    (result,) = desk.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1000), version).results
    assert result.error_code == E.NONE
    assert len(desk.context().metadata.topics["t"].partitions) == 4
    (result,) = desk.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1000), version).results
    assert result.error_code == E.INVALID_PARTITIONS


def describe(kind: int, name: str, keys: list[str] | None = None, **how: Any) -> Struct:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return DescribeConfigsRequest(resources=[resource], **how)


@pytest.mark.parametrize("version", versions(32))
def test_describe_configs_of_a_topic(desk, version):
    override = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="5")
    desk.create("t", configs=[override])
    how = {"include_synonyms": True}
    if version >= 3:
        how["include_documentation"] = True
    (result,) = desk.ask(describe(2, "t", ["retention.ms"], **how), version).results
    (row,) = result.configs
    assert (row.name, row.value, row.config_source, row.read_only) == (
        "retention.ms",
        "5",
        1,
        False,
    )
    assert row.synonyms[0].name == "retention.ms"
    assert len(row.synonyms) > 1
    if version >= 3:
        assert row.config_type == 5
        assert row.documentation
    (everything,) = desk.ask(describe(2, "t"), version).results
    assert len(everything.configs) > 20
    assert everything.configs[0].synonyms == []


def test_describe_configs_of_a_topic_without_a_replica_here(desk):
    override = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="5")
    desk.create("t", configs=[override])
    desk.broker.configs.forget("t")
    desk.broker.topic_configs.clear()
    (result,) = desk.ask(describe(2, "t", ["retention.ms"])).results
    assert [row.value for row in result.configs] == ["5"]


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (2, "nope", E.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "bad/name", E.INVALID_TOPIC_EXCEPTION),
        (4, "0", E.NONE),
        (4, "", E.NONE),
        (4, "9", E.INVALID_REQUEST),
        (4, "x", E.INVALID_REQUEST),
        (8, "0", E.NONE),
        (8, "", E.INVALID_REQUEST),
        (32, "", E.INVALID_REQUEST),
        (77, "x", E.INVALID_REQUEST),
    ],
)
def test_describe_configs_of_anything(desk, kind, name, error):
    (result,) = desk.ask(describe(kind, name)).results
    assert result.error_code == error
    assert (result.resource_type, result.resource_name) == (kind, name)


@pytest.mark.parametrize("version", versions(44))
def test_incremental_alter_configs_shows_at_once(desk, version):
    Config = IncrementalAlterConfigsRequest.AlterableConfig  # noqa: N806
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[Config(name="log.retention.ms", config_operation=0, value="99")],
    )
    (done,) = desk.ask(IncrementalAlterConfigsRequest(resources=[resource]), version).responses
    assert (done.error_code, done.resource_type, done.resource_name) == (E.NONE, 4, "")
    (own,) = desk.ask(describe(4, "0", ["log.retention.ms"])).results
    assert [(row.value, row.config_source) for row in own.configs] == [("99", 3)]
    (default,) = desk.ask(describe(4, "")).results
    assert [row.name for row in default.configs] == ["log.retention.ms"]


@pytest.mark.parametrize("version", versions(33))
def test_alter_configs_replaces_everything(desk, version):
    override = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="5")
    desk.create("t", configs=[override])
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[AlterConfigsRequest.AlterableConfig(name="segment.ms", value="7")],
    )
    (done,) = desk.ask(AlterConfigsRequest(resources=[resource]), version).responses
    assert done.error_code == E.NONE
    assert desk.broker.topic_configs["t"] == {"segment.ms": "7"}


def test_alter_configs_needs_the_right_and_a_known_type(desk):
    desk.create("t")
    desk.forbidden = {(AclOperation.ALTER_CONFIGS, AclResourceType.TOPIC)}
    wanted = [
        AlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in ((2, "t"), (99, "x"), (8, "0"))
    ]
    done = desk.ask(AlterConfigsRequest(resources=wanted)).responses
    assert {(one.resource_type, one.error_code) for one in done} == {
        (2, E.TOPIC_AUTHORIZATION_FAILED),
        (99, E.INVALID_REQUEST),
        (8, E.INVALID_REQUEST),
    }


@pytest.mark.parametrize("version", versions(74))
def test_list_config_resources(desk, version):
    desk.create("t")
    found = desk.ask(ListConfigResourcesRequest(), version).config_resources
    listed = [(one.resource_type, one.resource_name) for one in found]
    assert listed == ([(2, "t"), (4, "0"), (8, "0")] if version else [])


def test_list_config_resources_of_an_unknown_type(desk):
    assert desk.ask(ListConfigResourcesRequest(resource_types=[77])).error_code == (
        E.UNSUPPORTED_VERSION
    )


@pytest.mark.parametrize("version", versions(60))
def test_describe_cluster(desk, version):
    answer = desk.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert (answer.cluster_id, answer.controller_id) == ("a-cluster", 0)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port) == (0, "localhost", 9092)
    assert answer.cluster_authorized_operations & 1 << AclOperation.ALTER
    plain = desk.ask(DescribeClusterRequest(), version)
    assert plain.cluster_authorized_operations == -(1 << 31)


@pytest.mark.parametrize(
    ("kind", "error"), [(2, E.MISMATCHED_ENDPOINT_TYPE), (3, E.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_describe_cluster_knows_brokers_only(desk, kind, error):
    assert desk.ask(DescribeClusterRequest(endpoint_type=kind)).error_code == error


# -- AlterPartition


@pytest.mark.parametrize("version", versions(56))
def test_an_in_sync_set_is_stored_and_comes_back_with_its_partition_epoch(desk, version):
    new = NewTopic(name="t", num_partitions=2, replication_factor=1)
    created = desk.ask(CreateTopicsRequest(topics=[new]))
    topic_id = created.topics[0].topic_id

    def ask(broker_epoch: int, *isrs: list[int]) -> Any:
        named = {"topic_name": "t"} if version < 2 else {"topic_id": topic_id}
        partitions = []
        for index, isr in enumerate(isrs):
            one = AlterPartitionRequest.AlteredPartition(partition_index=index)
            if version < 3:
                one.new_isr = isr
            else:
                epochs = [(broker, desk.broker.epoch if broker == 0 else -1) for broker in isr]
                one.new_isr_with_epochs = [
                    AlterPartitionRequest.IsrMember(broker_id=broker, broker_epoch=epoch)
                    for broker, epoch in epochs
                ]
            partitions.append(one)
        topic = AlterPartitionRequest.AlterPartitionTopic(partitions=partitions, **named)
        body = AlterPartitionRequest(broker_id=0, broker_epoch=broker_epoch, topics=[topic])
        return desk.ask(body, version)

    answer = ask(desk.broker.epoch, [0], [0, 7])
    assert answer.error_code == E.NONE
    stored, refused = answer.topics[0].partitions
    assert (stored.error_code, stored.leader_id, stored.isr) == (E.NONE, 0, [0])
    assert (stored.leader_epoch, stored.partition_epoch) == (0, 0)
    assert refused.error_code == E.INVALID_REQUEST

    stale = ask(desk.broker.epoch - 1, [0])
    assert (stale.error_code, stale.topics) == (E.STALE_BROKER_EPOCH, [])


# -- elections, moves and stops


@pytest.mark.parametrize("version", versions(43))
def test_elect_leaders(desk, version):
    desk.create("t")
    wanted = ElectLeadersRequest.ElectedTopic(topic="t", partitions=[0, 7])
    answer = desk.ask(ElectLeadersRequest(topic_partitions=[wanted]), version)
    (topic,) = answer.replica_election_results
    assert [(one.partition_id, one.error_code) for one in topic.partition_result] == [
        (0, E.ELECTION_NOT_NEEDED),
        (7, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    everywhere = desk.ask(ElectLeadersRequest(topic_partitions=None), version)
    assert everywhere.replica_election_results == []


def test_an_election_of_an_unknown_kind_or_without_the_right_is_refused(desk):
    wanted = ElectLeadersRequest.ElectedTopic(topic="t", partitions=[0])
    unknown = ElectLeadersRequest(election_type=2, topic_partitions=[wanted])
    assert desk.ask(unknown).error_code == E.INVALID_REQUEST
    desk.forbidden = {(AclOperation.ALTER, AclResourceType.CLUSTER)}
    request = ElectLeadersRequest(topic_partitions=[wanted])
    assert desk.ask(request).error_code == E.CLUSTER_AUTHORIZATION_FAILED
    (topic,) = desk.ask(request, 0).replica_election_results
    assert topic.partition_result[0].error_code == E.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", versions(45))
def test_reassignments_that_cannot_be_done_are_refused_together(desk, version):
    desk.create("t")
    topics = [
        AlterPartitionReassignmentsRequest.ReassignableTopic(
            name="t",
            partitions=[
                AlterPartitionReassignmentsRequest.ReassignablePartition(
                    partition_index=index, replicas=replicas
                )
                for index, replicas in enumerate([[0], [9], None])
            ],
        )
    ]
    answer = desk.ask(AlterPartitionReassignmentsRequest(topics=topics), version)
    assert answer.error_code == E.NONE
    assert [one.error_code for one in answer.responses[0].partitions] == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    listed = desk.ask(ListPartitionReassignmentsRequest(topics=None))
    assert (listed.error_code, listed.topics) == (E.NONE, [])


@pytest.mark.parametrize("version", [2, 3])
def test_a_broker_with_single_replicas_hands_over_nothing(desk, version):
    desk.create("t")
    request = ControlledShutdownRequest(broker_id=0, broker_epoch=desk.broker.epoch)
    answer = desk.ask(request, version)
    assert (answer.error_code, answer.remaining_partitions) == (E.NONE, [])
    stale = ControlledShutdownRequest(broker_id=0, broker_epoch=desk.broker.epoch - 1)
    assert desk.ask(stale, version).error_code == E.STALE_BROKER_EPOCH
