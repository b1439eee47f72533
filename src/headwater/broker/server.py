"""The composition root: builds one broker from its settings and its seams, starts and stops it."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from headwater.broker.callbacks import wait_for_callback, wait_for_reply
from headwater.broker.config_changes import ConfigChanges
from headwater.broker.context import Context
from headwater.broker.control import Control
from headwater.broker.disk_reserve import DiskReserve
from headwater.broker.dispatch import Dispatch, Handler
from headwater.broker.fetch_session import FetchSessionCache
from headwater.broker.handlers import (
    api_versions,
    cluster,
    configs,
    delete_records,
    fetch,
    groups,
    log_dirs,
    metadata,
    offsets,
    produce,
    producers,
    topics,
)
from headwater.broker.housekeeping_loop import Housekeeping
from headwater.broker.listening import connection_limits, memory_limit, warn_of_plaintext
from headwater.broker.metadata_cache import MetadataCache
from headwater.broker.open_files import OpenFiles
from headwater.broker.partition_writer import PartitionWriter
from headwater.broker.producer_ids import ProducerIdBlocks
from headwater.broker.purgatory import Purgatory
from headwater.broker.registration import (
    Registration,
    prepare_store,
    read_log_dirs,
    store_log_dirs,
)
from headwater.broker.server_connection import ServerConnection
from headwater.broker.storage_health import StorageHealth
from headwater.broker.tick import Tick
from headwater.broker.timers import PatientTimers
from headwater.config.broker import BrokerSettings
from headwater.config.listeners import Listener
from headwater.controller.channel_loop import Channels, OnReply
from headwater.controller.control_requests import ControlRequest
from headwater.controller.controller_loop import ControllerLoop
from headwater.controller.store.embedded_store import EmbeddedStore
from headwater.controller.store.engine import on_file_thread
from headwater.controller.store.znodes import BrokerEndpoint, BrokerNode
from headwater.controller.topic_rules import ControllerSettings
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.runtime_loop import CoordinatorRuntime
from headwater.log.log_dir import LogDirError
from headwater.log.log_dirs import Identity, LogDirs
from headwater.log.settings import LogSettings
from headwater.model import CONSUMER_OFFSETS, uuid_text
from headwater.observe.rate_limited_log import RateLimitedLog
from headwater.replication.effects import ProposeIsr
from headwater.replication.replica import Done, Replica
from headwater.replication.replicas import Replicas
from headwater.seams import Seams
from headwater.seams.clock import SystemClock
from headwater.seams.files import OsFiles
from headwater.seams.limits import raise_open_file_limit
from headwater.seams.network import ListenerHandle, TcpNetwork
from headwater.seams.randomness import SystemRandomness
from headwater.seams.tasks import Lane, LoopTasks
from headwater.security.acls import AllowAll
from headwater.transport.listener import ConnectionQuotas, open_listener
from headwater.transport.memory import MemoryBudget
from headwater.wire.messages.control import LeaderAndIsrRequest, UpdateMetadataRequest

log = logging.getLogger("headwater.server")

HANDLERS: dict[int, Handler] = {
    key: handler
    for room in (
        api_versions,
        cluster,
        configs,
        delete_records,
        fetch,
        groups,
        log_dirs,
        metadata,
        offsets,
        produce,
        producers,
        topics,
    )
    for key, handler in room.HANDLERS.items()
}

GC_THRESHOLD = 20_000
"""New objects between two looks for cycles: requests make none, so looking often is waste."""
STORE_FOLDER = "headwater-metadata"
"""Where the embedded store lies, in the first log dir; no topic's folder can have this name."""


