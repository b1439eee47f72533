"""Every API of the table and every part of its grant, on one connection, with ACLs that come and go.

The smallest sets of rights with which an API does not refuse are found by trying all of them, and
compared with what Kafka needs. A refusal is an error code, or something that the answer lacks.
"""

import itertools
import json
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from headwater.broker.apis import SERVED, Listeners, served_on
from headwater.broker.audit_log import MOST_LINES
from headwater.broker.handlers.configs import ConfigResourceKind
from headwater.errors import E
from headwater.security import rights
from headwater.security.acls import (
    CLUSTER_NAME,
    AclFilter,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from headwater.security.delegation_tokens import TokenInformation
from headwater.security.principals import Principal
from headwater.security.rights import Right
from headwater.wire.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from headwater.wire.messages.produce import ProduceResponse
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.messages.topics import CreateTopicsRequest
from tests.unit.broker.live import Live, batch, fetch_request, produce_request, until
from tests.unit.broker.test_authorization import codes_in, sample

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
EVE = Principal("User", "eve")
NAME = "thing"
"""A topic, a group, a transactional id, a delegation token, and the owner of the token."""
OWNER = Principal("User", NAME)
R = rights

LEAST = {
    0: ({R.WRITE_TOPIC},),
    1: ({R.READ_TOPIC},),
    2: ({R.DESCRIBE_TOPIC},),
    3: ({R.DESCRIBE_TOPIC},),
    8: ({R.READ_GROUP, R.READ_TOPIC},),
    9: ({R.DESCRIBE_GROUP, R.DESCRIBE_TOPIC},),
    10: ({R.DESCRIBE_GROUP},),
    11: ({R.READ_GROUP},),
    12: ({R.READ_GROUP},),
    13: ({R.READ_GROUP},),
    14: ({R.READ_GROUP},),
    15: ({R.DESCRIBE_GROUP},),
    16: ({R.DESCRIBE_CLUSTER}, {R.DESCRIBE_GROUP}),
    19: (
        {R.CREATE_ON_CLUSTER, R.DESCRIBE_TOPIC_CONFIGS},
        {R.CREATE_TOPIC, R.DESCRIBE_TOPIC_CONFIGS},
    ),
    20: ({R.DELETE_ON_CLUSTER}, {R.DELETE_TOPIC}),
    21: ({R.DELETE_TOPIC},),
    22: ({R.IDEMPOTENT_WRITE}, {R.WRITE_TOPIC}),
    23: ({R.DESCRIBE_TOPIC},),
    24: ({R.WRITE_TRANSACTIONAL_ID, R.WRITE_TOPIC},),
    25: ({R.WRITE_TRANSACTIONAL_ID, R.READ_GROUP},),
    26: ({R.WRITE_TRANSACTIONAL_ID},),
    27: ({R.ALTER_CLUSTER},),
    28: ({R.WRITE_TRANSACTIONAL_ID, R.READ_GROUP, R.READ_TOPIC},),
    29: ({R.DESCRIBE_CLUSTER},),
    30: ({R.ALTER_CLUSTER},),
    31: ({R.ALTER_CLUSTER},),
    32: ({R.DESCRIBE_TOPIC_CONFIGS},),
    33: ({R.ALTER_TOPIC_CONFIGS},),
    34: ({R.ALTER_CLUSTER},),
    35: ({R.DESCRIBE_CLUSTER},),
    37: ({R.ALTER_TOPIC},),
    38: ({R.CREATE_TOKENS_FOR_USER},),
    41: ({R.DESCRIBE_TOKEN}, {R.DESCRIBE_TOKENS_OF_USER}),
    42: ({R.DELETE_GROUP},),
    43: ({R.ALTER_CLUSTER},),
    44: ({R.ALTER_TOPIC_CONFIGS},),
    45: ({R.ALTER_CLUSTER},),
    46: ({R.DESCRIBE_CLUSTER},),
    47: ({R.DELETE_GROUP, R.READ_TOPIC},),
    48: ({R.DESCRIBE_CLUSTER_CONFIGS},),
    49: ({R.ALTER_CLUSTER_CONFIGS},),
    50: ({R.DESCRIBE_CLUSTER},),
    51: ({R.ALTER_CLUSTER},),
    60: ({R.DESCRIBE_CLUSTER},),
    61: ({R.READ_TOPIC},),
    65: ({R.DESCRIBE_TRANSACTIONAL_ID},),
    66: ({R.DESCRIBE_TRANSACTIONAL_ID},),
    74: ({R.DESCRIBE_CLUSTER_CONFIGS},),
    75: ({R.DESCRIBE_TOPIC},),
}
"""The smallest grants of a request that names one of everything."""

VERSIONS = {0: 12, 1: 12, 8: 9, 9: 9, 20: 5, 24: 3}
"""The newest versions in which topics have names instead of ids, and clients may send them."""
SHOWN = {
    16: lambda answer: answer.groups,
    41: lambda answer: answer.tokens,
    60: lambda answer: answer.cluster_authorized_operations,
    66: lambda answer: answer.transaction_states,
}
"""What APIs show that hide instead of refusing."""
DELETING = {20, 42}
REFUSALS = {right.refusal for right in vars(rights).values() if isinstance(right, Right)}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:root;User:ANONYMOUS",
        "transaction.state.log.num.partitions": "1",
        "delegation.token.secret.key": "secret",
        "delete.topic.enable": "false",  # who may delete a topic by its id hears that nobody can
    }
    with Live(tmp_path_factory.mktemp("data"), settings) as broker:
        broker.create(NAME)
        with broker.client() as client:
            group = OffsetCommitRequest(group_id=NAME, generation_id_or_member_epoch=-1)
            group.topics = [sample(OffsetCommitRequest.OffsetCommitRequestTopic, 9, NAME)]
            new_id = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=[NAME])
            client.ask(find, FindCoordinatorResponse, 6)
            find.key_type = 1
            client.ask(find, FindCoordinatorResponse, 6)

            def is_set_up():
                committed = client.ask(group, OffsetCommitResponse, 9)
                started = client.ask(new_id, InitProducerIdResponse, 4)
                return not codes_in(committed) - {0} and started.error_code == 0

            until(is_set_up)
        token = TokenInformation(NAME, OWNER, OWNER, (), 0, 1 << 60, 1 << 60)
        broker.on_loop(lambda: broker.context.tokens.create(token, lambda _: None))
        yield broker


