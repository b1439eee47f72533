"""One row per API that this broker serves; dispatch derives everything else from it."""

from collections.abc import Callable
from enum import Flag, auto
from typing import Any, NamedTuple, cast

from headwater.broker import complete_rows
from headwater.broker.context import Context
from headwater.broker.handlers import (
    acls,
    api_versions,
    broker_requests,
    cluster,
    configs,
    control,
    coordinators,
    delete_records,
    envelope,
    fetch,
    fetch_readers,
    group_offsets,
    groups,
    log_dirs,
    markers,
    metadata,
    offsets,
    produce,
    producers,
    quotas,
    reassignments,
    sasl,
    tokens,
    topics,
    transactional_offsets,
    transactions,
    users,
)
from headwater.broker.turns import Steps
from headwater.errors import E, KafkaError
from headwater.security.acls import CLUSTER_NAME
from headwater.security.quotas import QuotaKind
from headwater.security.rights import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CLUSTER_ACTION,
    CREATE_ON_CLUSTER,
    CREATE_TOKENS_FOR_USER,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_ON_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOKEN,
    DESCRIBE_TOKENS_OF_USER,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TRANSACTIONAL_ID,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Right,
)
from headwater.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_USER_SCRAM_CREDENTIALS,
    API,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    Api,
)
from headwater.wire.schema import Struct

Handler = Callable[[Context, Any, Any], Struct | Steps[Struct | None] | None]
"""A handler is a generator if its work grows with its request or response: see `turns`."""


class Listeners(Flag):
    """Who may use an API.

    CLIENT to everyone, CONTROL to brokers that have proven who they are.
    """

    CLIENT = auto()
    CONTROL = auto()


class Access(NamedTuple):
    """The rights that an API needs.

    `whole` is checked before the handler runs, on the resource that `of` finds in the request; a
    request without such a resource is not checked: its handler refuses it for another reason.
    Rights in `each` are checked by the handler with `Context.permits`, resource by resource,
    because the response has a result for each of them. An API that needs no right says why.
    """

    whole: Right | None = None
    of: Callable[[Any, Any], str | None] | None = None
    refuse: Callable[[Any, Any, E], Struct] | None = None
    each: frozenset[Right] = frozenset()
    open_because: str = ""


MAX_CHANGED = 10_000
"""The most array items in a request that changes topics, configs, users or ACLs. Kafka's controller
refuses requests that would create more records than this, with one or more records per item."""
_CHANGES_OF_METADATA = frozenset(
    {
        CREATE_TOPICS,
        DELETE_TOPICS,
        CREATE_PARTITIONS,
        ALTER_CONFIGS,
        INCREMENTAL_ALTER_CONFIGS,
        ALTER_CLIENT_QUOTAS,
        ALTER_USER_SCRAM_CREDENTIALS,
        CREATE_ACLS,
        DELETE_ACLS,
    }
)


class ServedApi(NamedTuple):
    """One row."""

    api: Api
    handler: Handler
    access: Access
    quota: QuotaKind = QuotaKind.REQUEST
    listeners: Listeners = Listeners.CLIENT
    # Whether a client may send it before it has authenticated.
    before_authentication: bool = False
    # Whether only the controller can answer it: other brokers forward it.
    by_controller: bool = False
    # Whether a broker that forwarded it applies the change before it answers.
    applied_first: bool = False
    # Returns why a request with this number of bytes is refused undecoded; "" if it is not.
    large_problem: Callable[[Context, int], str] | None = None

    @property
    def is_for_brokers(self) -> bool:
        """Whether clients are refused."""
        return self.listeners is Listeners.CONTROL

    def most_elements(self, context: Context) -> int:
        """Return how many array items a request may have."""
        limit = context.settings.max_request_elements
        return min(limit, MAX_CHANGED) if self.api.key in _CHANGES_OF_METADATA else limit

    def answer(
        self, context: Context, request: Any, body: Any
    ) -> Struct | Steps[Struct | None] | None:
        """Check the right to the whole request, then call the handler."""
        right, of = self.access.whole, self.access.of
        if right is not None and of is not None:
            name = of(request, body)
            if name is not None and not context.authorize(request, right, name):
                refusal = context.refusal(request, right, name)
                request.reply_in_turns(self._refusal(request, body, refusal))
                return None
        return self.handler(context, request, body)

    def refusal_undecoded(self, request: Any) -> Struct:
        """Return the response for a request that is too large to be decoded."""
        assert self.access.refuse is not None
        return self.access.refuse(request, self.api.request(), E.INVALID_REQUEST)

    def _refusal(self, request: Any, body: Any, why: KafkaError) -> Struct:
        response: Any
        if self.access.refuse is not None:
            response = self.access.refuse(request, body, why.code)
        else:
            response = self.api.response()
            response.error_code = why.code
        if hasattr(response, "error_message"):
            response.error_message = why.message
        return cast("Struct", response)