class BrokerServer:
    """One broker: `start`, serve, `stop`."""

    def __init__(self, settings: BrokerSettings, seams: Seams) -> None:
        self.settings = settings
        self.seams = seams
        self.node_id = settings.node_id
        self.listeners: list[Listener] = []
        """Where clients are told to connect, with the ports really taken."""
        self._opened: list[ListenerHandle] = []
        self._shares = OpenFiles.of(seams.open_files)
        self._store_lock: int | None = None
        self._log_dirs_open = False
        self.ruined = asyncio.Event()
        """Set when no log dir is left, or the metadata store is lost: the broker must stop."""

    # -- starting

    async def start(self) -> None:
        """Recover the logs, join the cluster, and serve once this broker knows what it leads."""
        cluster_id = await self._open_store()
        self._compose(cluster_id)
        await wait_for_callback(self.configs.start)
        await self._open_log_dirs()
        self._recover()
        await self._listen()
        await self._join()
        if self.reserve.given_up:
            self.health.found_full(self.settings.log_dirs[0], self.context.replicas)
        else:
            self.reserve.make()
        self.housekeeping.start()
        for connection in self.context.connection_quotas.open:
            connection.release()
        self.context.serving = True

    async def _open_store(self) -> str:
        """The embedded store; its folder is locked before anything in it is touched."""
        folder = f"{self.settings.log_dirs[0]}/{STORE_FOLDER}"
        try:
            self.seams.files.mkdir(folder)
            self._store_lock = self.seams.files.lock(f"{folder}/.lock")
        except BlockingIOError:
            raise LogDirError(
                f"{self.settings.log_dirs[0]} is in use by another broker: "
                "stop it, or choose another folder with --data-dir (log.dirs)"
            ) from None
        except OSError as failure:
            raise LogDirError(
                f"the data folder {self.settings.log_dirs[0]} cannot be used "
                f"({failure.strerror}): repair it, or choose another with --data-dir (log.dirs, "
                "the first of which holds the metadata)"
            ) from failure
        self.reserve = DiskReserve(self.seams.files, folder)
        self.reserve.give_up_if_full()
        self.store = EmbeddedStore(
            self.seams.files,
            folder,
            asyncio.get_running_loop().call_soon,
            on_file_thread(self.seams.tasks),
            self.seams.clock,
        )
        fresh = uuid_text(self.seams.randomness.uuid())
        return await wait_for_reply(partial(prepare_store, self.store, fresh))

    def _make_context(self, cluster_id: str) -> Context:
        settings, seams = self.settings, self.seams
        return Context(
            node_id=self.node_id,
            settings=settings,
            clock=seams.clock,
            randomness=seams.randomness,
            files=seams.files,
            metadata=MetadataCache(cluster_id),
            tick=Tick(),
            connection_quotas=ConnectionQuotas(connection_limits(settings, self._shares)),
            peer_log=RateLimitedLog(log, seams.clock.monotonic_ms),
            authorizer=AllowAll(),
            purgatory=Purgatory(seams.clock),
            sessions=FetchSessionCache(
                settings.max_incremental_fetch_session_cache_slots, self._session_ids()
            ),
            off_loop=self._off_loop,
            memory=MemoryBudget(memory_limit(settings)),
        )

    def _compose(self, cluster_id: str) -> None:
        settings, seams = self.settings, self.seams
        loop = asyncio.get_running_loop()
        self.context = self._make_context(cluster_id)
        self.log_dirs = LogDirs(
            seams.files,
            seams.randomness,
            settings.log_dirs,
            Identity(self.node_id, cluster_id),
            self._shares.files,
        )
        self.health = StorageHealth(self.log_dirs, seams.files, self.ruined.set)
        self.store.on_session(self.health.store_session_changed)
        replicas = self.context.replicas = Replicas(
            self.node_id,
            self.log_dirs,
            self.context.topic_settings,
            self.context.policy,
            BrokerReplicaHost(self),
            settings.replica_lag_time_max_ms,
        )
        self.configs = ConfigChanges(
            self.store, self.node_id, self._topic_configured, self._broker_configured
        )
        self.channels = Channels(loop.call_soon)
        self.controller = self.context.controller = ControllerLoop(
            self.store,
            self.node_id,
            self._controller_settings(),
            clock=seams.clock,
            new_topic_id=seams.randomness.uuid,
            channels=self.channels,
            when_config_applied=self.configs.when_applied,
            call_soon=loop.call_soon,
            call_later=loop.call_later,
        )
        self.context.producer_ids = ProducerIdBlocks(self.store, self.node_id)
        writer = PartitionWriter(
            CONSUMER_OFFSETS, replicas, self._coordinator_append_failed, self._off_loop
        )
        self.groups = self.context.groups = CoordinatorRuntime(
            writer,
            seams.clock,
            seams.randomness,
            PatientTimers(loop.call_later, seams.clock.monotonic_ms),
            GroupSettings.of(settings),
            lambda: self.context.metadata.partition_count(CONSUMER_OFFSETS),
        )
        self.control = Control(self.context, self._topics_gone)
        self.dispatch = Dispatch(self.context, HANDLERS)
        self.housekeeping = Housekeeping(self.context, seams.tasks, self.health, self.reserve)

    async def _open_log_dirs(self) -> None:
        """Open them, and remember their ids: a disk that is not mounted must be missed."""
        abandoned = set(self.settings.log_dirs_abandoned)
        stored = await wait_for_reply(partial(read_log_dirs, self.store, self.node_id))
        known = {at: path for at, path in stored.items() if at not in abandoned}
        self._log_dirs_open = True
        self.log_dirs.open(known)
        known.update(self.log_dirs.directory_ids)
        if known != stored:
            await wait_for_reply(partial(store_log_dirs, self.store, self.node_id, known))

    def _recover(self) -> None:
        def settings_of(topic: str) -> LogSettings:
            return self.context.policy(topic).log_settings

        self.log_dirs.load(settings_of, self.seams.clock.wall_ms())
        reports = self.log_dirs.recovered.values()
        log.info(
            "recovered %d partitions, scanned %d bytes",
            len(self.log_dirs.logs),
            sum(report.scanned_bytes for report in reports),
        )

    async def _listen(self) -> None:
        backlog = min(self.settings.socket_listen_backlog_size, self._shares.backlog)
        for listener, shown in zip(self.settings.listening, self.settings.advertised, strict=True):
            warn_of_plaintext(listener)
            factory = partial(ServerConnection, self.context, listener.name, self.dispatch.frame)
            opened = await open_listener(self.seams.network, listener, factory, backlog)
            self._opened.append(opened)
            self.listeners.append(shown if shown.port else shown._replace(port=opened.port))

    async def _join(self) -> None:
        """Register, stand for controller, and wait until this broker was told what it leads."""
        self.channels.attach(self.node_id, self._receive)
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_first_update = told
        node = BrokerNode(
            self.node_id,
            tuple(BrokerEndpoint(at.name, at.host, at.port, at.protocol) for at in self.listeners),
            rack=self.settings.broker_rack,
            timestamp_ms=self.seams.clock.wall_ms(),
        )
        self.registration = Registration(self.store, node, self._registered)
        self.controller.start()
        await told
        await wait_for_callback(self.controller.when_idle)
        self._set_strays_aside()
        log.info(
            "node %d of cluster %s, controller %d, %d topics",
            self.node_id,
            self.context.metadata.cluster_id,
            self.context.metadata.controller_id,
            len(self.context.metadata.topics),
        )

    def _set_strays_aside(self) -> None:
        """Folders of partitions that the cluster does not know are kept, but never served.

        A partition that it knows and that could not be opened keeps its folder.
        """
        known = self.context.metadata.partition
        for partition in [at for at in self.log_dirs.logs if known(*at) is None]:
            try:
                folder = self.log_dirs.set_aside(partition)
            except OSError as failure:
                log.warning("no topic has %s, its folder cannot be renamed: %s", partition, failure)
            else:
                log.warning("no topic has %s: its folder is now %s", partition, folder)

    # -- what others call back with

    def _receive(self, message: ControlRequest, reply: OnReply) -> None:
        """A message of the controller; topics' settings must be known before their logs open."""

        def apply() -> None:
            reply(self.control.receive(message))
            if isinstance(message, UpdateMetadataRequest) and not self._on_first_update.done():
                self._on_first_update.set_result(None)

        if isinstance(message, LeaderAndIsrRequest):
            self.configs.learn([topic.topic_name for topic in message.topic_states], apply)
        else:
            apply()

    def _registered(self, epoch: int) -> None:
        self.control.broker_epoch = epoch

    def _topic_configured(self, topic: str, overrides: Mapping[str, str]) -> None:
        self.context.topic_overrides[topic] = dict(overrides)
        self.context.replicas.topic_settings_changed(topic)
        self.context.changed()

    def _broker_configured(self, scope: str, overrides: Mapping[str, str]) -> None:
        changed = self.settings.with_dynamic(
            self.configs.broker_overrides(""), self.configs.broker_overrides(str(self.node_id))
        )
        for problem in changed.ignored:
            log.warning("a stored setting is ignored: %s", problem.message)
        self.settings = self.context.settings = changed
        self.context.connection_quotas.limits = connection_limits(changed, self._shares)
        self.controller.use_settings(self._controller_settings())
        for topic in self.context.replicas.topics():
            self.context.replicas.topic_settings_changed(topic)
        self.context.changed()

    def _topics_gone(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self.configs.forget(topic)
            self.context.topic_overrides.pop(topic, None)
            self.groups.topic_deleted(topic)

    def _coordinator_append_failed(self, partition: int) -> None:
        self.groups.append_failed(partition)

    def _controller_settings(self) -> ControllerSettings:
        settings = self.settings
        return ControllerSettings(
            num_partitions=settings.num_partitions,
            default_replication_factor=settings.default_replication_factor,
            unclean_leader_election=settings.unclean_leader_election_enable,
            delete_topic_enable=settings.delete_topic_enable,
            inter_broker_listener=settings.inter_broker_listener.name,
        )

    def _session_ids(self) -> Iterator[int]:
        while True:
            yield 1 + self.seams.randomness.below(2**31 - 1)

    def _off_loop(self, call: Callable[[], object], done: Done, lane: Lane = Lane.READ) -> None:
        def ended(future: asyncio.Future[object]) -> None:
            if future.cancelled():
                return  # the broker stops, and nobody waits any more
            failure = future.exception()
            if failure is not None and not isinstance(failure, Exception):
                raise failure
            done(None if failure else future.result(), failure)

        self.seams.tasks.in_thread(call, lane).add_done_callback(ended)

    # -- stopping

    async def stop(self) -> None:
        """Take no more requests, write what was taken, and leave a clean log behind."""
        for opened in self._opened:
            opened.close()
        self.housekeeping.stop()
        self.context.tick.flush()
        for connection in list(self.context.connection_quotas.open):
            connection.close()
        self.groups.close()
        self.controller.stop()
        self.context.purgatory.close()
        await wait_for_callback(self.registration.withdraw)
        await self._end_flushes()
        marks = {
            replica.topic_partition: replica.partition.high_watermark
            for replica in self.context.replicas
        }
        self.store.close()
        # A checkpoint still under way would overwrite the last one with what was true before it.
        self.seams.tasks.close()
        self.log_dirs.close(marks, self.control.broker_epoch, self.seams.tasks.run_all)
        if self._store_lock is not None:
            self.seams.files.close(self._store_lock)

    async def _end_flushes(self) -> None:
        """A flush that fails now must be heard: its log is not flushed again and marked clean."""
        for replica in list(self.context.replicas):
            while replica.flushing:
                await wait_for_callback(replica.when_not_flushing)

    def abandon(self) -> None:
        """Give back what a start that failed had taken."""
        for opened in self._opened:
            opened.close()
        if self._log_dirs_open:
            self.log_dirs.abandon()
        if self._store_lock is not None:
            self.store.close()
            self.seams.files.close(self._store_lock)
        self.seams.tasks.close()


class BrokerReplicaHost:
    """What replicas ask of the broker around them."""

    def __init__(self, broker: BrokerServer) -> None:
        self._broker = broker
        clock = broker.seams.clock
        self.now_ms = clock.monotonic_ms
        self.wall_ms = clock.wall_ms
        self.write_soon = broker.context.tick.write_soon
        self.off_loop = broker.context.off_loop

    def high_watermark_advanced(self, replica: Replica) -> None:
        """Coordinators answer what waited for it."""
        if replica.topic_partition.topic == CONSUMER_OFFSETS:
            self._broker.groups.committed(
                replica.topic_partition.partition, replica.partition.high_watermark
            )

    def propose_isr(self, replica: Replica, proposal: ProposeIsr) -> None:
        """A cluster of one has nobody to drop or to take in."""
        log.warning("%s: no controller takes %s yet", replica.topic_partition, proposal)

    def storage_failed(self, replica: Replica, failure: OSError, *, flushing: bool) -> None:
        """The disk refused a write, or a flush of what was written."""
        replicas = self._broker.context.replicas
        self._broker.health.failed(replicas, replica, failure, flushing=flushing)


# -- a broker as a process


def system_seams() -> Seams:
    """The doors to the real world."""
    clock, randomness, files = SystemClock(), SystemRandomness(), OsFiles()
    return Seams(clock, randomness, files, TcpNetwork(), LoopTasks(), raise_open_file_limit())


def run(settings: BrokerSettings, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `on_ready` hears the address once clients may come."""
    import uvloop

    uvloop.run(_serve(settings, on_ready))


async def _serve(settings: BrokerSettings, on_ready: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    broker = BrokerServer(settings, system_seams())
    stopped = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    gc.disable()
    try:
        await broker.start()
    except BaseException:
        broker.abandon()
        raise
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()
    first = broker.listeners[0]
    on_ready(f"{first.host or '127.0.0.1'}:{first.port}")
    ends = [asyncio.ensure_future(event.wait()) for event in (stopped, broker.ruined)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    await broker.stop()
    if broker.ruined.is_set():
        raise LogDirError("the disks failed (see the log): repair them and restart the broker")