@pytest.fixture
def eve(live):
    with live.client() as client:
        live.log_in(client, EVE)
        yield client


def creation(right, principal=str(EVE), permission=AclPermission.ALLOW, **more):
    kind = right.resource_type
    name = {AclResourceType.CLUSTER: CLUSTER_NAME, AclResourceType.USER: str(OWNER)}.get(kind, NAME)
    return CreateAclsRequest.AclCreation(
        **{
            "resource_type": kind,
            "resource_name": name,
            "principal": principal,
            "host": "*",
            "operation": right.operation,
            "permission_type": permission,
        }
        | more
    )


def allow(live, *granted, **more):
    """Create ACLs with the API; they are in force when it answers."""
    request = CreateAclsRequest(creations=[creation(right, **more) for right in granted])
    with live.client() as admin:
        answer = admin.ask(request, CreateAclsResponse, 3)
    assert [row.error_code for row in answer.results] == [0] * len(granted)


def revoke_all(live):
    everything = AclFilter()
    wanted = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=everything.resource_type,
        pattern_type_filter=everything.pattern_type,
        operation=everything.operation,
        permission_type=everything.permission,
    )
    with live.client() as admin:
        answer = admin.ask(DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse, 3)
    assert answer.filter_results[0].error_code == 0
    return len(answer.filter_results[0].matching_acls)


@pytest.fixture(autouse=True)
def no_acls(live):
    yield
    revoke_all(live)


