"""The group APIs from request to response, in every version that is served."""

from dataclasses import dataclass, field
from types import GeneratorType, SimpleNamespace

import pytest

from headwater.broker.apis import SERVED
from headwater.broker.handlers.groups import MOST_PROTOCOLS, MOST_RECORDS
from headwater.broker.metadata_cache import BrokerInfo, MetadataCache, PartitionInfo, TopicInfo
from headwater.broker.turns import finish
from headwater.config.broker import BrokerSettings
from headwater.controller.commands import CreateTopics, TopicOutcome
from headwater.coordination.group_coordinator import offsets_topic
from headwater.coordination.groups.shard import GroupShard, ListGroups
from headwater.errors import E, KafkaError
from headwater.model import CONSUMER_OFFSETS, ZERO_UUID
from headwater.records.rules import BatchRules
from headwater.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.messages import groups as wire
from headwater.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tests.unit.coordination.runtime_harness import Harness

TOPIC_ID = b"t" * 16
MOST_BYTES = 1 << 20
HERE = PartitionInfo(1, 0, (1,), (1,), (), 0)


class Controller:
    """Remembers what it was asked to create."""

    def __init__(self):
        self.asked = []

    def submit(self, command, reply):
        self.asked.append((command, reply))


@dataclass
class Connection:
    listener: str = "PLAINTEXT"
    host: str = "10.0.0.7"


@dataclass
class Request:
    """A request whose answer makes the way over the wire."""

    api_key: int
    version: int
    client_id: str | None = "app"
    connection: Connection = field(default_factory=Connection)
    answers: list = field(default_factory=list)

    def reply(self, response):
        raw = codec.encode_bytes(response, self.version)
        answer, end = codec.decode(type(response), self.version, raw)
        assert end == len(raw)
        self.answers.append(answer)

    def reply_in_turns(self, response):
        made = finish(response) if isinstance(response, GeneratorType) else response
        if made is not None:
            self.reply(made)


class Stage:
    """The broker around the handlers: a real shard loop over a log in memory."""

    def __init__(self, elected=True):
        self.controller = Controller()
        self.settings = BrokerSettings.load(None, {})
        self.metadata = MetadataCache("cluster")
        one_partition = SimpleNamespace(
            partition_count=lambda topic: 1, topic_id=self.metadata.topic_id
        )
        self.harness = Harness(topics=one_partition)
        self.groups = self.harness.loop
        self.metadata.brokers[1] = BrokerInfo(1, {"PLAINTEXT": ("here", 9092)}, None)
        for name, topic_id in [(CONSUMER_OFFSETS, b"o" * 16), ("t", TOPIC_ID)]:
            self.metadata.topics[name] = TopicInfo(name, topic_id, {0: HERE, 1: HERE})
            self.metadata.name_of[topic_id] = name
        self.denied = set()
        self.warnings = []
        self.peer_log = SimpleNamespace(warning=lambda *line: self.warnings.append(line))
        policy = SimpleNamespace(rules=BatchRules(max_message_bytes=MOST_BYTES))
        here = SimpleNamespace(policy=policy)
        self.replicas = SimpleNamespace(
            get=lambda topic, partition: here, of_topic=lambda _: [here]
        )
        if elected:
            self.harness.elected()

    def create_topics(self, topics, reply):
        self.controller.submit(CreateTopics(topics), reply)

    def authorize(self, request, right, name):
        return (right.operation, right.resource_type, name) not in self.denied

    def permits(self, request, right, name=CLUSTER_NAME):
        assert right in SERVED[request.api_key].access.each
        return self.authorize(request, right, name)

    sees = permits

    def refusal(self, request, right, name):
        return KafkaError(right.refusal)

    def authorized_operations(self, request, resource_type, name):
        return 1 << AclOperation.READ

    def ask(self, api_key, version, body):
        """Send a request over the wire; its answer, if it is there already."""
        raw = codec.encode_bytes(body, version)
        body, _ = codec.decode(type(body), version, raw)
        request = Request(api_key, version)
        answer = SERVED[api_key].answer(self, request, body)
        if answer is not None:
            request.reply_in_turns(answer)
        self.harness.commit_all()
        return request.answers[0] if request.answers else request

    def tick(self, ms):
        self.harness.clock.advance(ms)
        self.harness.commit_all()

    def join(self, version, member="", group="g", **protocols):
        named = wire.JoinGroupRequest.JoinGroupRequestProtocol
        known = protocols or {"range": b"m"}
        body = wire.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[named(name=name, metadata=metadata) for name, metadata in known.items()],
        )
        return self.ask(11, version, body)

    def sync(self, version, member, generation, group="g"):
        share = wire.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"A")
        body = wire.SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[share],
        )
        return self.ask(14, version, body)

    def member(self, version=9):
        """One member of a Stable group."""
        answer = self.join(version)
        if version >= 4:
            answer = self.join(version, answer.member_id)
        self.tick(3_000)
        joined = answer.answers[0]
        assert self.sync(5, joined.member_id, joined.generation_id).error_code == E.NONE
        return joined.member_id


