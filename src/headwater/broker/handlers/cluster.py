"""DescribeCluster: the cluster's id, its controller, its brokers."""

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.errors import E
from headwater.security.acls import CLUSTER_NAME, AclResourceType
from headwater.security.rights import DESCRIBE_CLUSTER
from headwater.wire.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2


def handle_describe_cluster(
    context: Context, request: Request, body: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Return every live broker with the client's listener.

    1: a client that requests controllers gets MISMATCHED_ENDPOINT_TYPE. 2: no broker is fenced.
    """
    if body.endpoint_type != BROKERS:
        return _wrong_kind(body.endpoint_type)
    metadata = context.metadata
    listener = request.connection.listener
    response = DescribeClusterResponse(
        cluster_id=metadata.cluster_id, controller_id=metadata.controller_id
    )
    for broker_id, broker in sorted(metadata.brokers.items()):
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None:
            response.brokers.append(
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=broker_id, host=endpoint[0], port=endpoint[1], rack=broker.rack
                )
            )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context, request)
    return response


def _wrong_kind(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        error, message = (
            E.MISMATCHED_ENDPOINT_TYPE,
            "this is a listener of a broker, not of a controller: connect to a controller",
        )
    else:
        error, message = (
            E.UNSUPPORTED_ENDPOINT_TYPE,
            f"unknown endpoint type {endpoint_type}",
        )
    return DescribeClusterResponse(error_code=error, error_message=message)


def cluster_operations(context: Context, request: Request) -> int:
    """Return the bit field of the client's operations on the cluster; 0 without Describe."""
    if not context.sees(request, DESCRIBE_CLUSTER):
        return 0
    return context.authorized_operations(request, AclResourceType.CLUSTER, CLUSTER_NAME)