def request_of(key, version):
    """A request that names the topic, the group and the id, and changes nothing."""
    name = f"{NAME}-absent" if key in DELETING else NAME
    body = sample(SERVED[key].api.request, version, name)
    match key:
        case 1:
            body.session_epoch = -1
        case 3:
            body.allow_auto_topic_creation = False
        case 16:
            body.states_filter, body.types_filter = [], []
        case 19:
            new = CreateTopicsRequest.CreatableTopic(
                name=f"{NAME}-new", num_partitions=1, replication_factor=1
            )
            body = CreateTopicsRequest(topics=[new], validate_only=True)
        case 30:
            body.creations = [creation(R.READ_TOPIC, operation=1)]
        case 32 | 33 | 44:
            body.resources[0].resource_type = ConfigResourceKind.TOPIC
        case 38:
            body.owner_principal_type = OWNER.kind
            body.renewers[0].principal_type = "Group"  # refused, so that no token is made
        case 41:
            body.owners = None
        case 47:
            body.topics[0].partitions[0].partition_index = 99
        case 60:
            body.endpoint_type, body.include_cluster_authorized_operations = 1, True
        case 66:
            body.state_filters, body.transactional_id_pattern = [], None
    return body


def is_refused(client, key, version=None, change=lambda body: None):
    api = SERVED[key].api
    version = VERSIONS.get(key, api.served.highest) if version is None else version
    body = request_of(key, version)
    change(body)
    answer = client.ask(body, api.response, version)
    if key in SHOWN:
        return not SHOWN[key](answer)
    return bool(codes_in(answer) & REFUSALS)


ASKED = {
    key: row
    for key, row in served_on(Listeners.CLIENT).items()
    if row.access.each or row.access.whole
}


def test_the_matrix_has_every_api_that_asks():
    assert LEAST.keys() == ASKED.keys()


def listed_rights(key):
    access = ASKED[key].access
    return {right for right in (access.whole, *access.each) if right is not None}


def least_grants(live, listed, refused):
    """The smallest sets of rights with which a request is not refused, each revoked again."""
    enough = []
    for size in range(len(listed) + 1):
        for some in map(set, itertools.combinations(sorted(listed, key=str), size)):
            if any(one <= some for one in enough):
                continue
            allow(live, *some, resource_pattern_type=AclPatternType.PREFIXED)
            if not refused():
                enough.append(some)
                revoke_all(live)
                assert refused(), "revoked on the same connection"
            else:
                revoke_all(live)
    return set(map(frozenset, enough))


@pytest.mark.parametrize("key", LEAST, ids=lambda key: SERVED[key].api.name)
def test_an_api_needs_exactly_what_kafka_needs(live, eve, key):
    found = least_grants(live, listed_rights(key), lambda: is_refused(eve, key))
    assert found == set(map(frozenset, LEAST[key]))


class Variant(NamedTuple):
    """A request of an API that needs other rights than the one of the table."""

    key: int
    least: tuple[set[Right], ...]
    change: Callable[[Any, Live], None] = lambda body, live: None
    version: int | None = None


def with_id(body, live):
    """Name the topics by id, as the newest versions do."""
    known = live.context.metadata.topics[NAME].topic_id
    for topic in getattr(body, "topic_data", None) or body.topics:
        topic.topic_id = known


def with_id_alone(body, live):
    with_id(body, live)
    for topic in body.topics:
        topic.name = None


def transactional_produce(body, live):
    body.transactional_id = NAME
    body.topic_data[0].partition_data[0].records = batch(
        producer_id=0, producer_epoch=0, base_sequence=0, transactional=True
    )


def transactional_produce_by_id(body, live):
    transactional_produce(body, live)
    with_id(body, live)


def of_transactions(body, live):
    body.key_type = 1


def configs_of(kind, name):
    def change(body, live):
        body.resources[0].resource_type, body.resources[0].resource_name = kind, name

    return change