def versions(api_key):
    first, last = API[api_key].served
    return range(first, last + 1)


def commit_body(version, offset=5, member="", generation=-1, partition=0, topic_id=TOPIC_ID):
    part = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata="note"
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(
        name="t" if version < 10 else "", topic_id=topic_id, partitions=[part]
    )
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[topic],
    )


def fetch_body(version, topics=True, group="g"):
    if version < 8:
        row = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
        return OffsetFetchRequest(group_id=group, topics=[row] if topics else None)
    wanted = OffsetFetchRequest.OffsetFetchRequestTopics(
        name="t" if version < 10 else "", topic_id=TOPIC_ID, partition_indexes=[0, 1]
    )
    of_group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group, topics=[wanted] if topics else None
    )
    return OffsetFetchRequest(groups=[of_group])


def fetched(answer, version):
    """Error and offsets by partition, wherever the version puts them."""
    group = answer if version < 8 else answer.groups[0]
    return group.error_code, {
        part.partition_index: (part.committed_offset, part.error_code)
        for topic in group.topics
        for part in topic.partitions
    }


# FindCoordinator


@pytest.mark.parametrize("version", versions(10))
def test_the_coordinator_of_a_group_is_the_leader_of_its_partition(version):
    several = version >= 4
    body = wire.FindCoordinatorRequest(
        key="" if several else "g", coordinator_keys=["g", "h"] if several else []
    )
    answer = Stage().ask(10, version, body)
    found = answer.coordinators if several else [answer]
    assert [(it.error_code, it.node_id, it.host, it.port) for it in found] == [
        (E.NONE, 1, "here", 9092)
    ] * (2 if several else 1)


def test_the_first_question_creates_the_offsets_topic_and_waits_for_it():
    stage = Stage(elected=False)
    stage.metadata.topics.pop(CONSUMER_OFFSETS, None)
    request = stage.ask(10, 2, wire.FindCoordinatorRequest(key="g"))
    assert request.answers == []
    ((command, created),) = stage.controller.asked
    (topic,) = command.topics
    assert (topic.name, topic.partitions) == (CONSUMER_OFFSETS, 50)
    assert topic.configs["cleanup.policy"] == "compact"
    assert topic.clamped, "nobody set a factor: the topic takes what there is"
    created([TopicOutcome(CONSUMER_OFFSETS, E.INVALID_REPLICATION_FACTOR, "too few brokers")])
    assert [answer.error_code for answer in request.answers] == [E.COORDINATOR_NOT_AVAILABLE]
    assert "too few brokers" in request.answers[0].error_message
    assert len(stage.warnings) == 1


def test_a_replication_factor_that_was_set_is_kept_to():
    stage = Stage(elected=False)
    stage.metadata.topics.pop(CONSUMER_OFFSETS, None)
    chosen = BrokerSettings.load(None, {"offsets.topic.replication.factor": "2"})
    stage.groups.topic = offsets_topic(chosen)
    stage.ask(10, 2, wire.FindCoordinatorRequest(key="g"))
    ((command, _),) = stage.controller.asked
    (topic,) = command.topics
    assert (topic.replication_factor, topic.clamped) == (2, False)


@pytest.mark.parametrize("key_type", [2, 9])
def test_other_coordinators_are_refused_with_a_message(key_type):
    body = wire.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
    (answer,) = Stage().ask(10, 6, body).coordinators
    assert (answer.error_code, answer.node_id, answer.key) == (E.INVALID_REQUEST, -1, "x")
    assert answer.error_message


