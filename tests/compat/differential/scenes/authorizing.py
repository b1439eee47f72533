"""What each API answers to users with different rights: the same ACLs and the same requests on both brokers."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from headwater.security.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from headwater.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from headwater.wire.messages.cluster import DescribeClusterRequest, DescribeLogDirsRequest
from headwater.wire.messages.configs import ListConfigResourcesRequest
from headwater.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from headwater.wire.messages.metadata import DescribeTopicPartitionsRequest, MetadataRequest
from headwater.wire.messages.offsets import OffsetDeleteRequest, OffsetForLeaderEpochRequest
from headwater.wire.messages.producers import DescribeProducersRequest
from headwater.wire.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from headwater.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from headwater.wire.messages.topics import (
    CreatePartitionsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from headwater.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from headwater.wire.messages.users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from headwater.wire.schema import Struct
from tests.compat.differential.batch import batch
from tests.compat.differential.coordinator import beat, coordinator, join, leave, sync
from tests.compat.differential.peer import USERS
from tests.compat.differential.scene import Scene, newest, scene
from tests.compat.differential.scenes import (
    committing,
    configuring,
    fetching,
    topics,
    transacting,
)
from tests.compat.differential.scenes.producing import NAMED, produce

TOPIC, OTHER, GROUP, ID = "guarded", "unnamed", "guards", "guarded-id"
"""Rights are about the first topic; nobody has one on the other."""
ABSENT = "guarded-absent"
_ALLOW, _DENY = AclPermission.ALLOW, AclPermission.DENY
_T, _G, _C, _X = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
)
_NAMES = {_T: TOPIC, _G: GROUP, _C: CLUSTER_NAME, _X: ID}
_O = AclOperation


class Grant(NamedTuple):
    """One ACL, as most of them are."""

    type: AclResourceType
    operation: AclOperation
    name: str = ""
    pattern: AclPatternType = AclPatternType.LITERAL
    permission: AclPermission = _ALLOW


def _deny(kind: AclResourceType, operation: AclOperation) -> Grant:
    return Grant(kind, operation, permission=_DENY)


def _every(operation: AclOperation, *kinds: AclResourceType) -> list[Grant]:
    return [Grant(kind, operation) for kind in kinds]


GRANTS: dict[str, list[Grant]] = {
    "nobody": [],
    "describer": _every(_O.DESCRIBE, _T, _G, _X),
    "reader": _every(_O.READ, _T, _G),
    "topic-reader": _every(_O.READ, _T),
    "group-reader": _every(_O.READ, _G),
    "writer": _every(_O.WRITE, _T, _X),
    "topic-writer": _every(_O.WRITE, _T),
    "id-writer": [*_every(_O.WRITE, _X), *_every(_O.READ, _G)],
    "creator": [Grant(_T, _O.CREATE, "guarded-", AclPatternType.PREFIXED)],
    "configurer": _every(_O.ALTER_CONFIGS, _T, _G, _C),
    "config-reader": _every(_O.DESCRIBE_CONFIGS, _T, _G, _C),
    "alterer": _every(_O.ALTER, _T, _C),
    "deleter": _every(_O.DELETE, _G),
    "cluster-creator": _every(_O.CREATE, _C),
    "cluster-describer": _every(_O.DESCRIBE, _C),
    "idempotent": _every(_O.IDEMPOTENT_WRITE, _C),
    "all-but": [
        *_every(_O.ALL, _T, _G, _X),
        _deny(_T, _O.READ),
        _deny(_G, _O.DESCRIBE),
    ],
    "wild": [
        Grant(_T, _O.READ, "*"),
        Grant(_T, _O.DESCRIBE, "guard", AclPatternType.PREFIXED, _DENY),
        Grant(_G, _O.DESCRIBE, "g", AclPatternType.PREFIXED),
    ],
}
"""The users, named after what they may do. Nobody may delete a topic: the next user would miss it."""
assert set(GRANTS) == set(USERS)


def _creations() -> Iterator[CreateAclsRequest.AclCreation]:
    for user, grants in GRANTS.items():
        for one in grants:
            yield CreateAclsRequest.AclCreation(
                resource_type=one.type,
                resource_name=one.name or _NAMES[one.type],
                resource_pattern_type=one.pattern,
                principal=f"User:{user}",
                host="*",
                operation=one.operation,
                permission_type=one.permission,
            )


def _prepare(s: Scene) -> None:
    """Makes what the requests are about, and the ACLs; returns when both are in force."""
    coordinator(s)
    transacting.transactions(s)
    for name in (TOPIC, OTHER):
        s.topic(name)
        fetching.fill(s, name)
    s.peer.call(committing.commit(s, GROUP, TOPIC), committing.BY_NAME)
    transacting.started(s, ID)
    wanted = list(_creations())
    s.peer.call(CreateAclsRequest(creations=wanted), newest(CreateAclsRequest))
    everything = DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    found = 0
    while found < len(wanted):  # Kafka answers before an ACL is in force
        answer = s.peer.call(everything, newest(DescribeAclsRequest))
        found = sum(len(row.acls) for row in answer.resources)


def _forget(s: Scene) -> None:
    """Removes the ACLs: other scenes are about an open broker."""
    every = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    s.peer.call(DeleteAclsRequest(filters=[every]), newest(DeleteAclsRequest))


Ask = tuple[str, Struct, int | None]


def _metadata(name: str) -> Ask:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    return f"metadata of {name}", request, 10


def _topic_requests(s: Scene) -> Iterator[Ask]:
    for name in (TOPIC, OTHER, ABSENT):
        yield f"produce to {name}", produce(name, batch()), NAMED
        yield f"fetch {name}", fetching.fetch(s, name), 12
        yield f"offsets of {name}", fetching.list_offsets(name, -1), 7
        yield _metadata(name)
    by_id = produce("", batch())
    by_id.topic_data[0].topic_id = s.topic_ids[TOPIC]
    yield "produce by id", by_id, 13
    yield "fetch by id", fetching.fetch(s, TOPIC), 13
    wanted = MetadataRequest.MetadataRequestTopic(name=None, topic_id=s.topic_ids[TOPIC])
    yield "metadata by id", MetadataRequest(topics=[wanted]), 12
    epochs = OffsetForLeaderEpochRequest
    parts = [epochs.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)]
    for name in (TOPIC, OTHER):
        row = DescribeTopicPartitionsRequest.TopicRequest(name=name)
        yield f"partitions of {name}", DescribeTopicPartitionsRequest(topics=[row]), 0
        topic = epochs.OffsetForLeaderTopic(topic=name, partitions=parts)
        yield f"epochs of {name}", epochs(replica_id=-1, topics=[topic]), 4
    described = [DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])]
    yield "producers", DescribeProducersRequest(topics=described), 0
    yield "create", topics.create(topics.topic(ABSENT), dry=True), 7
    yield "create another", topics.create(topics.topic("other-absent"), dry=True), 7
    yield "delete", DeleteTopicsRequest(topic_names=[TOPIC, ABSENT], timeout_ms=5000), 5
    doomed = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=s.topic_ids[TOPIC])
    yield "delete by id", DeleteTopicsRequest(topics=[doomed], timeout_ms=5000), 6
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)
    yield "grow", CreatePartitionsRequest(topics=[grown], timeout_ms=5000, validate_only=True), 3
    records = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    gone = DeleteRecordsRequest.DeleteRecordsTopic(name=TOPIC, partitions=[records])
    yield "delete records", DeleteRecordsRequest(topics=[gone], timeout_ms=5000), 2


def _group_requests(s: Scene) -> Iterator[Ask]:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP, "unnamed-group"])
    yield "coordinator", find, 6
    yield "commit", committing.commit(s, GROUP, TOPIC), committing.BY_NAME
    yield "commit of another topic", committing.commit(s, GROUP, OTHER), committing.BY_NAME
    yield "committed", committing.fetch(s, GROUP, TOPIC, OTHER), 9
    yield "all committed", committing.fetch(s, GROUP), 9
    yield "join", join(GROUP, "me"), 9
    yield "join another", join("unnamed-group"), 9
    yield "sync", sync(GROUP, 1, "me"), 5
    yield "heartbeat", beat(GROUP, 1, "me"), 4
    yield "leave", leave(GROUP, ("me", None)), 5
    asked = DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=True)
    yield "describe group", asked, 5
    parts = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=7)]
    where = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=TOPIC, partitions=parts)]
    yield "delete offsets", OffsetDeleteRequest(group_id=GROUP, topics=where), 0
    yield "delete group", DeleteGroupsRequest(groups_names=["unnamed-group"]), 2


def _transaction_requests(s: Scene) -> Iterator[Ask]:
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID, "unnamed-id"])
    yield "transaction coordinator", find, 6
    yield "a producer id", transacting.init(None), 5
    made_up = {"producer_id": 4711, "producer_epoch": 0}
    yield "init", transacting.init(ID, **made_up), 5
    yield "init another", transacting.init("unnamed-id"), 5
    yield "add partitions", transacting.add(ID, made_up, **{TOPIC: [0]}), 3
    yield "add two topics", transacting.add(ID, made_up, **{TOPIC: [0], OTHER: [0]}), 3
    offsets = {"transactional_id": ID, "group_id": GROUP, **made_up}
    yield "add offsets", AddOffsetsToTxnRequest(**offsets), 3
    kinds = TxnOffsetCommitRequest
    part = kinds.TxnOffsetCommitRequestPartition(committed_offset=5)
    rows = [kinds.TxnOffsetCommitRequestTopic(name=n, partitions=[part]) for n in (TOPIC, OTHER)]
    yield "commit in it", kinds(topics=rows, **offsets), 3
    yield "end", EndTxnRequest(transactional_id=ID, committed=True, **made_up), 3
    yield "transactional produce", produce(TOPIC, batch(), transactional_id=ID), NAMED
    described = DescribeTransactionsRequest(transactional_ids=["unnamed-id"])
    yield "describe an id", described, 0
    yield "markers", WriteTxnMarkersRequest(), 1


def _config_requests(_: Scene) -> Iterator[Ask]:
    for kind, name, key, value in (
        (2, TOPIC, "retention.ms", "1000"),
        (4, "1", "log.cleaner.threads", "1"),
        (32, GROUP, "consumer.session.timeout.ms", "50000"),
    ):
        yield f"configs of {kind}", configuring.describe(kind, name, key), 4
        if kind != 32:
            yield f"set a config of {kind}", configuring.alter(kind, name, True, **{key: value}), 2
            changed = configuring.change(kind, name, (key, 0, value), dry=True)
            yield f"change a config of {kind}", changed, 1
    yield "config resources", ListConfigResourcesRequest(resource_types=[16]), 1


def _cluster_requests(_: Scene) -> Iterator[Ask]:
    yield "cluster", DescribeClusterRequest(include_cluster_authorized_operations=True), 1
    nothing = DescribeAclsRequest(
        resource_type_filter=2, resource_name_filter="none", pattern_type_filter=3,
        operation=1, permission_type=1,
    )  # fmt: skip
    yield "acls", nothing, 3
    created = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="nowhere", principal="User:nobody-else", host="*",
        operation=3, permission_type=3,
    )  # fmt: skip
    yield "create an acl", CreateAclsRequest(creations=[created]), 3
    none = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=2, resource_name_filter="none", pattern_type_filter=3,
        operation=1, permission_type=1,
    )  # fmt: skip
    yield "delete acls", DeleteAclsRequest(filters=[none]), 3
    dirs = DescribeLogDirsRequest(topics=[])
    yield "log dirs", dirs, 4
    yield "quotas", DescribeClientQuotasRequest(), 1
    yield "change quotas", AlterClientQuotasRequest(validate_only=True), 1
    who = DescribeUserScramCredentialsRequest.UserName(name="absent")
    yield "users", DescribeUserScramCredentialsRequest(users=[who]), 0
    deleted = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="absent", mechanism=1)
    yield "change users", AlterUserScramCredentialsRequest(deletions=[deleted]), 0
    yield "moves", ListPartitionReassignmentsRequest(timeout_ms=5000, topics=[]), 0
    yield "move", AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[]), 0
    elected = ElectLeadersRequest.ElectedTopic(topic=TOPIC, partitions=[0])
    yield "elect", ElectLeadersRequest(topic_partitions=[elected], timeout_ms=5000), 2


def _listed(s: Scene, user: str) -> None:
    """Write down what lists show of ours: other scenes leave groups and topics behind."""
    with s.peer.line_of(user) as line:
        line.send(ListGroupsRequest(), 5)
        answer: Any = line.receive()
        groups = sorted(row.group_id for row in answer.groups if row.group_id == GROUP)
        s.note(f"{user}: groups", [answer.error_code, groups])
        line.send(ListTransactionsRequest(), 1)
        answer = line.receive()
        ids = sorted(one.transactional_id for one in answer.transaction_states)
        s.note(f"{user}: transactions", [answer.error_code, ID in ids])
        line.send(MetadataRequest(topics=None), 12)
        answer = line.receive()
        names = sorted(row.name for row in answer.topics if row.name in (TOPIC, OTHER))
        s.note(f"{user}: topics", names)


@scene
def rights_of_users(s: Scene) -> None:
    """One scene, so that users, topics and ACLs are made once."""
    _prepare(s)
    try:
        for user in GRANTS:
            for requests in (
                _topic_requests,
                _group_requests,
                _transaction_requests,
                _config_requests,
                _cluster_requests,
            ):
                for label, request, version in requests(s):
                    s.ask_as(user, f"{user}: {label}", request, version)
            _listed(s, user)
    finally:
        _forget(s)