BROKER, CLUSTER_DEFAULTS = (configs_of(ConfigResourceKind.BROKER, name) for name in ("1", ""))
VARIANTS = {
    "Produce in a transaction": Variant(
        0, ({R.WRITE_TRANSACTIONAL_ID, R.WRITE_TOPIC},), transactional_produce
    ),
    "Produce in a transaction by id": Variant(
        0, ({R.WRITE_TRANSACTIONAL_ID, R.WRITE_TOPIC},), transactional_produce_by_id, 13
    ),
    "Produce by id": Variant(0, ({R.WRITE_TOPIC},), with_id, 13),
    "Fetch by id": Variant(1, ({R.READ_TOPIC},), with_id, 13),
    "OffsetCommit by id": Variant(8, ({R.READ_GROUP, R.READ_TOPIC},), with_id, 10),
    "OffsetFetch by id": Variant(
        9,
        ({R.DESCRIBE_GROUP, R.DESCRIBE_TOPIC},),
        lambda body, live: with_id(body.groups[0], live),
        10,
    ),
    "DeleteTopics by id": Variant(20, ({R.DELETE_ON_CLUSTER}, {R.DELETE_TOPIC}), with_id_alone, 6),
    "FindCoordinator of transactions": Variant(
        10, ({R.DESCRIBE_TRANSACTIONAL_ID},), of_transactions
    ),
    "InitProducerId of transactions": Variant(
        22,
        ({R.WRITE_TRANSACTIONAL_ID},),
        lambda body, live: setattr(body, "transactional_id", NAME),
    ),
    "DescribeConfigs of a broker": Variant(32, ({R.DESCRIBE_CLUSTER_CONFIGS},), BROKER),
    "DescribeConfigs of all brokers": Variant(
        32, ({R.DESCRIBE_CLUSTER_CONFIGS},), CLUSTER_DEFAULTS
    ),
    "IncrementalAlterConfigs of a broker": Variant(44, ({R.ALTER_CLUSTER_CONFIGS},), BROKER),
    "IncrementalAlterConfigs of all brokers": Variant(
        44, ({R.ALTER_CLUSTER_CONFIGS},), CLUSTER_DEFAULTS
    ),
    "AlterConfigs of a broker": Variant(33, ({R.ALTER_CLUSTER_CONFIGS},), BROKER),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_of_a_request_needs_exactly_what_kafka_needs(live, eve, name):
    variant = VARIANTS[name]

    def refused():
        return is_refused(
            eve, variant.key, variant.version, lambda body: variant.change(body, live)
        )

    assert least_grants(live, listed_rights(variant.key), refused) == set(
        map(frozenset, variant.least)
    )


def test_a_grant_does_not_help_another_name_host_or_user(live, eve):
    for more in ({"resource_name": "other"}, {"host": "10.0.0.1"}, {"principal": "User:adam"}):
        allow(live, R.READ_TOPIC, **more)
        assert is_refused(eve, 1)
    allow(live, R.READ_TOPIC, resource_name="thi", resource_pattern_type=4)
    assert not is_refused(eve, 1)
    allow(live, R.READ_TOPIC, resource_name="*", permission=AclPermission.DENY)
    assert is_refused(eve, 1), "deny first"


def test_a_warmed_up_producer_is_stopped_by_the_answer_to_the_revocation(live, eve):
    allow(live, R.WRITE_TOPIC)
    for _ in range(5):
        assert eve.produce(NAME, batch()).error_code == 0
    end = live.replica(NAME).log.log_end_offset
    revoke_all(live)
    assert eve.produce(NAME, batch()).error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert live.replica(NAME).log.log_end_offset == end


def test_a_parked_fetch_gets_no_data_after_the_right_is_gone(live, eve, client):
    allow(live, R.READ_TOPIC)
    end = live.replica(NAME).log.log_end_offset
    number = eve.send(fetch_request({(NAME, 0): end}, max_wait_ms=60_000), 12)
    until(lambda: live.replica(NAME).watchers)
    revoke_all(live)
    assert client.produce(NAME, batch()).error_code == 0
    (partition,) = eve.answer(FetchResponse, 12, number).responses[0].partitions
    assert (partition.error_code, bool(partition.records)) == (29, False)


def test_a_fetch_session_ends_with_the_right(live, eve, client):
    allow(live, R.READ_TOPIC)
    body = fetch_request({(NAME, 0): 0})
    body.session_id, body.session_epoch = 0, 0
    assert client.produce(NAME, batch()).error_code == 0
    opened = eve.ask(body, FetchResponse, 12)
    assert opened.session_id
    assert opened.responses[0].partitions[0].records
    revoke_all(live)
    body.topics, body.session_id, body.session_epoch = [], opened.session_id, 1
    (partition,) = eve.ask(body, FetchResponse, 12).responses[0].partitions
    assert (partition.error_code, bool(partition.records)) == (29, False)


def test_a_forbidden_topic_looks_like_one_that_does_not_exist(live, eve):
    def told(name):
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        (topic,) = eve.ask(request, MetadataResponse, 12).topics
        topic.name = ""
        body = fetch_request({(name, 0): 0})
        body.session_id, body.session_epoch = 0, 0
        fetched = eve.ask(body, FetchResponse, 12)
        fetched.responses[0].topic = ""
        (partition,) = fetched.responses[0].partitions
        return str(topic), fetched.session_id, partition.error_code

    assert told(NAME) == told("absent")


def test_the_id_of_a_forbidden_topic_does_not_tell_its_name(live, eve):
    known = live.on_loop(lambda: live.context.metadata.topics[NAME].topic_id)
    wanted = [
        MetadataRequest.MetadataRequestTopic(name=None, topic_id=each)
        for each in (known, bytes(range(16)))
    ]
    forbidden, unknown = eve.ask(MetadataRequest(topics=wanted), MetadataResponse, 12).topics
    assert (forbidden.error_code, forbidden.name) == (E.TOPIC_AUTHORIZATION_FAILED, None)
    assert (unknown.error_code, unknown.name) == (E.UNKNOWN_TOPIC_ID, None)
    assert forbidden.topic_id == known


def test_a_refused_produce_by_id_tells_the_name_to_those_who_may_see_the_topic(live, eve):
    known = live.on_loop(lambda: live.context.metadata.topics[NAME].topic_id)

    def told():
        answer = eve.ask(produce_request(known, batch(), version=13), ProduceResponse, 13)
        (partition,) = answer.responses[0].partition_responses
        assert partition.error_code == E.TOPIC_AUTHORIZATION_FAILED
        return NAME in partition.error_message

    assert not told()
    allow(live, R.READ_TOPIC)
    assert told()


def test_nobody_but_a_broker_acts_as_one(live, eve):
    """Not even with the ACL, or as a super user: the fetch of a follower moves the high watermark."""
    allow(live, R.CLUSTER_ACTION, R.READ_TOPIC)
    request = fetch_request({(NAME, 0): 0})
    request.replica_id = 2
    with live.client() as root:
        for client in (eve, root):
            (partition,) = client.ask(request, FetchResponse, 12).responses[0].partitions
            assert partition.error_code == 29


def test_filters_and_validation_of_acls(live, client):
    bad = [
        creation(R.READ_TOPIC, resource_name=""),
        creation(R.ALTER_CLUSTER, resource_name="mine"),
        creation(R.READ_TOPIC, principal="eve"),
        creation(R.READ_TOPIC, operation=1),
        creation(R.READ_TOPIC, resource_type=77),
        creation(R.READ_TOPIC, resource_pattern_type=2),
        creation(R.READ_TOPIC, resource_name="n" * 4097),
        creation(R.READ_TOPIC, principal="User:" + "n" * 4097),
        creation(R.READ_TOPIC),
    ]
    answer = client.ask(CreateAclsRequest(creations=bad), CreateAclsResponse, 3)
    assert [row.error_code for row in answer.results] == [E.INVALID_REQUEST] * 8 + [0]
    odd = DescribeAclsRequest(resource_type_filter=99, operation=1, permission_type=1)
    assert client.ask(odd, DescribeAclsResponse, 3).error_code == E.INVALID_REQUEST
    every = DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    (found,) = client.ask(every, DescribeAclsResponse, 3).resources
    assert (found.resource_name, [row.principal for row in found.acls]) == (NAME, ["User:eve"])
    assert revoke_all(live) == 1


def test_filters_that_select_the_same_acls_over_and_over_are_refused(live, monkeypatch):
    """An answer of 10,000 times 10,000 ACLs would take gigabytes."""
    monkeypatch.setattr("headwater.broker.handlers.acls.MAX_REPEATED", 3)

    def filters(*names):
        return [
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=1,
                resource_name_filter=name,
                pattern_type_filter=1,
                operation=1,
                permission_type=1,
            )
            for name in names
        ]

    def found(client, *names):
        wanted = DeleteAclsRequest(filters=filters(*names))
        rows = client.ask(wanted, DeleteAclsResponse, 3).filter_results
        return [(row.error_code, len(row.matching_acls)) for row in rows]

    with live.client() as client:
        allow(live, R.READ_TOPIC, R.WRITE_TOPIC)
        for names in ([None] * 4, [NAME] * 4, [None, NAME, None, NAME]):
            assert found(client, *names) == [(E.INVALID_REQUEST, 0)] * 4
        assert found(client, NAME, None, "another") == [(0, 2), (0, 2), (0, 0)]
        assert found(client, None) == [(0, 0)]