def test_a_client_of_a_listener_that_the_leader_lacks_must_wait():
    stage = Stage()
    stage.metadata.brokers[1].endpoints.clear()
    answer = stage.ask(10, 1, wire.FindCoordinatorRequest(key="g"))
    assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE


# Membership


def test_metadata_that_no_record_of_the_group_can_hold_is_refused_before_it_is_copied():
    stage = Stage()
    assert stage.join(3, exact=bytes(MOST_BYTES)).answers == []  # it waits for others
    assert stage.join(3, more=bytes(MOST_BYTES + 1)).error_code == E.INVALID_REQUEST
    ((kind, source, line),) = stage.warnings
    assert (kind, source) == ("groups", "10.0.0.7 (app)")
    assert f"metadata has {MOST_BYTES + 1} bytes" in line
    stage.replicas.get = lambda *_: None
    stage.harness.loop.resigned(0)
    assert stage.join(3, more=bytes(MOST_BYTES + 1)).error_code == E.NOT_COORDINATOR


def test_more_protocols_than_any_client_has_are_refused():
    stage, names = Stage(), [f"p{number}" for number in range(MOST_PROTOCOLS + 1)]
    assert stage.join(3, **dict.fromkeys(names[1:], b"m")).answers == []
    assert stage.join(3, **dict.fromkeys(names, b"m")).error_code == E.INVALID_REQUEST
    assert f"{MOST_PROTOCOLS + 1} protocols" in stage.warnings[0][2]


def test_a_request_to_join_is_refused_undecoded_beyond_some_records():
    stage, most = Stage(), MOST_RECORDS * MOST_BYTES
    assert SERVED[11].large_problem(stage, most) == ""
    assert f"it has {most + 1} bytes" in SERVED[11].large_problem(stage, most + 1)
    stage.replicas.of_topic = lambda _: []
    assert SERVED[11].large_problem(stage, 9 << 20)


@pytest.mark.parametrize("version", versions(11))
def test_a_member_joins_in_every_version(version):
    stage = Stage()
    answer = stage.join(version)
    if version >= 4:
        assert answer.error_code == E.MEMBER_ID_REQUIRED
        assert answer.protocol_name == (None if version >= 7 else "")
        answer = stage.join(version, answer.member_id)
    assert answer.answers == []
    stage.tick(3_000)
    (joined,) = answer.answers
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("app-")
    assert [member.metadata for member in joined.members] == [b"m"]


@pytest.mark.parametrize("version", versions(14))
def test_a_member_syncs_in_every_version(version):
    stage = Stage()
    member = stage.member()
    answer = stage.sync(version, member, 1)
    assert (answer.error_code, answer.assignment) == (E.NONE, b"A")
    assert stage.sync(version, member, 9).error_code == E.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(12))
def test_a_member_lives_in_every_version(version):
    stage = Stage()
    member = stage.member()
    body = wire.HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert stage.ask(12, version, body).error_code == E.NONE


@pytest.mark.parametrize("version", versions(13))
def test_a_member_leaves_in_every_version(version):
    stage = Stage()
    member = stage.member()

    def leave():
        if version < 3:
            return stage.ask(13, version, wire.LeaveGroupRequest(group_id="g", member_id=member))
        row = wire.LeaveGroupRequest.MemberIdentity(member_id=member)
        return stage.ask(13, version, wire.LeaveGroupRequest(group_id="g", members=[row]))

    first, again = leave(), leave()
    assert first.error_code == E.NONE
    if version < 3:
        assert again.error_code == E.UNKNOWN_MEMBER_ID
    else:
        assert [it.error_code for it in first.members] == [E.NONE]
        assert [it.error_code for it in again.members] == [E.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    ("api_key", "body"),
    [
        (11, wire.JoinGroupRequest(group_id="g", session_timeout_ms=10_000)),
        (12, wire.HeartbeatRequest(group_id="g")),
        (13, wire.LeaveGroupRequest(group_id="g")),
        (14, wire.SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="x")),
    ],
)
def test_who_may_not_read_a_group_cannot_take_part(api_key, body):
    stage = Stage()
    stage.denied.add((AclOperation.READ, AclResourceType.GROUP, "g"))
    answer = stage.ask(api_key, API[api_key].served[1], body)
    assert answer.error_code == E.GROUP_AUTHORIZATION_FAILED