# -- access


def _each(*rights: Right) -> Access:
    return Access(each=frozenset(rights))


def _group(
    right: Right,
    *each: Right,
    of: Callable[[Any, Any], str | None] | None = None,
    refuse: Callable[[Any, Any, E], Struct] | None = None,
) -> Access:
    """The request is about one group."""
    return Access(right, of or _group_id, refuse, frozenset(each))


def _cluster(
    right: Right,
    *each: Right,
    of: Callable[[Any, Any], str | None] | None = None,
    refuse: Callable[[Any, Any, E], Struct] | None = None,
) -> Access:
    return Access(right, of or _the_cluster, refuse, frozenset(each))


def _group_id(request: Any, body: Any) -> str:
    group_id: str = body.group_id
    return group_id


def _the_cluster(request: Any, body: Any) -> str:
    return CLUSTER_NAME


# -- the table

_ROWS = (
    ServedApi(
        API[0],
        produce.handle_produce,
        _each(WRITE_TOPIC, WRITE_TRANSACTIONAL_ID),
        QuotaKind.PRODUCE,
    ),
    ServedApi(
        API[1],
        fetch.handle_fetch,
        _cluster(
            CLUSTER_ACTION,
            READ_TOPIC,
            of=fetch_readers.cluster_of_follower,
            refuse=fetch_readers.refuse_follower,
        ),
        QuotaKind.FETCH,
    ),
    ServedApi(API[2], offsets.handle_list_offsets, _each(DESCRIBE_TOPIC)),
    ServedApi(
        API[3],
        metadata.handle_metadata,
        _each(DESCRIBE_TOPIC, CREATE_ON_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER),
    ),
    ServedApi(
        API[4],
        control.handle_leader_and_isr,
        _cluster(CLUSTER_ACTION),
        QuotaKind.EXEMPT,
        Listeners.CONTROL,
    ),
    ServedApi(
        API[5],
        control.handle_stop_replica,
        _cluster(CLUSTER_ACTION),
        QuotaKind.EXEMPT,
        Listeners.CONTROL,
    ),
    ServedApi(
        API[6],
        control.handle_update_metadata,
        _cluster(CLUSTER_ACTION),
        QuotaKind.EXEMPT,
        Listeners.CONTROL,
    ),
    ServedApi(
        API[7],
        broker_requests.handle_controlled_shutdown,
        _cluster(CLUSTER_ACTION),
        QuotaKind.EXEMPT,
        Listeners.CONTROL,
    ),
    ServedApi(
        API[8],
        group_offsets.handle_offset_commit,
        _group(READ_GROUP, READ_TOPIC, refuse=group_offsets.refuse_commit),
    ),
    ServedApi(API[9], group_offsets.handle_offset_fetch, _each(DESCRIBE_GROUP, DESCRIBE_TOPIC)),
    ServedApi(
        API[10],
        coordinators.handle_find_coordinator,
        _each(DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID),
    ),
    ServedApi(
        API[11],
        groups.handle_join_group,
        _group(READ_GROUP, refuse=groups.refuse_join),
        large_problem=groups.large_join_problem,
    ),
    ServedApi(API[12], groups.handle_heartbeat, _group(READ_GROUP)),
    ServedApi(API[13], groups.handle_leave_group, _group(READ_GROUP)),
    ServedApi(API[14], groups.handle_sync_group, _group(READ_GROUP, of=groups.group_of_sync)),
    ServedApi(API[15], groups.handle_describe_groups, _each(DESCRIBE_GROUP)),
    ServedApi(API[16], groups.handle_list_groups, _each(DESCRIBE_CLUSTER, DESCRIBE_GROUP)),
    ServedApi(
        API[17],
        sasl.handle_sasl_handshake,
        Access(open_because="a client says with it who it is"),
        QuotaKind.EXEMPT,
        before_authentication=True,
    ),
    ServedApi(
        API[18],
        api_versions.handle_api_versions,
        Access(open_because="a client asks for versions before it authenticates"),
        before_authentication=True,
    ),
    ServedApi(
        API[19],
        topics.handle_create_topics,
        _each(CREATE_ON_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS),
        QuotaKind.CONTROLLER_MUTATION,
    ),
    ServedApi(
        API[20],
        topics.handle_delete_topics,
        _each(DELETE_ON_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC),
        QuotaKind.CONTROLLER_MUTATION,
    ),
    ServedApi(API[21], delete_records.handle_delete_records, _each(DELETE_TOPIC)),
    ServedApi(
        API[22],
        producers.handle_init_producer_id,
        _each(IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID),
    ),
    ServedApi(API[23], offsets.handle_offset_for_leader_epoch, _each(DESCRIBE_TOPIC)),
    ServedApi(
        API[24],
        transactions.handle_add_partitions_to_txn,
        _cluster(
            CLUSTER_ACTION,
            WRITE_TRANSACTIONAL_ID,
            WRITE_TOPIC,
            of=transactions.cluster_of_adding_broker,
        ),
    ),
    ServedApi(
        API[25],
        transactions.handle_add_offsets_to_txn,
        _each(WRITE_TRANSACTIONAL_ID, READ_GROUP),
    ),
    ServedApi(
        API[26],
        transactions.handle_end_txn,
        Access(WRITE_TRANSACTIONAL_ID, transactions.transactional_id_of),
    ),
    ServedApi(
        API[27],
        markers.handle_write_txn_markers,
        _each(ALTER_CLUSTER, CLUSTER_ACTION),
        QuotaKind.EXEMPT,
    ),
    ServedApi(
        API[28],
        transactional_offsets.handle_txn_offset_commit,
        Access(
            WRITE_TRANSACTIONAL_ID,
            transactional_offsets.transactional_id_of_commit,
            transactional_offsets.refuse_txn_commit,
            frozenset({READ_GROUP, READ_TOPIC}),
        ),
    ),
    ServedApi(API[29], acls.handle_describe_acls, _cluster(DESCRIBE_CLUSTER)),
    ServedApi(
        API[30],
        acls.handle_create_acls,
        _cluster(ALTER_CLUSTER, refuse=acls.refuse_creations),
    ),
    ServedApi(
        API[31],
        acls.handle_delete_acls,
        _cluster(ALTER_CLUSTER, refuse=acls.refuse_deletions),
    ),
    ServedApi(
        API[32],
        configs.handle_describe_configs,
        _each(DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS),
    ),
    ServedApi(
        API[33],
        configs.handle_alter_configs,
        _each(ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS),
    ),
    ServedApi(
        API[34],
        log_dirs.handle_alter_replica_log_dirs,
        _cluster(ALTER_CLUSTER, refuse=log_dirs.refuse_moves),
    ),
    ServedApi(API[35], log_dirs.handle_describe_log_dirs, _cluster(DESCRIBE_CLUSTER)),
    ServedApi(
        API[36],
        sasl.handle_sasl_authenticate,
        Access(open_because="a client says with it who it is"),
        QuotaKind.EXEMPT,
        before_authentication=True,
    ),
    ServedApi(
        API[37],
        topics.handle_create_partitions,
        _each(ALTER_TOPIC),
        QuotaKind.CONTROLLER_MUTATION,
    ),
    ServedApi(API[38], tokens.handle_create_token, _each(CREATE_TOKENS_FOR_USER)),
    ServedApi(
        API[39],
        tokens.handle_renew_token,
        Access(open_because="a token names who may renew it"),
    ),
    ServedApi(
        API[40],
        tokens.handle_expire_token,
        Access(open_because="a token names who may end it"),
    ),
    ServedApi(
        API[41],
        tokens.handle_describe_tokens,
        _each(DESCRIBE_TOKEN, DESCRIBE_TOKENS_OF_USER),
    ),
    ServedApi(API[42], groups.handle_delete_groups, _each(DELETE_GROUP)),
    ServedApi(
        API[43],
        reassignments.handle_elect_leaders,
        _cluster(ALTER_CLUSTER, refuse=reassignments.refuse_election),
    ),
    ServedApi(
        API[44],
        configs.handle_incremental_alter_configs,
        _each(ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS),
    ),
    ServedApi(API[45], reassignments.handle_alter_partition_reassignments, _cluster(ALTER_CLUSTER)),
    ServedApi(
        API[46], reassignments.handle_list_partition_reassignments, _cluster(DESCRIBE_CLUSTER)
    ),
    ServedApi(API[47], group_offsets.handle_offset_delete, _group(DELETE_GROUP, READ_TOPIC)),
    ServedApi(
        API[48],
        quotas.handle_describe_client_quotas,
        _cluster(DESCRIBE_CLUSTER_CONFIGS, refuse=quotas.refuse_describe_quotas),
    ),
    ServedApi(
        API[49],
        quotas.handle_alter_client_quotas,
        _cluster(ALTER_CLUSTER_CONFIGS, refuse=quotas.refuse_alter_quotas),
    ),
    ServedApi(API[50], users.handle_describe_users, _cluster(DESCRIBE_CLUSTER)),
    ServedApi(
        API[51], users.handle_alter_users, _cluster(ALTER_CLUSTER, refuse=users.refuse_alter)
    ),
    ServedApi(
        API[56],
        broker_requests.handle_alter_partition,
        _cluster(CLUSTER_ACTION),
        QuotaKind.EXEMPT,
        Listeners.CONTROL,
    ),
    ServedApi(
        API[58],
        envelope.handle_envelope,
        _cluster(CLUSTER_ACTION),
        QuotaKind.EXEMPT,
        Listeners.CONTROL,
    ),
    ServedApi(API[60], cluster.handle_describe_cluster, _each(DESCRIBE_CLUSTER)),
    ServedApi(API[61], producers.handle_describe_producers, _each(READ_TOPIC)),
    ServedApi(
        API[65],
        transactions.handle_describe_transactions,
        _each(DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC),
    ),
    ServedApi(API[66], transactions.handle_list_transactions, _each(DESCRIBE_TRANSACTIONAL_ID)),
    ServedApi(API[74], configs.handle_list_config_resources, _cluster(DESCRIBE_CLUSTER_CONFIGS)),
    ServedApi(API[75], metadata.handle_describe_topic_partitions, _each(DESCRIBE_TOPIC)),
)

_BY_CONTROLLER = frozenset({19, 20, 33, 37, 43, 44, 45, 46, 49, 50, 51})
_APPLIED_FIRST = frozenset({33, 44, 49, 51})

SERVED: dict[int, ServedApi] = {
    key: row._replace(by_controller=key in _BY_CONTROLLER, applied_first=key in _APPLIED_FIRST)
    for key, row in complete_rows.by_key(_ROWS, API).items()
}

FORWARDED = {key: row for key, row in SERVED.items() if row.by_controller}
"""The APIs that a broker forwards to the controller."""


BEFORE_AUTHENTICATION = {key for key, row in SERVED.items() if row.before_authentication}
"""The APIs that a peer may use before it has authenticated."""


def served_on(listeners: Listeners) -> dict[int, ServedApi]:
    """The rows of one kind of listener."""
    return {key: row for key, row in SERVED.items() if row.listeners & listeners}
