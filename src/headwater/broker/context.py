"""The services of the broker, passed to each handler."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headwater.broker.audit_log import AuditLog
from headwater.broker.control_state import ControlState
from headwater.broker.fetch_session import FetchSessionCache
from headwater.broker.metadata_cache import MetadataCache
from headwater.broker.metrics import BrokerMetrics
from headwater.broker.purgatory import Purgatory, Waiter
from headwater.broker.tick import Tick
from headwater.broker.turns import Turns
from headwater.broker.wall_clock import WallClockWatch
from headwater.config.broker import BrokerSettings
from headwater.config.topic import TopicSettings
from headwater.controller.commands import CreateTopics, TopicCreation, TopicOutcome
from headwater.errors import E, KafkaError
from headwater.observe.rate_limited_log import RateLimitedLog
from headwater.replication.log_dir_moves import LogDirMoves
from headwater.replication.replica import Replica
from headwater.replication.replicas import Replicas
from headwater.replication.throttles import ReplicationThrottles
from headwater.replication.topic_policy import TopicPolicy
from headwater.seams.clock import Clock
from headwater.seams.files import Files
from headwater.seams.randomness import Randomness
from headwater.seams.tasks import Lane
from headwater.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    AclResourceType,
    Authorizer,
)
from headwater.security.broker_handshake import BrokerCredentials
from headwater.security.principals import BROKER
from headwater.security.refusals import name_for_command, refusal_text
from headwater.security.rights import ALTER_CLUSTER, CLUSTER_ACTION, DESCRIBE_TOPIC, Right
from headwater.security.scram_users import ScramUsers
from headwater.transport.listener import ConnectionQuotas
from headwater.transport.memory import MemoryBudget

if TYPE_CHECKING:
    from headwater.broker.acl_changes import AclChanges
    from headwater.broker.alter_partition_loop import AlterPartitionManager
    from headwater.broker.client_quotas import ClientQuotas
    from headwater.broker.config_changes import ConfigChanges
    from headwater.broker.follower_loop import ReplicaFetchers
    from headwater.broker.forwarding import Forwarding
    from headwater.broker.listener_sasl import Offered
    from headwater.broker.listener_tls import ListenerTls
    from headwater.broker.marker_loop import MarkerLoop
    from headwater.broker.peers import Peers
    from headwater.broker.producer_ids import ProducerIdBlocks
    from headwater.broker.request import Request
    from headwater.broker.token_changes import TokenChanges
    from headwater.broker.token_keys import TokenKeys
    from headwater.broker.transaction_verifier import TransactionVerifier
    from headwater.controller.controller_loop import ControllerLoop
    from headwater.coordination.coordinators import Coordinators
    from headwater.coordination.group_coordinator import GroupCoordinator
    from headwater.coordination.transaction_coordinator import TransactionCoordinator

log = logging.getLogger("headwater.server")


class OffLoop(Protocol):
    """Runs slow calls on threads."""

    def __call__(
        self,
        call: Callable[[], object],
        done: Callable[[object, Exception | None], None],
        lane: Lane = Lane.READ,
    ) -> None:
        """Run `call`; pass its result or failure to `done` on the loop, unless the broker stops."""


@dataclass(slots=True)
class Context:
    """The broker's services and state for handlers.

    `generation` grows with every change of metadata, settings or access rules. Code that caches a
    lookup across requests keeps the generation with it and drops the entry when they differ.
    """

    node_id: int
    settings: BrokerSettings
    clock: Clock
    wall_clock: WallClockWatch
    """What deletion by age asks for the time."""
    randomness: Randomness
    files: Files
    metadata: MetadataCache
    control: ControlState
    tick: Tick
    connection_quotas: ConnectionQuotas
    peer_log: RateLimitedLog
    authorizer: Authorizer
    audit: AuditLog
    purgatory: Purgatory
    sessions: FetchSessionCache
    off_loop: "OffLoop"
    metrics: BrokerMetrics
    credentials: BrokerCredentials
    """This broker's identity and secret towards other brokers."""
    users: ScramUsers
    sasl: "Mapping[str, Offered]"
    """By listener: the SASL mechanisms that it offers."""
    memory: MemoryBudget
    """The memory of all connections; it limits reading from them."""
    memory_before_login: MemoryBudget
    """The budget of unauthenticated connections, so that they cannot use up the other one."""
    throttles: ReplicationThrottles
    """What replicas that catch up may take."""
    listener_tls: "Mapping[str, ListenerTls]" = field(default_factory=dict)
    """By listener with TLS: its key store."""
    token_keys: "Sequence[TokenKeys]" = ()
    """The keys of identity providers."""
    replicas: Replicas = field(init=False)
    controller: "ControllerLoop" = field(init=False)
    peers: "Peers" = field(init=False)
    forwarding: "Forwarding | None" = None
    """Forwards requests to the controller; None without a cluster."""
    replica_fetchers: "ReplicaFetchers" = field(init=False)
    log_dir_moves: LogDirMoves = field(init=False)
    isr_proposals: "AlterPartitionManager" = field(init=False)
    coordinators: "Coordinators" = field(init=False)
    groups: "GroupCoordinator" = field(init=False)
    transactions: "TransactionCoordinator" = field(init=False)
    markers: "MarkerLoop" = field(init=False)
    verifier: "TransactionVerifier" = field(init=False)
    producer_ids: "ProducerIdBlocks" = field(init=False)
    configs: "ConfigChanges" = field(init=False)
    topics_deleted: Callable[[Iterable[str]], None] = field(init=False)
    """Called with deleted topics."""
    acls: "AclChanges | None" = None
    """The ACLs of the cluster; None without an authorizer."""
    tokens: "TokenChanges | None" = None
    """The delegation tokens of the cluster; None without delegation.token.secret.key."""
    client_quotas: "ClientQuotas" = field(init=False)
    quotas: "ClientQuotas | None" = None
    """The same if a client has a quota, else None."""
    turns: Turns = field(default_factory=Turns)
    """Runs long requests in steps, so that they do not hold the event loop."""
    serving: bool = False
    """Whether this broker knows what it leads; connections wait until then."""
    topic_overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    generation: int = 0
    moved_starts: dict[Replica, None] = field(default_factory=dict)
    """Replicas whose log start moved and may not be in the checkpoint: DeleteRecords waits for that."""

    def lets_brokers_in(self, listener: str) -> bool:
        """Return whether other brokers with the same settings use this listener."""
        return listener in self.settings.listeners_of_brokers

    def permits(self, request: "Request", right: Right, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client has a right that its API's row lists under `each`."""
        _require_listed(request, right)
        return self.authorize(request, right, name)

    def sees(self, request: "Request", right: Right, name: str = CLUSTER_NAME) -> bool:
        """Like `permits`, but a refusal is not logged: for resources that are hidden, or if another right is enough.

        The audit log has no line about it.
        """
        _require_listed(request, right)
        return self._allows(request, right, name)

    def permits_any(self, request: "Request", right: Right) -> bool:
        """Return whether the client may have the right to some resource of the type."""
        _require_listed(request, right)
        peer = request.connection
        return peer.principal.kind == BROKER or self.authorizer.authorize_any(
            peer.principal, peer.host, right.operation, right.resource_type
        )

    def authorize(self, request: "Request", right: Right, name: str) -> bool:
        """Return whether the client of `request` has the right to the resource."""
        allowed = self._allows(request, right, name)
        if not allowed:
            self._note_refusal(request, right, name)
        return allowed

    def _allows(self, request: "Request", right: Right, name: str) -> bool:
        """Brokers may do everything; nobody else acts as a broker, whatever the ACLs say."""
        peer = request.connection
        principal = peer.principal
        if principal.kind == BROKER:
            return True
        return right is not CLUSTER_ACTION and self.authorizer.authorize(
            principal, peer.host, right.operation, right.resource_type, name
        )

    def _note_refusal(self, request: "Request", right: Right, name: str) -> None:
        peer = request.connection

        def rule() -> str:
            if right is CLUSTER_ACTION:
                return "only brokers act as brokers"
            return self.authorizer.reason(
                peer.principal, peer.host, right.operation, right.resource_type, name
            )

        self.audit.refused(request, right.operation, right.resource_type, name, rule)

    def note_change(
        self,
        request: "Request",
        event: str,
        name: str,
        details: Iterable[str] = (),
        *,
        right: Right = ALTER_CLUSTER,
        resource: str = CLUSTER_NAME,
    ) -> None:
        """Write a change to the audit log, with the rule by which the client has the right to it."""
        peer = request.connection
        rule = self.authorizer.reason(
            peer.principal, peer.host, right.operation, right.resource_type, resource
        )
        self.audit.changed(request, event, name, rule, details)

    def authorized_operations(
        self, request: "Request", resource_type: AclResourceType, name: str
    ) -> int:
        """Return the bit field of operations that the client may perform on a resource.

        Without access rules all operations are shown, as Kafka does, though acting as a broker is
        refused to clients.
        """
        peer = request.connection
        return sum(
            1 << operation
            for operation in OPERATIONS_ON[resource_type]
            if peer.principal.kind == BROKER
            or self.authorizer.authorize(peer.principal, peer.host, operation, resource_type, name)
        )

    def refusal(
        self, request: "Request", right: Right, name: str = CLUSTER_NAME, *, by_id: bool = False
    ) -> KafkaError:
        """Return the error for a client without the right, with the command that grants it.

        A client that knows the id of a topic is not told its name, unless it may see the topic.
        """
        if by_id and not self._allows(request, DESCRIBE_TOPIC, name):
            return KafkaError(right.refusal)
        return KafkaError(
            right.refusal,
            refusal_text(
                name_for_command(request.connection.principal),
                right.operation,
                right.resource_type,
                name,
                right.refusal,
            ),
        )

    def park(self, deadline_ms: int, waiter: Waiter) -> None:
        """Wake the waiter at the deadline, if nothing does before."""
        self.purgatory.park(deadline_ms, waiter)

    def topic_settings(self, topic: str) -> TopicSettings:
        """Return the effective settings of a topic."""
        return TopicSettings.resolve(self.settings, self.topic_overrides.get(topic, {}))

    def policy(self, topic: str) -> TopicPolicy:
        """Return the resolved policy of a topic."""
        return TopicPolicy.of(self.topic_settings(topic), self.settings.log_validate_records)

    def create_topic_on_demand(self, name: str) -> None:
        """Create a missing topic that a client requested, with the broker's defaults."""

        def created(outcomes: list[TopicOutcome]) -> None:
            for outcome in outcomes:
                if outcome.error not in (E.NONE, E.TOPIC_ALREADY_EXISTS):
                    log.warning(
                        "topic %s could not be created on demand: %s", name, outcome.message
                    )

        self.create_topics([TopicCreation(name, -1, -1)], created)

    def create_topics(
        self, topics: list[TopicCreation], reply: Callable[[list[TopicOutcome]], None]
    ) -> None:
        """Create topics through the controller, here or on another broker."""
        if self.forwarding is not None and self.forwarding.needed:
            self.forwarding.create_topics(topics, reply)
        else:
            self.controller.submit(CreateTopics(topics), reply)

    def changed(self) -> None:
        """Invalidate cached lookups: metadata, settings or access rules changed."""
        self.generation += 1


def _require_listed(request: "Request", right: Right) -> None:
    if right not in request.row.access.each:
        raise LookupError(f"{request.row.api.name} does not list {right} in broker/apis.py")
