"""The error each API gives for what cannot be, in every version: all seen on Apache Kafka 4.3.1.

Requests are encoded by our own codec, which `codec/` holds against Kafka's classes. `T` stands for a
topic that exists, with one partition and no records.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.errors import E
from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.framing import read_response_header, request_frame
from headwater.wire.messages import configs, fetch, groups, metadata, offsets, producers, topics
from headwater.wire.primitives import WireError
from headwater.wire.schema import Struct
from headwater.wire.versions import Versions
from tests.compat.broker_under_test import eventually
from tests.compat.client import END
from tests.compat.raw import Raw

T = "an-existing-topic"
ABSENT = "no-such-topic"
BAD_NAME = "no spaces"
BAD_ID = b"\x01" * 16
NO_GROUP = "no-such-group"

CREATE = topics.CreateTopicsRequest
COMMIT = offsets.OffsetCommitRequest
DESCRIBE_CONFIGS = configs.DescribeConfigsRequest
ALTER = configs.IncrementalAlterConfigsRequest


def find_metadata(**topic: Any) -> Struct:
    row = metadata.MetadataRequest.MetadataRequestTopic(**topic)
    return metadata.MetadataRequest(topics=[row], allow_auto_topic_creation=False)


def list_offsets(topic: str, timestamp: int, partition: int = 0, epoch: int = -1) -> Struct:
    row = offsets.ListOffsetsRequest.ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    asked = offsets.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[row])
    return offsets.ListOffsetsRequest(replica_id=-1, topics=[asked])


def epoch_end(topic: str, epoch: int = -1) -> Struct:
    row = offsets.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=epoch, leader_epoch=0
    )
    asked = offsets.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[row])
    return offsets.OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked])


def fetch_from(session: tuple[int, int] = (0, -1), **where: Any) -> Struct:
    topic = {key: where.pop(key) for key in ("topic", "topic_id") if key in where}
    row = fetch.FetchRequest.FetchPartition(partition_max_bytes=1000, **where)
    asked = fetch.FetchRequest.FetchTopic(**topic, partitions=[row])
    session_id, session_epoch = session
    return fetch.FetchRequest(
        replica_id=-1, topics=[asked], session_id=session_id, session_epoch=session_epoch
    )


def join(**more: Any) -> Struct:
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    usual = {"group_id": NO_GROUP, "session_timeout_ms": 10000, "rebalance_timeout_ms": 1000}
    usual |= {"protocol_type": "consumer", "protocols": [protocol]}
    return groups.JoinGroupRequest(**{**usual, **more})


def commit(topic: str = T, *, text: str = "", partition: int = 0, **more: Any) -> Struct:
    row = COMMIT.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=1, committed_metadata=text
    )
    asked = COMMIT.OffsetCommitRequestTopic(name=topic, partitions=[row])
    usual = {"group_id": "a-group", "generation_id_or_member_epoch": -1, "topics": [asked]}
    return COMMIT(**{**usual, **more})


def create(name: str = "new", partitions: int = 1, replicas: int = 1, **more: Any) -> Struct:
    row = CREATE.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, **more
    )
    return CREATE(topics=[row], validate_only=True, timeout_ms=5000)


def config(key: str, value: str | None) -> dict[str, Any]:
    return {"configs": [CREATE.CreatableTopicConfig(name=key, value=value)]}


def assigned(partition: int, *brokers: int) -> dict[str, Any]:
    row = CREATE.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
    return {"partitions": -1, "replicas": -1, "assignments": [row]}


def grow(topic: str, count: int, *assignments: list[int]) -> Struct:
    rows = [
        topics.CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids)
        for ids in assignments
    ]
    asked = topics.CreatePartitionsRequest.CreatePartitionsTopic(
        name=topic, count=count, assignments=rows or None
    )
    return topics.CreatePartitionsRequest(topics=[asked], validate_only=True, timeout_ms=5000)


def delete_records(topic: str, offset: int, partition: int = 0) -> Struct:
    row = topics.DeleteRecordsRequest.DeleteRecordsPartition(
        partition_index=partition, offset=offset
    )
    asked = topics.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[row])
    return topics.DeleteRecordsRequest(topics=[asked], timeout_ms=5000)


def describe_configs(kind: int, name: str) -> Struct:
    row = DESCRIBE_CONFIGS.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    return DESCRIBE_CONFIGS(resources=[row])


def alter(name: str, key: str, value: str | None, *, operation: int = 0, kind: int = 2) -> Struct:
    row = ALTER.AlterableConfig(name=key, config_operation=operation, value=value)
    asked = ALTER.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[row])
    return ALTER(resources=[asked], validate_only=True)


def replace(name: str, key: str, value: str | None) -> Struct:
    row = configs.AlterConfigsRequest.AlterableConfig(name=key, value=value)
    asked = configs.AlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name=name, configs=[row]
    )
    return configs.AlterConfigsRequest(resources=[asked], validate_only=True)


def offset_delete(group: str, topic: str, partition: int = 0) -> Struct:
    row = offsets.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)
    asked = offsets.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[row])
    return offsets.OffsetDeleteRequest(group_id=group, topics=[asked])


# What is asked, every error in the answer, and the versions that ask it where not all do: from 13
# on a Fetch names topics by id, an OffsetCommit from 10, a DeleteTopics from 6.
ANSWERS: dict[str, tuple[Struct, set[E]] | tuple[Struct, set[E], str]] = {
    "metadata of an absent topic": (find_metadata(name=ABSENT), {E.UNKNOWN_TOPIC_OR_PARTITION}),
    "metadata of a bad name": (find_metadata(name=BAD_NAME), {E.INVALID_TOPIC_EXCEPTION}),
    "offsets of an absent topic": (list_offsets(ABSENT, -1), {E.UNKNOWN_TOPIC_OR_PARTITION}),
    "offsets of an absent partition": (list_offsets(T, -1, 9), {E.UNKNOWN_TOPIC_OR_PARTITION}),
    "offsets of an unknown special time": (list_offsets(T, -7), {E.UNSUPPORTED_VERSION}),
    "offsets of a future time": (list_offsets(T, 2**50), set()),
    "offsets with a future epoch": (list_offsets(T, -1, epoch=9), {E.UNKNOWN_LEADER_EPOCH}, "4-11"),
    "epoch end of an absent topic": (epoch_end(ABSENT), {E.UNKNOWN_TOPIC_OR_PARTITION}),
    "epoch end with a future epoch": (epoch_end(T, 9), {E.UNKNOWN_LEADER_EPOCH}),
    "fetch beyond the end": (fetch_from(topic=T, fetch_offset=6), {E.OFFSET_OUT_OF_RANGE}, "4-12"),
    "fetch of a negative offset": (
        fetch_from(topic=T, fetch_offset=-1),
        {E.OFFSET_OUT_OF_RANGE},
        "4-12",
    ),
    "fetch of an absent topic": (fetch_from(topic=ABSENT), {E.UNKNOWN_TOPIC_OR_PARTITION}, "4-12"),
    "fetch of an absent partition": (
        fetch_from(topic=T, partition=9),
        {E.UNKNOWN_TOPIC_OR_PARTITION},
        "4-12",
    ),
    "fetch with a future epoch": (
        fetch_from(topic=T, current_leader_epoch=9),
        {E.UNKNOWN_LEADER_EPOCH},
        "9-12",
    ),
    "fetch of an unknown topic id": (fetch_from(topic_id=BAD_ID), {E.UNKNOWN_TOPIC_ID}, "13-18"),
    "fetch in an unknown session": (
        fetch_from(topic=T, session=(1234, 5)),
        {E.FETCH_SESSION_ID_NOT_FOUND},
        "7-12",
    ),
    "fetch going on without a session": (
        fetch_from(topic=T, session=(0, 4)),
        {E.FETCH_SESSION_ID_NOT_FOUND},
        "7-12",
    ),
    "coordinator of an unknown kind": (
        groups.FindCoordinatorRequest(key="g", key_type=9),
        {E.INVALID_REQUEST},
    ),
    "join with too short a session": (join(session_timeout_ms=100), {E.INVALID_SESSION_TIMEOUT}),
    "join with too long a session": (join(session_timeout_ms=2**30), {E.INVALID_SESSION_TIMEOUT}),
    "join of a group without a name": (join(group_id=""), {E.INVALID_GROUP_ID}),
    "join without protocols": (join(protocols=[]), {E.INCONSISTENT_GROUP_PROTOCOL}),
    "join without a protocol type": (join(protocol_type=""), {E.INCONSISTENT_GROUP_PROTOCOL}),
    "join of a member nobody knows": (join(member_id="who"), {E.UNKNOWN_MEMBER_ID}),
    "sync of a member nobody knows": (
        groups.SyncGroupRequest(
            group_id=NO_GROUP, member_id="who", protocol_type="consumer", protocol_name="range"
        ),
        {E.UNKNOWN_MEMBER_ID},
    ),
    "heartbeat of a member nobody knows": (
        groups.HeartbeatRequest(group_id=NO_GROUP, member_id="who"),
        {E.UNKNOWN_MEMBER_ID},
    ),
    "heartbeat to a group without a name": (
        groups.HeartbeatRequest(group_id="", member_id="who"),
        {E.INVALID_GROUP_ID},
    ),
    "leaving of a member nobody knows": (
        groups.LeaveGroupRequest(group_id=NO_GROUP, member_id="who"),
        {E.UNKNOWN_MEMBER_ID},
    ),
    "delete of an absent group": (
        groups.DeleteGroupsRequest(groups_names=["never-named-before"]),
        {E.GROUP_ID_NOT_FOUND},
    ),
    "commit to an absent topic": (commit(ABSENT), {E.UNKNOWN_TOPIC_OR_PARTITION}, "2-9"),
    "commit to an absent partition": (commit(partition=9), {E.UNKNOWN_TOPIC_OR_PARTITION}, "2-9"),
    "commit of too much text": (commit(text="x" * 5000), {E.OFFSET_METADATA_TOO_LARGE}, "2-9"),
    "create": (create(), set()),
    "create with defaults": (create(partitions=-1, replicas=-1), set()),
    "create what exists": (create(T), {E.TOPIC_ALREADY_EXISTS}),
    "create a bad name": (create(BAD_NAME), {E.INVALID_TOPIC_EXCEPTION}),
    "create without a name": (create(""), {E.INVALID_TOPIC_EXCEPTION}),
    "create a long name": (create("x" * 250), {E.INVALID_TOPIC_EXCEPTION}),
    "create no partitions": (create(partitions=0), {E.INVALID_PARTITIONS}),
    "create no replicas": (create(replicas=0), {E.INVALID_REPLICATION_FACTOR}),
    "create more replicas than brokers": (create(replicas=3), {E.INVALID_REPLICATION_FACTOR}),
    "create with a bad value": (create(**config("retention.ms", "soon")), {E.INVALID_CONFIG}),
    "create with an unknown key": (create(**config("nope", "1")), {E.INVALID_CONFIG}),
    "create with a key of null": (create(**config("retention.ms", None)), {E.INVALID_CONFIG}),
    "create placed": (create(**assigned(0, 1)), set()),
    "create placed with a gap": (create(**assigned(1, 1)), {E.INVALID_REPLICA_ASSIGNMENT}),
    "create placed on no broker": (create(**assigned(0, 77)), {E.INVALID_REPLICA_ASSIGNMENT}),
    "create placed twice": (create(**assigned(0, 1, 1)), {E.INVALID_REPLICA_ASSIGNMENT}),
    "delete an absent topic": (
        topics.DeleteTopicsRequest(topic_names=[ABSENT], timeout_ms=5000),
        {E.UNKNOWN_TOPIC_OR_PARTITION},
        "1-5",
    ),
    "delete an unknown topic id": (
        topics.DeleteTopicsRequest(
            topics=[topics.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=BAD_ID)],
            timeout_ms=5000,
        ),
        {E.UNKNOWN_TOPIC_ID},
    ),
    "grow": (grow(T, 5), set()),
    "grow to the same": (grow(T, 1), {E.INVALID_PARTITIONS}),
    "grow to none": (grow(T, 0), {E.INVALID_PARTITIONS}),
    "grow an absent topic": (grow(ABSENT, 5), {E.UNKNOWN_TOPIC_OR_PARTITION}),
    "grow with too many places": (grow(T, 2, [1], [1]), {E.INVALID_REPLICA_ASSIGNMENT}),
    "grow onto no broker": (grow(T, 2, [77]), {E.INVALID_REPLICA_ASSIGNMENT}),
    "delete records beyond the end": (delete_records(T, 99), {E.OFFSET_OUT_OF_RANGE}),
    "delete records before -1": (delete_records(T, -5), {E.OFFSET_OUT_OF_RANGE}),
    "delete records of an absent topic": (
        delete_records(ABSENT, 0),
        {E.UNKNOWN_TOPIC_OR_PARTITION},
    ),
    "describe configs of an absent topic": (
        describe_configs(2, ABSENT),
        {E.UNKNOWN_TOPIC_OR_PARTITION},
    ),
    "describe configs of a bad name": (describe_configs(2, BAD_NAME), {E.INVALID_TOPIC_EXCEPTION}),
    "describe configs of no broker": (describe_configs(4, "99"), {E.INVALID_REQUEST}),
    "alter": (alter(T, "retention.ms", "5"), set()),
    "alter to a bad value": (alter(T, "retention.ms", "soon"), {E.INVALID_CONFIG}),
    "alter to a value out of range": (alter(T, "retention.ms", "-5"), {E.INVALID_CONFIG}),
    "alter an unknown key": (alter(T, "nope", "1"), {E.INVALID_CONFIG}),
    "alter to null": (alter(T, "retention.ms", None), {E.INVALID_REQUEST}),
    "alter by deleting": (alter(T, "retention.ms", None, operation=1), set()),
    "alter by appending": (alter(T, "cleanup.policy", "compact", operation=2), set()),
    "alter a number by appending": (
        alter(T, "retention.ms", "5", operation=2),
        {E.INVALID_CONFIG},
    ),
    "alter an absent topic": (
        alter(ABSENT, "retention.ms", "5"),
        {E.UNKNOWN_TOPIC_OR_PARTITION},
    ),
    "alter no broker": (alter("x", "log.retention.ms", "5", kind=4), {E.INVALID_REQUEST}),
    "replace configs": (replace(T, "retention.ms", "5"), set()),
    "replace by a bad value": (replace(T, "retention.ms", "soon"), {E.INVALID_CONFIG}),
    "replace by null": (replace(T, "retention.ms", None), {E.INVALID_REQUEST}),
    "replace an absent topic": (
        replace(ABSENT, "retention.ms", "5"),
        {E.UNKNOWN_TOPIC_OR_PARTITION},
    ),
    "list an unknown kind of resource": (
        configs.ListConfigResourcesRequest(resource_types=[9]),
        {E.UNSUPPORTED_VERSION},
    ),
    "delete offsets of an absent group": (
        offset_delete("never-named-before", T),
        {E.GROUP_ID_NOT_FOUND},
    ),
    "a producer id for an empty transactional id": (
        producers.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60000),
        {E.INVALID_REQUEST},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def an_existing_topic(broker):
    broker.hand.create_topic(T, 1, {})
    eventually(lambda: len(broker.hand.offsets(T, END)) == 1)
    eventually(lambda: broker.hand.commit("a-group", T, {0: 0}) is None)  # coordinators are there
    yield
    broker.hand.delete_topic(T)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_error_is_the_same_in_every_version(name, kafka_address):
    request, expected, *versions = ANSWERS[name]
    asked = list(_versions(request, *versions))
    assert asked, "no served version can carry this request"
    for version in asked:
        answer = _ask(kafka_address, request, version)
        assert set(_errors(answer)) == expected, f"version {version}: {answer}"


def _versions(request: Struct, only: str = "0+") -> Iterator[int]:
    """The served versions that can say all of the request."""
    served, wanted = API[request.__schema__.api_key].served, Versions.parse(only)
    for version in range(served.lowest, served.highest + 1):
        try:
            codec.encode_bytes(request, version)
        except WireError:
            continue
        if wanted.lowest <= version <= wanted.highest:
            yield version


def _ask(bootstrap: str, request: Struct, version: int) -> Struct:
    key = request.__schema__.api_key
    with Raw(bootstrap) as raw:
        raw.send(request_frame(key, version, 1, "compat", request))
        frame = raw.answer()
    assert frame is not None, f"version {version}: the broker closed the connection"
    _, position = read_response_header(frame, key, version)
    return codec.decode(API[key].response, version, frame, position)[0]


def _errors(answer: Any) -> Iterator[E]:
    """Every error code in an answer, wherever it is."""
    if isinstance(answer, list):
        for row in answer:
            yield from _errors(row)
    elif isinstance(answer, Struct):
        for field in answer.__schema__.fields:
            value = getattr(answer, field.name)
            if field.name == "error_code" and value:
                yield E(value)
            else:
                yield from _errors(value)
