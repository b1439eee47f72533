"""The lifecycle of a broker: store, recover, listen, join, serve, stop.

A broker serves clients only once it knows which partitions it leads. It sets a log aside as a stray
only once the controller has sent it every partition that it holds.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from headwater.broker.accepting import BrokerAcceptor
from headwater.broker.callbacks import Latch, wait_for_callback
from headwater.broker.compose import Parts, compose
from headwater.broker.context import Context
from headwater.broker.controlled_shutdown_loop import hand_over_leadership
from headwater.broker.listening import ListenerSecurity, warn_of_plaintext
from headwater.broker.local_store import CLOSE_TIMEOUT_S, LocalStore
from headwater.broker.open_files import OpenFiles
from headwater.broker.registration import Registration, read_log_dirs, store_log_dirs
from headwater.broker.server_connection import OnFrame, ServerConnection
from headwater.broker.store_entry import StartSession, StoreEntry
from headwater.broker.waiting_start import told_while_waiting
from headwater.broker.weak_settings import warn_of_lockout
from headwater.config.broker import BrokerSettings
from headwater.config.listeners import Listener
from headwater.controller.store.metadata_store import Stat
from headwater.controller.store.znodes import BrokerEndpoint, BrokerNode
from headwater.log.settings import LogSettings
from headwater.seams import Seams
from headwater.seams.network import ListenerHandle
from headwater.seams.tasks import Lane
from headwater.security.broker_handshake import BrokerCredentials
from headwater.transport.listener import open_listener

log = logging.getLogger("headwater.server")

OpenStore: TypeAlias = Callable[[Seams, str], LocalStore]
"""Opens the metadata store in the first log dir; the simulator replaces it."""


class BrokerServer:
    """One broker: `start`, serve, `stop`. `abandon` undoes a start that failed."""

    parts: Parts
    context: Context
    registration: Registration

    def __init__(
        self, settings: BrokerSettings, seams: Seams, open_store: OpenStore | None = None
    ) -> None:
        self.seams = seams
        # The addresses for clients, with the ports that were actually bound.
        self.listeners: list[Listener] = []
        # Set when no log dir is left, or the metadata store is lost: the broker must stop.
        self.storage_lost = asyncio.Event()
        self._boot_settings = settings
        self._open_store = open_store or _store_of(settings)
        self._local_store: LocalStore | None = None
        self._opened: list[ListenerHandle] = []
        self._composed = False
        self._log_dirs_open = False
        # The log dirs of earlier starts that log.dirs.abandoned gives up.
        self._abandoned: dict[str, str] = {}

    @property
    def metrics_address(self) -> str | None:
        """Where metrics are served, as HOST:PORT."""
        return self.parts.monitoring.address

    # -- starting

    async def start(self) -> None:
        """Recover the logs, join the cluster, and serve once the partitions of this broker are known."""
        settings = self._boot_settings
        for line in settings.hardening:
            log.info("security.profile=%s sets %s", settings.security_profile, line)
        local = self._local_store = self._open_store(self.seams, settings.log_dirs[0])
        session = StartSession(local, settings)
        async with session.bounded():
            await self._compose(local, session)
            await self._enter_cluster(session)
        self._serve()

    async def _enter_cluster(self, session: StartSession) -> None:
        await wait_for_callback(self.context.configs.start)
        if self.context.acls is not None:
            await wait_for_callback(self.context.acls.start)
            warn_of_lockout(self.context.settings, self.context.acls.index)
        if self.context.tokens is not None:
            await wait_for_callback(self.context.tokens.start)
        await self._open_log_dirs(session)
        self._recover()
        await self._listen()
        await self._join(session)
        await wait_for_callback(self.parts.first_users.when_idle)
        await self.seams.tasks.in_thread(self._note_time, Lane.FILES)

    async def _compose(self, local: LocalStore, session: StartSession) -> None:
        settings, seams = self._boot_settings, self.seams
        entered = await StoreEntry(local, settings, seams, session).enter()
        credentials = BrokerCredentials(settings.node_id, entered.cluster_id, entered.secret)
        self.parts = compose(settings, seams, local, credentials, self.storage_lost)
        self.context = self.parts.context
        self._composed = True
        await self.parts.monitoring.open()

    async def _open_log_dirs(self, session: StartSession) -> None:
        """Open the log dirs, and store their ids, so that a disk that is not mounted is noticed."""
        store, log_dirs, node_id = self.parts.store, self.parts.log_dirs, self.context.node_id
        abandoned = set(self.context.settings.log_dirs_abandoned)
        stored = await session.ask(partial(read_log_dirs, store, node_id))
        self._abandoned = {at: path for at, path in stored.items() if at in abandoned}
        self._log_dirs_open = True
        log_dirs.open({at: path for at, path in stored.items() if at not in abandoned})
        known = stored | log_dirs.directory_ids
        if known != stored:
            await session.ask(partial(store_log_dirs, store, node_id, known))

    async def _forget_abandoned(self, session: StartSession) -> None:
        """Remove the ids of abandoned log dirs, once the controller knows that they are lost.

        If this broker crashed before, its next start must tell the controller again.
        """
        if self._abandoned:
            store, node_id = self.parts.store, self.context.node_id
            stored = await session.ask(partial(read_log_dirs, store, node_id))
            kept = {at: path for at, path in stored.items() if at not in self._abandoned}
            await session.ask(partial(store_log_dirs, store, node_id, kept))

    def _recover(self) -> None:
        log_dirs = self.parts.log_dirs

        def settings_of(topic: str) -> LogSettings:
            return self.context.policy(topic).log_settings

        began_ms, counters = self.seams.clock.monotonic_ms(), self.context.metrics
        log_dirs.load(settings_of, self.seams.clock.wall_ms())
        reports = log_dirs.recovered.values()
        counters.recovery_ms = self.seams.clock.monotonic_ms() - began_ms
        counters.recovery_bytes = sum(report.scanned_bytes for report in reports)
        log.info(
            "recovered %d partitions, scanned %d bytes",
            len(log_dirs.logs),
            counters.recovery_bytes,
        )

    async def _listen(self) -> None:
        settings = self.context.settings
        descriptors = OpenFiles.of(self.seams.open_files)
        backlog = min(settings.socket_listen_backlog_size, descriptors.backlog)
        for listener, shown in zip(settings.listening, settings.advertised, strict=True):
            warn_of_plaintext(listener)
            tls = self.context.listener_tls.get(listener.name)
            security = ListenerSecurity(listener.name, listener.protocol, tls)
            acceptor = BrokerAcceptor(self.context, security, self._handler_of)
            opened = await open_listener(self.seams.network, listener, acceptor, backlog)
            self._opened.append(opened)
            self.listeners.append(shown if shown.port else shown._replace(port=opened.port))

    def _handler_of(self, listener: str) -> OnFrame:
        dispatch, settings = self.parts.dispatch, self.context.settings
        if (
            settings.control_plane_listener_name
            and listener == settings.control_plane_listener.name
        ):
            return dispatch.frame_of_controller
        return dispatch.frame if self.context.serving else dispatch.frame_while_starting

    async def _join(self, session: StartSession) -> None:
        """Register, run for controller, and wait until this broker knows its partitions.

        The controller of the cluster ends their list with a full LeaderAndIsr.
        """
        context, control = self.context, self.context.control
        self.parts.channels.attach(context.node_id, self.parts.dispatch.receive)
        await self._register()
        with told_while_waiting(context):
            await wait_for_callback(control.metadata_known.when_set)
            await wait_for_callback(control.assignment_known.when_set)
        await self._forget_abandoned(session)
        await self._set_strays_aside()
        await self._flush_crash_tails()
        log.info(
            "node %d of cluster %s, controller %d, %d topics",
            context.node_id,
            context.metadata.cluster_id,
            context.metadata.controller_id,
            len(context.metadata.topics),
        )

    def _node(self) -> BrokerNode:
        return BrokerNode(
            self.context.node_id,
            tuple(BrokerEndpoint(at.name, at.host, at.port, at.protocol) for at in self.listeners),
            rack=self.context.settings.broker_rack,
            timestamp_ms=self.seams.clock.wall_ms(),
            kept_since=self.parts.log_dirs.kept_since,
            lost_log_dirs=bool(self._abandoned),
        )

    async def _register(self) -> None:
        registered, mark = Latch(), self.parts.store_mark
        if mark is not None:
            self.context.control.on_applied = mark.renew

        def on_registered(stat: Stat) -> None:
            self.context.control.broker_epoch = stat.czxid
            self._check_clock(stat.ctime_ms)
            note = self.parts.log_dirs.registered(stat.czxid)
            self.context.off_loop(note, _run_noted, Lane.FILES)
            registered.set()
            self.context.control.on_applied()
            self.context.controller.start()

        self.registration = Registration(
            self.parts.store,
            self._node(),
            self.context.metadata.cluster_id,
            on_registered,
            asyncio.get_running_loop().call_later,
            lambda: mark.zxid if mark is not None else 0,
        )
        await wait_for_callback(registered.when_set)

    def _check_clock(self, registered_ms: int) -> None:
        """Defer deletion by age if the wall clock is far ahead of what else is known of the time."""
        local = self._local_store
        if local is not None and local.is_shared:
            self.context.wall_clock.compare_with_store(registered_ms)
        elif local is not None and local.own_time is not None:
            last_ms = local.own_time.read_ms()
            if last_ms is not None:
                self.context.wall_clock.compare_with_last_run(last_ms)

    def _note_time(self) -> None:
        own = self._local_store.own_time if self._local_store is not None else None
        if own is not None:
            with contextlib.suppress(OSError):
                own.note(self.context.wall_clock.believed_ms())

    async def _set_strays_aside(self) -> None:
        """Keep, but never serve, folders of partitions that the cluster does not place here.

        A partition that could not be opened keeps its folder.
        """
        log_dirs, metadata = self.parts.log_dirs, self.context.metadata
        for partition in list(log_dirs.logs):
            known = metadata.partition(*partition)
            if known is not None and self.context.node_id in known.replicas:
                continue
            if partition not in log_dirs.logs or self.context.replicas.get(*partition) is not None:
                continue  # meanwhile the controller has decided about it
            stray = log_dirs.set_aside(partition)
            try:
                await self.seams.tasks.in_thread(stray.free_name, Lane.FILES)
            except OSError as failure:
                log.warning("no topic has %s, its folder cannot be renamed: %s", partition, failure)
            else:
                log_dirs.name_freed(partition, stray)
                log.warning("no topic has %s: its folder is now %s", partition, stray.path)

    async def _flush_crash_tails(self) -> None:
        """Flush what a crashed process left unsynced, where topics require that.

        Consumers have read it: a high watermark below it would go back for them.
        """
        led = [one for one in self.context.replicas if one.is_leader and one.flushes.behind]
        for replica in led:
            replica.flushes.flush()
        for replica in led:
            await wait_for_callback(replica.flushes.when_not_flushing)

    def _serve(self) -> None:
        parts, context = self.parts, self.context
        context.log_dir_moves.drop_orphans()
        if parts.reserve.given_up:
            parts.health.found_full(context.settings.log_dirs[0], context.replicas)
        else:
            parts.reserve.make()
        parts.housekeeping.start()
        parts.cleaner.start()
        parts.scrubber.start()
        if parts.token_expiry is not None:
            parts.token_expiry.start()
        if self._local_store is not None and self._local_store.is_shared:
            context.producer_ids.claim_ahead()  # new producers come also while the store is away
        context.serving = True
        for connection in list(context.connection_quotas.open):
            if isinstance(connection, ServerConnection):
                connection.start_serving(self._handler_of(connection.listener))

    # -- stopping

    async def stop(self) -> None:
        """Hand over leadership, write accepted batches, and mark the logs as clean."""
        context = self.context
        self.parts.monitoring.stopping = True
        await hand_over_leadership(context)
        for opened in self._opened:
            opened.close()
        for keys in context.token_keys:
            keys.close()
        self.parts.housekeeping.stop()
        self.parts.cleaner.stop()
        self.parts.scrubber.stop()
        if self.parts.token_expiry is not None:
            self.parts.token_expiry.stop()
        context.tick.flush()
        for connection in list(context.connection_quotas.open):
            connection.close()
        context.log_dir_moves.close()
        context.replica_fetchers.close()
        context.isr_proposals.close()
        context.markers.close()
        context.peers.close()
        context.coordinators.close()
        context.controller.stop()
        context.purgatory.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await wait_for_callback(self.registration.withdraw)
                if self.parts.store_mark is not None:
                    await wait_for_callback(self.parts.store_mark.mark)
        await self._end_flushes()
        self.parts.monitoring.close()
        await self._close_store()
        self._close_logs()

    async def _close_store(self) -> None:
        """End the session, so that another broker can be controller at once."""
        self.parts.store.close()
        local = self._local_store
        if local is not None and local.is_shared:
            await self.seams.tasks.in_thread(local.wait_closed, Lane.FILES)

    async def _end_flushes(self) -> None:
        """Wait for flushes in progress: a log whose flush fails now must not be marked clean."""
        for replica in list(self.context.replicas):
            while replica.flushes.flushing:
                await wait_for_callback(replica.flushes.when_not_flushing)

    def _close_logs(self) -> None:
        marks = {
            replica.topic_partition: replica.high_watermark for replica in self.context.replicas
        }
        # A checkpoint still being written would overwrite the last one with older offsets.
        tasks = self.seams.tasks
        tasks.close()
        if self.parts.store_mark is not None:
            self.parts.store_mark.stop()
            with contextlib.suppress(OSError):
                self.parts.store_mark.note()
        self.parts.log_dirs.close(marks, tasks.run_all)
        local = self._local_store
        if local is not None:
            self._note_time()
            local.unlock()

    def abandon(self) -> None:
        """Release what a failed start acquired."""
        for opened in self._opened:
            opened.close()
        if self._composed:
            self.parts.monitoring.close()
        if self._log_dirs_open:
            self.parts.log_dirs.abandon()
        if self._local_store is not None:
            self._local_store.store.close()
            self._local_store.wait_closed()
            self._local_store.unlock()
        self.seams.tasks.close()


def _run_noted(_: object, failure: Exception | None) -> None:
    if failure is not None:
        log.info("the epoch of this broker could not be noted in its log dirs: %s", failure)


def _store_of(settings: BrokerSettings) -> OpenStore:
    if settings.zookeeper_connect is None:
        return LocalStore.open
    return partial(LocalStore.open_zookeeper, settings)