def test_while_a_group_is_loaded_clients_keep_calm():
    stage = Stage(elected=False)
    stage.groups.elected(0, 1)
    assert stage.join(5).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert stage.sync(3, "m", 1).error_code == E.REBALANCE_IN_PROGRESS
    body = wire.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert stage.ask(12, 3, body).error_code == E.NONE
    listed = stage.ask(16, 4, wire.ListGroupsRequest())
    assert (listed.error_code, listed.groups) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])


def test_a_group_that_lives_elsewhere_is_an_error_of_its_own():
    stage = Stage(elected=False)
    assert stage.join(5).error_code == E.NOT_COORDINATOR
    answer = stage.ask(15, 5, wire.DescribeGroupsRequest(groups=["g"]))
    assert [(it.group_id, it.error_code) for it in answer.groups] == [("g", E.NOT_COORDINATOR)]


# Administration


@pytest.mark.parametrize("version", versions(15))
def test_groups_are_described_in_the_order_asked(version):
    stage = Stage()
    member = stage.member()
    body = wire.DescribeGroupsRequest(
        groups=["nobody", "g"], include_authorized_operations=version >= 3
    )
    missing, known = stage.ask(15, version, body).groups
    expected = E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE
    assert (missing.group_id, missing.group_state, missing.error_code) == (
        "nobody",
        "Dead",
        expected,
    )
    assert (known.group_state, known.protocol_type, known.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (row,) = known.members
    assert (row.member_id, row.client_id, row.client_host) == (member, "app", "/10.0.0.7")
    assert (row.member_metadata, row.member_assignment) == (b"m", b"A")
    assert known.authorized_operations == (8 if version >= 3 else -(1 << 31))


@pytest.mark.parametrize("version", versions(16))
def test_groups_are_listed_in_every_version(version):
    stage = Stage()
    stage.member()
    (group,) = stage.ask(16, version, wire.ListGroupsRequest()).groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (["STABLE"], [], 1),
        (["empty", *map(str, range(500)), "Stable"], ["Classic"], 1),
        (["empty"], [], 0),
        ([], ["consumer"], 0),
        ([str(number) for number in range(2_000)], [], 0),
    ],
)
def test_groups_are_listed_by_state_and_type_in_any_case(states, types, found):
    stage = Stage()
    stage.member()
    body = wire.ListGroupsRequest(states_filter=states, types_filter=types)
    assert len(stage.ask(16, 5, body).groups) == found


def test_the_names_of_a_filter_are_walked_over_once_and_not_by_each_shard():
    class Names(frozenset):
        def __iter__(self):
            raise AssertionError("fifty shards would walk over thousands of names")

    stage = Stage()
    stage.member()
    (shard,) = stage.groups.active_shards()
    listed = []
    stage.groups.submit_to_all(
        GroupShard.list_groups, ListGroups(Names({"stable"}), Names({"classic"})), listed.extend
    )
    assert [group.group_id for group in listed[0]] == list(shard.groups)


def test_who_may_not_see_the_cluster_sees_only_its_groups():
    stage = Stage()
    stage.member()
    stage.denied.add((AclOperation.DESCRIBE, AclResourceType.CLUSTER, "kafka-cluster"))
    assert len(stage.ask(16, 4, wire.ListGroupsRequest()).groups) == 1
    stage.denied.add((AclOperation.DESCRIBE, AclResourceType.GROUP, "g"))
    assert stage.ask(16, 4, wire.ListGroupsRequest()).groups == []


@pytest.mark.parametrize("version", versions(42))
def test_groups_are_deleted_each_with_its_result(version):
    stage = Stage()
    stage.member()
    stage.denied.add((AclOperation.DELETE, AclResourceType.GROUP, "secret"))
    body = wire.DeleteGroupsRequest(groups_names=["g", "nobody", "secret"])
    results = stage.ask(42, version, body).results
    assert [(it.group_id, it.error_code) for it in results] == [
        ("g", E.NON_EMPTY_GROUP),
        ("nobody", E.GROUP_ID_NOT_FOUND),
        ("secret", E.GROUP_AUTHORIZATION_FAILED),
    ]


# Offsets