def test_refusals_and_changes_are_lines_of_json_without_line_breaks(live, eve, caplog):
    forged = 'x\n{"event": "forged"}'
    live.on_loop(live.context.audit._lines.clear)  # other tests were refused, too
    with caplog.at_level(logging.INFO, "headwater.audit"):
        for _ in range(3):
            request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=forged)])
            eve.ask(request, MetadataResponse, 12)
        allow(live, R.READ_TOPIC)
        revoke_all(live)
    lines = [record.getMessage() for record in caplog.records if record.name == "headwater.audit"]
    assert not any("\n" in line for line in lines)
    refused, created, deleted = map(json.loads, lines)
    assert refused == {
        "event": "refused", "principal": "User:eve", "host": "127.0.0.1", "api": "Metadata",
        "operation": "DESCRIBE", "resource": "TOPIC", "name": forged, "rule": "no ACL allows it",
    }  # fmt: skip
    assert created["event"] == "acls created"
    assert created["changes"] == ["ALLOW User:eve READ from *"]
    assert (deleted["event"], deleted["name"]) == ("acls deleted", "TOPIC LITERAL thing")


def test_a_client_that_makes_up_names_does_not_fill_the_audit_log(live, eve, caplog):
    """A line for each of ten thousand names costs the loop a second and the disk two megabytes."""
    live.on_loop(live.context.audit._lines.clear)
    names = [MetadataRequest.MetadataRequestTopic(name=f"made-up-{n}") for n in range(500)]
    with caplog.at_level(logging.INFO, "headwater.audit"):
        eve.ask(MetadataRequest(topics=names), MetadataResponse, 12)
        with live.client() as other:
            live.log_in(other, Principal("User", "other"))
            request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=NAME)])
            other.ask(request, MetadataResponse, 12)
    lines = [
        json.loads(one.getMessage()) for one in caplog.records if one.name == "headwater.audit"
    ]
    assert [line["event"] for line in lines] == [
        *["refused"] * MOST_LINES,
        "refusals left out",
        "refused",
    ]
    assert [line["principal"] for line in lines[-2:]] == ["User:eve", "User:other"]


def test_acls_survive_a_restart(tmp_path):
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Live(tmp_path, settings) as first:
        allow(first, R.READ_TOPIC, R.READ_GROUP)
        allow(first, R.READ_TOPIC, resource_name="th", resource_pattern_type=4)
    with Live(tmp_path, settings) as second:
        assert revoke_all(second) == 3
