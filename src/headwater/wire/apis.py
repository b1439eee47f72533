"""The API table: the messages of each key, and which of their versions are served.

A version that is declared is not yet served. Served are the versions that Kafka 4.3 serves as
stable, and older ones that clients still send where they cost nothing. ApiVersions, dispatch and
the documentation derive from this table.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headwater.wire.messages import (
    acls,
    cluster,
    configs,
    control,
    envelope,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    producers,
    quotas,
    reassignments,
    sasl,
    tokens,
    topics,
    transactions,
    users,
)
from headwater.wire.primitives import WireError
from headwater.wire.schema import Struct
from headwater.wire.versions import NEWEST, Versions

SASL_HANDSHAKE = 17
API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7
PRODUCE = 0
FETCH = 1
CREATE_TOPICS = 19
DELETE_TOPICS = 20
CREATE_ACLS = 30
DELETE_ACLS = 31
ALTER_CONFIGS = 33
CREATE_PARTITIONS = 37
INCREMENTAL_ALTER_CONFIGS = 44
ALTER_CLIENT_QUOTAS = 49
ALTER_USER_SCRAM_CREDENTIALS = 51


class Api(NamedTuple):
    """One row: dispatch accepts `served`; ApiVersions reports `advertised`, None for internal APIs."""

    key: int
    name: str
    request: type[Struct]
    response: type[Struct]
    served: Versions
    advertised: Versions | None
    flexible_from: int


def _api(request: type[Struct], response: type[Struct], served: str) -> Api:
    schema = request.__schema__
    versions = Versions.parse(served)
    flexible_from = schema.flexible.lowest if schema.flexible.highest else NEWEST + 1
    name = schema.name.removesuffix("Request")
    return Api(schema.api_key or 0, name, request, response, versions, versions, flexible_from)


def _produce() -> Api:
    # Advertised from 0, because librdkafka up to 2.8 turns compression off otherwise
    # (KAFKA-18659). A client that does send 0-2 is disconnected.
    api = _api(produce.ProduceRequest, produce.ProduceResponse, "3-13")
    return api._replace(advertised=Versions(0, api.served.highest))


def _internal(request: type[Struct], response: type[Struct], served: str) -> Api:
    return _api(request, response, served)._replace(advertised=None)


_ROWS = [
    _produce(),
    _api(fetch.FetchRequest, fetch.FetchResponse, "4-18"),
    _api(offsets.ListOffsetsRequest, offsets.ListOffsetsResponse, "1-11"),
    _api(metadata.MetadataRequest, metadata.MetadataResponse, "0-13"),
    _internal(control.LeaderAndIsrRequest, control.LeaderAndIsrResponse, "0-7"),
    _internal(control.StopReplicaRequest, control.StopReplicaResponse, "0-4"),
    _internal(control.UpdateMetadataRequest, control.UpdateMetadataResponse, "0-8"),
    _internal(control.ControlledShutdownRequest, control.ControlledShutdownResponse, "0-3"),
    _api(offsets.OffsetCommitRequest, offsets.OffsetCommitResponse, "2-10"),
    _api(offsets.OffsetFetchRequest, offsets.OffsetFetchResponse, "1-10"),
    _api(groups.FindCoordinatorRequest, groups.FindCoordinatorResponse, "0-6"),
    _api(groups.JoinGroupRequest, groups.JoinGroupResponse, "0-9"),
    _api(groups.HeartbeatRequest, groups.HeartbeatResponse, "0-4"),
    _api(groups.LeaveGroupRequest, groups.LeaveGroupResponse, "0-5"),
    _api(groups.SyncGroupRequest, groups.SyncGroupResponse, "0-5"),
    _api(groups.DescribeGroupsRequest, groups.DescribeGroupsResponse, "0-6"),
    _api(groups.ListGroupsRequest, groups.ListGroupsResponse, "0-5"),
    _api(sasl.SaslHandshakeRequest, sasl.SaslHandshakeResponse, "0-1"),
    _api(cluster.ApiVersionsRequest, cluster.ApiVersionsResponse, "0-4"),
    _api(topics.CreateTopicsRequest, topics.CreateTopicsResponse, "2-7"),
    _api(topics.DeleteTopicsRequest, topics.DeleteTopicsResponse, "1-6"),
    _api(topics.DeleteRecordsRequest, topics.DeleteRecordsResponse, "0-2"),
    _api(producers.InitProducerIdRequest, producers.InitProducerIdResponse, "0-5"),
    _api(offsets.OffsetForLeaderEpochRequest, offsets.OffsetForLeaderEpochResponse, "2-4"),
    _api(transactions.AddPartitionsToTxnRequest, transactions.AddPartitionsToTxnResponse, "0-5"),
    _api(transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse, "0-4"),
    _api(transactions.EndTxnRequest, transactions.EndTxnResponse, "0-5"),
    _api(transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse, "1-2"),
    _api(transactions.TxnOffsetCommitRequest, transactions.TxnOffsetCommitResponse, "0-5"),
    _api(acls.DescribeAclsRequest, acls.DescribeAclsResponse, "1-3"),
    _api(acls.CreateAclsRequest, acls.CreateAclsResponse, "1-3"),
    _api(acls.DeleteAclsRequest, acls.DeleteAclsResponse, "1-3"),
    _api(configs.DescribeConfigsRequest, configs.DescribeConfigsResponse, "1-4"),
    _api(configs.AlterConfigsRequest, configs.AlterConfigsResponse, "0-2"),
    _api(cluster.AlterReplicaLogDirsRequest, cluster.AlterReplicaLogDirsResponse, "1-2"),
    _api(cluster.DescribeLogDirsRequest, cluster.DescribeLogDirsResponse, "1-5"),
    _api(sasl.SaslAuthenticateRequest, sasl.SaslAuthenticateResponse, "0-2"),
    _api(topics.CreatePartitionsRequest, topics.CreatePartitionsResponse, "0-3"),
    _api(tokens.CreateDelegationTokenRequest, tokens.CreateDelegationTokenResponse, "1-3"),
    _api(tokens.RenewDelegationTokenRequest, tokens.RenewDelegationTokenResponse, "1-2"),
    _api(tokens.ExpireDelegationTokenRequest, tokens.ExpireDelegationTokenResponse, "1-2"),
    _api(tokens.DescribeDelegationTokenRequest, tokens.DescribeDelegationTokenResponse, "1-3"),
    _api(groups.DeleteGroupsRequest, groups.DeleteGroupsResponse, "0-2"),
    _api(configs.IncrementalAlterConfigsRequest, configs.IncrementalAlterConfigsResponse, "0-1"),
    _api(reassignments.ElectLeadersRequest, reassignments.ElectLeadersResponse, "0-2"),
    _api(
        reassignments.AlterPartitionReassignmentsRequest,
        reassignments.AlterPartitionReassignmentsResponse,
        "0-1",
    ),
    _api(
        reassignments.ListPartitionReassignmentsRequest,
        reassignments.ListPartitionReassignmentsResponse,
        "0",
    ),
    _api(offsets.OffsetDeleteRequest, offsets.OffsetDeleteResponse, "0"),
    _api(quotas.DescribeClientQuotasRequest, quotas.DescribeClientQuotasResponse, "0-1"),
    _api(quotas.AlterClientQuotasRequest, quotas.AlterClientQuotasResponse, "0-1"),
    _api(
        users.DescribeUserScramCredentialsRequest, users.DescribeUserScramCredentialsResponse, "0"
    ),
    _api(users.AlterUserScramCredentialsRequest, users.AlterUserScramCredentialsResponse, "0"),
    _internal(control.AlterPartitionRequest, control.AlterPartitionResponse, "0-3"),
    _internal(envelope.EnvelopeRequest, envelope.EnvelopeResponse, "0"),
    _api(cluster.DescribeClusterRequest, cluster.DescribeClusterResponse, "0-2"),
    _api(producers.DescribeProducersRequest, producers.DescribeProducersResponse, "0"),
    _api(transactions.DescribeTransactionsRequest, transactions.DescribeTransactionsResponse, "0"),
    _api(transactions.ListTransactionsRequest, transactions.ListTransactionsResponse, "0-2"),
    _api(configs.ListConfigResourcesRequest, configs.ListConfigResourcesResponse, "0-1"),
    _api(metadata.DescribeTopicPartitionsRequest, metadata.DescribeTopicPartitionsResponse, "0"),
]

API: dict[int, Api] = {row.key: row for row in _ROWS}


def advertised() -> Iterator[tuple[Api, int, int]]:
    """Yield each public API with its first and last advertised version, by key."""
    for _, api in sorted(API.items()):
        if api.advertised is not None:
            yield api, *api.advertised


def request_header_version(key: int, version: int) -> int:
    """Return the version of a request's header; ControlledShutdown 0 predates client ids."""
    if key == CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if version >= _known(key).flexible_from else 1


def response_header_version(key: int, version: int) -> int:
    """Return the version of a response's header."""
    if key == API_VERSIONS:
        return 0  # a client that guessed the version wrong must be able to read the answer
    return 1 if version >= _known(key).flexible_from else 0


def key_of(message: type[Struct]) -> int:
    """Return the key of the API that a request or response belongs to."""
    key = message.__schema__.api_key
    if key is None:
        raise TypeError(f"{message.__schema__.name} does not belong to an API")
    return key


def _known(key: int) -> Api:
    if key not in API:
        raise WireError(f"no API has the key {key}")
    return API[key]
