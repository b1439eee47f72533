"""Chooses the fast path of produce requests: the compiled one if it was built.

Both stage the same bytes and give the same answers. HEADWATER_CODEC=pure or =compiled selects one, as
it does for the record codec.
"""

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.broker.produce_routes import route_of
from headwater.broker.request import Request
from headwater.records.compiled import choose
from headwater.replication.replica_host import TransactionalWrite
from headwater.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from headwater.broker.pure_fast_produce import FastRoute

NAME, _chosen = choose("headwater.broker._fast_produce", "headwater.broker.pure_fast_produce")
"""Which of the two is in use: "compiled" or "pure"."""
make_route: "type[FastRoute]" = _chosen.FastRoute


def remember_route(
    context: Context,
    request: Request,
    body: ProduceRequest,
    transaction: TransactionalWrite | None,
) -> None:
    """Let the next request of this connection take the fast path, if it is like this one."""
    route = route_of(context, request, body, transaction)
    if route is not None:
        request.connection.route = make_route(context, request.connection, route)