@pytest.mark.parametrize("version", versions(8))
def test_offsets_are_committed_in_every_version(version):
    stage = Stage()
    (topic,) = stage.ask(8, version, commit_body(version)).topics
    assert (topic.name, topic.topic_id) == (("t", ZERO_UUID) if version < 10 else ("", TOPIC_ID))
    assert [(it.partition_index, it.error_code) for it in topic.partitions] == [(0, E.NONE)]
    assert fetched(stage.ask(9, 9, fetch_body(9)), 9)[1][0] == (5, E.NONE)


@pytest.mark.parametrize("version", versions(8))
def test_a_commit_of_a_stranger_is_refused_in_every_version(version):
    stage = Stage()
    body = commit_body(version, member="ghost", generation=3)
    error = stage.ask(8, version, body).topics[0].partitions[0].error_code
    assert error == (E.GROUP_ID_NOT_FOUND if version >= 9 else E.ILLEGAL_GENERATION)


def test_a_commit_to_what_does_not_exist_or_is_not_allowed_is_refused_alone():
    stage = Stage()

    def error_of(version, **changes):
        body = commit_body(version, **changes)
        return stage.ask(8, version, body).topics[0].partitions[0].error_code

    assert error_of(9, partition=7) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(10, topic_id=b"x" * 16) == E.UNKNOWN_TOPIC_ID
    stage.denied.add((AclOperation.READ, AclResourceType.TOPIC, "t"))
    assert error_of(9) == error_of(10) == E.TOPIC_AUTHORIZATION_FAILED
    stage.denied.add((AclOperation.READ, AclResourceType.GROUP, "g"))
    assert error_of(9) == E.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", versions(9))
def test_offsets_are_fetched_in_every_version(version):
    stage = Stage()
    stage.ask(8, 9, commit_body(9))
    answer = stage.ask(9, version, fetch_body(version))
    assert fetched(answer, version) == (E.NONE, {0: (5, E.NONE), 1: (-1, E.NONE)})
    unknown = stage.ask(9, version, fetch_body(version, group="nobody"))
    assert fetched(unknown, version) == (E.NONE, {0: (-1, E.NONE), 1: (-1, E.NONE)})


@pytest.mark.parametrize("version", [it for it in versions(9) if it >= 2])
def test_all_offsets_of_a_group_are_fetched(version):
    stage = Stage()
    stage.ask(8, 9, commit_body(9))
    answer = stage.ask(9, version, fetch_body(version, topics=False))
    assert fetched(answer, version) == (E.NONE, {0: (5, E.NONE)})
    if version >= 10:
        assert answer.groups[0].topics[0].topic_id == TOPIC_ID
    stage.denied.add((AclOperation.DESCRIBE, AclResourceType.TOPIC, "t"))
    hidden = stage.ask(9, version, fetch_body(version, topics=False))
    assert fetched(hidden, version) == (E.NONE, {})


@pytest.mark.parametrize("version", versions(9))
def test_a_group_that_may_not_be_seen_is_refused_in_every_version(version):
    stage = Stage()
    stage.denied.add((AclOperation.DESCRIBE, AclResourceType.GROUP, "g"))
    error, partitions = fetched(stage.ask(9, version, fetch_body(version)), version)
    denied = E.GROUP_AUTHORIZATION_FAILED
    if version < 2:
        assert partitions == {0: (-1, denied), 1: (-1, denied)}
    else:
        assert (error, partitions) == (denied, {})


@pytest.mark.parametrize("version", versions(9))
def test_a_topic_that_may_not_be_seen_is_refused_by_partition(version):
    stage = Stage()
    stage.denied.add((AclOperation.DESCRIBE, AclResourceType.TOPIC, "t"))
    denied = (-1, E.TOPIC_AUTHORIZATION_FAILED)
    answer = fetched(stage.ask(9, version, fetch_body(version)), version)
    assert answer == (E.NONE, {0: denied, 1: denied})


def test_offsets_are_forgotten():
    stage = Stage()
    stage.ask(8, 9, commit_body(9))
    rows = [
        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 7)
    ]
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=rows)
    answer = stage.ask(47, 0, OffsetDeleteRequest(group_id="g", topics=[topic]))
    (found,) = answer.topics
    assert [it.error_code for it in found.partitions] == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert fetched(stage.ask(9, 9, fetch_body(9)), 9)[1][0] == (-1, E.NONE)
    missing = stage.ask(47, 0, OffsetDeleteRequest(group_id="nobody", topics=[topic]))
    assert missing.error_code == E.GROUP_ID_NOT_FOUND
