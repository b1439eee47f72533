"""Builds one broker from its settings, its seams and a metadata store. Nothing runs yet."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext

from headwater.broker.acl_changes import AclChanges
from headwater.broker.alter_partition_loop import AlterPartitionManager
from headwater.broker.apis import SERVED
from headwater.broker.audit_log import AuditLog
from headwater.broker.cleaner_loop import LogCleaner
from headwater.broker.client_quotas import ClientQuotas
from headwater.broker.compose_coordinators import compose_coordinators
from headwater.broker.config_changes import ConfigChanges
from headwater.broker.context import Context
from headwater.broker.control_channels import ControlConnection
from headwater.broker.control_state import ControlState
from headwater.broker.disk_reserve import DiskReserve
from headwater.broker.dispatch import Dispatch
from headwater.broker.dynamic_config import (
    DynamicConfig,
    controller_settings,
    replication_throttles,
)
from headwater.broker.fetch_session import FetchSessionCache
from headwater.broker.first_users import FirstUsers, read_first_users
from headwater.broker.follower_loop import ReplicaFetchers
from headwater.broker.forwarding import Forwarding
from headwater.broker.housekeeping_loop import Housekeeping
from headwater.broker.listener_sasl import ListenerSasl
from headwater.broker.listener_tls import listener_tls
from headwater.broker.listening import PART_FOR_STRANGERS, connection_limits, memory_limit
from headwater.broker.local_store import LocalStore
from headwater.broker.metadata_cache import MetadataCache
from headwater.broker.metrics import BrokerMetrics
from headwater.broker.monitoring.service import Monitoring
from headwater.broker.open_files import OpenFiles
from headwater.broker.peers import Address, Peers
from headwater.broker.producer_ids import ProducerIdBlocks
from headwater.broker.purgatory import Purgatory
from headwater.broker.replica_host import BrokerReplicaHost
from headwater.broker.scrub_loop import Scrubber
from headwater.broker.storage_health import StorageHealth
from headwater.broker.store_mark import StoreMark
from headwater.broker.tick import Tick
from headwater.broker.token_changes import TokenChanges
from headwater.broker.token_expiry import TokenExpiry
from headwater.broker.token_logins import TokenLogins
from headwater.broker.wall_clock import WallClockWatch
from headwater.config.broker import BrokerSettings
from headwater.controller.channel_loop import Channels
from headwater.controller.controller_loop import ControllerLoop
from headwater.controller.state import LiveBroker
from headwater.controller.store.metadata_store import MetadataStore
from headwater.log.log_dirs import BrokerIdentity, LogDirs
from headwater.observe.rate_limited_log import RateLimitedLog
from headwater.replication.log_dir_moves import LogDirMoves, MoveHost
from headwater.replication.replica import Replica
from headwater.replication.replica_host import Done
from headwater.replication.replicas import Replicas
from headwater.seams import Seams
from headwater.seams.clock import Clock
from headwater.seams.randomness import Randomness
from headwater.seams.tasks import Lane, Tasks
from headwater.security.acls import AllowAll
from headwater.security.broker_handshake import BrokerCredentials
from headwater.security.delegation_tokens import DelegationTokens
from headwater.security.scram_users import ScramUsers
from headwater.security.standard_authorizer import StandardAuthorizer
from headwater.transport.listener import ConnectionQuotas
from headwater.transport.memory import MemoryBudget

log = logging.getLogger("headwater.server")


@dataclass(slots=True)
class Parts:
    """The parts of a broker, for the code that starts and stops it."""

    context: Context
    store: MetadataStore
    log_dirs: LogDirs
    health: StorageHealth
    reserve: DiskReserve
    channels: Channels
    dispatch: Dispatch
    housekeeping: Housekeeping
    cleaner: LogCleaner
    scrubber: Scrubber
    dynamic_config: DynamicConfig
    first_users: FirstUsers
    store_mark: StoreMark | None
    """None for an embedded store, which is in a log dir itself."""
    monitoring: Monitoring
    token_expiry: TokenExpiry | None
    """None without delegation tokens."""


def compose(
    settings: BrokerSettings,
    seams: Seams,
    local: LocalStore,
    credentials: BrokerCredentials,
    storage_lost: asyncio.Event,
) -> Parts:
    """Build a broker on its event loop; it sets `storage_lost` when it cannot go on."""
    store = local.store
    open_files = OpenFiles.of(seams.open_files)
    context = _context(settings, seams, credentials, open_files, store)
    log_dirs = LogDirs(
        seams.files,
        seams.randomness,
        settings.log_dirs,
        BrokerIdentity(settings.node_id, credentials.cluster_id, seams.boot_id),
        open_files.files,
    )
    health = StorageHealth(log_dirs, seams.files, storage_lost.set)
    if not local.is_shared:
        store.on_session(health.store_session_changed)
    context.client_quotas = _client_quotas(context, seams.clock)
    context.replicas = _replicas(context, log_dirs, health)
    context.peers = _peers(context, seams)
    context.replica_fetchers = ReplicaFetchers(context, context.peers.open)
    context.log_dir_moves = _log_dir_moves(context, health)
    context.isr_proposals = AlterPartitionManager(context, context.peers.open)
    if local.is_shared:
        context.forwarding = Forwarding(context)
    channels = Channels(asyncio.get_running_loop().call_soon, partial(_connect, context))
    dynamic_config = DynamicConfig(context, open_files)
    first_users = FirstUsers(store, read_first_users(settings), context.users)
    _add_metadata(context, seams, store, channels, dynamic_config, first_users)
    compose_coordinators(context, asyncio.get_running_loop().call_later)
    housekeeping = Housekeeping(context, seams.tasks, health, local.reserve, local.own_time)
    cleaner = LogCleaner(context, seams.tasks, seams.workers, health, housekeeping.unlink_later)
    return Parts(
        context,
        store,
        log_dirs,
        health,
        local.reserve,
        channels,
        Dispatch(context),
        housekeeping,
        cleaner,
        Scrubber(context, seams.tasks),
        dynamic_config,
        first_users,
        _store_mark(context, local, log_dirs),
        Monitoring(context, seams, store, cleaner, health, storage_lost.is_set),
        _token_expiry(context),
    )


def _token_expiry(context: Context) -> TokenExpiry | None:
    if context.tokens is None:
        return None
    return TokenExpiry(
        context.tokens,
        context.wall_clock,
        context.settings.delegation_token_expiry_check_interval_ms,
        lambda: context.controller.active,
        lambda token: context.audit.changed_here("token removed", token.token_id, str(token.owner)),
        asyncio.get_running_loop().call_later,
    )


def _client_quotas(context: Context, clock: Clock) -> ClientQuotas:
    settings = context.settings

    def use(quotas: ClientQuotas | None) -> None:
        context.quotas = context.turns.timer = quotas
        context.changed()

    return ClientQuotas(
        clock,
        {key: row.quota for key, row in SERVED.items()},
        use,
        settings.listeners_of_brokers if len(settings.listening) > 1 else (),
        settings.max_connection_creation_rate_per_ip,
    )


def _store_mark(context: Context, local: LocalStore, log_dirs: LogDirs) -> StoreMark | None:
    if not local.is_shared:
        return None
    return StoreMark(
        local.store,
        context.node_id,
        context.files,
        log_dirs.dirs,
        context.off_loop,
        asyncio.get_running_loop().call_later,
    )


def _context(
    settings: BrokerSettings,
    seams: Seams,
    credentials: BrokerCredentials,
    open_files: OpenFiles,
    store: MetadataStore,
) -> Context:
    slots = settings.max_incremental_fetch_session_cache_slots
    users = ScramUsers(credentials.secret)
    off_loop = partial(_run_off_loop, seams.tasks)
    secret = settings.delegation_token_secret_key
    tokens = DelegationTokens(secret) if secret else None
    logins = None if tokens is None else TokenLogins(tokens, seams.clock.wall_ms, off_loop)
    sasl = ListenerSasl(
        settings, users, credentials, seams.randomness, off_loop, seams.clock, logins
    )
    return Context(
        node_id=settings.node_id,
        settings=settings,
        clock=seams.clock,
        wall_clock=WallClockWatch(seams.clock),
        randomness=seams.randomness,
        files=seams.files,
        metadata=MetadataCache(credentials.cluster_id),
        control=ControlState(),
        tick=Tick(),
        connection_quotas=ConnectionQuotas(connection_limits(settings, open_files)),
        peer_log=RateLimitedLog(log, seams.clock.monotonic_ms),
        authorizer=AllowAll(),
        audit=AuditLog(seams.clock.monotonic_ms),
        purgatory=Purgatory(seams.clock),
        sessions=FetchSessionCache(slots, _session_ids(seams.randomness)),
        off_loop=off_loop,
        metrics=BrokerMetrics(),
        credentials=credentials,
        users=users,
        sasl=sasl.offered(),
        token_keys=sasl.token_keys,
        memory=MemoryBudget(memory_limit(settings)),
        memory_before_login=MemoryBudget(memory_limit(settings) // PART_FOR_STRANGERS),
        throttles=replication_throttles(settings),
        listener_tls=listener_tls(settings, seams.clock.wall_ms),
        tokens=None if tokens is None else TokenChanges(store, tokens),
    )


def _add_authorizer(context: Context, store: MetadataStore) -> None:
    settings = context.settings
    if settings.authorizer_class_name:
        authorizer = StandardAuthorizer(
            settings.super_principals, settings.allow_everyone_if_no_acl_found
        )
        context.authorizer = authorizer
        context.acls = AclChanges(store, authorizer, context.changed)


def _add_metadata(
    context: Context,
    seams: Seams,
    store: MetadataStore,
    channels: Channels,
    dynamic: DynamicConfig,
    first_users: FirstUsers,
) -> None:
    """What reads and changes the metadata store."""
    loop = asyncio.get_running_loop()
    _add_authorizer(context, store)
    context.configs = ConfigChanges(
        store,
        context.node_id,
        dynamic.topic_changed,
        dynamic.broker_changed,
        dynamic.client_changed,
    )
    context.controller = ControllerLoop(
        store,
        context.node_id,
        controller_settings(context.settings),
        clock=seams.clock,
        new_topic_id=seams.randomness.uuid,
        channels=channels,
        when_config_applied=context.configs.when_applied,
        call_soon=loop.call_soon,
        call_later=loop.call_later,
        on_elected=lambda: first_users.elected(context.controller.submit),
        store_address=context.settings.zookeeper_connect or "",
    )
    context.producer_ids = ProducerIdBlocks(store, context.node_id)

    def topics_deleted(topics: Iterable[str]) -> None:
        dynamic.topics_deleted(topics)
        context.metrics.topics_deleted(topics)
        context.coordinators.topics_deleted(dict.fromkeys(topics))

    context.topics_deleted = topics_deleted


def _replicas(context: Context, log_dirs: LogDirs, health: StorageHealth) -> Replicas:
    return Replicas(
        context.node_id,
        log_dirs,
        context.topic_settings,
        context.policy,
        context.metadata.has_partition,
        BrokerReplicaHost(context, health),
        context.settings.replica_lag_time_max_ms,
    )


def _log_dir_moves(context: Context, health: StorageHealth) -> LogDirMoves:
    def replaced(replica: Replica) -> None:
        context.tick.written[replica] = None
        context.changed()

    return LogDirMoves(
        MoveHost(
            context.replicas,
            context.throttles.log_dirs,
            context.clock,
            context.files,
            context.off_loop,
            asyncio.get_running_loop().call_later,
            context.tick.flush,
            replaced,
            lambda at: context.metadata.partition(*at) is not None,
            partial(health.dir_failed, context.replicas),
        )
    )


def _peers(context: Context, seams: Seams) -> Peers:
    return Peers(
        seams.network,
        seams.randomness,
        context.credentials,
        partial(_address, context, context.settings.inter_broker_listener.name),
        context.settings.request_timeout_ms,
        partial(_context_for_peers, context),
    )


def _address(context: Context, listener: str, broker: int) -> Address | None:
    """The address of another broker on the inter-broker listener, if it is alive."""
    found = context.metadata.endpoint(broker, listener)
    return None if found is None else Address(*found, listener)


def _context_for_peers(context: Context, listener: str) -> SSLContext | None:
    tls = context.listener_tls.get(listener)
    return None if tls is None else tls.store.client


def _connect(context: Context, broker: LiveBroker) -> ControlConnection:
    settings = context.settings
    listeners = (settings.control_plane_listener.name, settings.inter_broker_listener.name)
    timeout_ms = settings.controller_socket_timeout_ms
    return ControlConnection(context.peers, broker, listeners, timeout_ms)


def _session_ids(randomness: Randomness) -> Iterator[int]:
    while True:
        yield 1 + randomness.below(2**31 - 1)


def _run_off_loop(
    tasks: Tasks, call: Callable[[], object], done: Done, lane: Lane = Lane.READ
) -> None:
    def ended(future: asyncio.Future[object]) -> None:
        if future.cancelled():
            return  # the broker stops, and nobody waits any more
        failure = future.exception()
        if failure is not None and not isinstance(failure, Exception):
            raise failure
        done(None if failure else future.result(), failure)

    tasks.in_thread(call, lane).add_done_callback(ended)
