"""The monitoring of one broker: what watches it, what reads its metrics, and its HTTP listener."""

import errno
import logging
from collections.abc import Callable

from headwater.broker.cleaner_loop import LogCleaner
from headwater.broker.context import Context
from headwater.broker.monitoring.end_offsets import EndOffsets
from headwater.broker.monitoring.exposition import Exposition
from headwater.broker.monitoring.http import MAX_CONNECTIONS, MetricsServer
from headwater.broker.monitoring.loop_watch import LoopWatch, Spaces
from headwater.broker.storage_health import StorageHealth
from headwater.config.addresses import is_loopback
from headwater.controller.store.metadata_store import MetadataStore, SessionState
from headwater.seams import Seams
from headwater.seams.accepting import AcceptAll
from headwater.seams.network import ListenerHandle

log = logging.getLogger("headwater.server")

STARTING, STOPPING = "the broker starts", "the broker stops"


class Monitoring:
    """Opened as early as possible, so that a start that waits for others can be seen."""

    def __init__(
        self,
        context: Context,
        seams: Seams,
        store: MetadataStore,
        cleaner: LogCleaner,
        health: StorageHealth,
        storage_is_lost: Callable[[], bool],
    ) -> None:
        self.address: str | None = None
        """HOST:PORT of the listener, once it is open."""
        self.stopping = False
        self._context = context
        self._seams = seams
        self._storage_is_lost = storage_is_lost
        self._ends = EndOffsets(context, context.peers.open)
        self._watch: LoopWatch | None = None
        if seams.process is not None:
            self._watch = LoopWatch(seams.clock, seams.process, self._spaces, context.off_loop)
        self.exposition = Exposition(context, cleaner, health, self._ends, self._watch)
        self._server = MetricsServer(
            context.turns, self.exposition.text, self._not_healthy, self._not_ready
        )
        self._opened: ListenerHandle | None = None
        store.on_session(self._session_changed)

    async def open(self) -> None:
        """Listen at `metrics.listener`; at a free port if its default is taken."""
        wanted = self._context.settings.metrics_address
        if wanted is None:
            return
        if self._watch is not None:
            self._watch.start()
        host, port = wanted
        try:
            self._opened = await self._listen(host, port)
        except OSError as failure:
            if failure.errno != errno.EADDRINUSE or self._context.settings.is_set(
                "metrics.listener"
            ):
                raise OSError(
                    failure.errno,
                    f"cannot listen on {host}:{port} for metrics: {failure.strerror}; choose "
                    "another metrics.listener, or leave it empty for none",
                ) from failure
            self._opened = await self._listen(host, 0)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._opened.port}"
        log.info("metrics are at http://%s/metrics", self.address)
        if not is_loopback(host):
            log.warning(
                "metrics.listener=%s shows names of topics and groups to everyone on the network: "
                "bind it to 127.0.0.1, or restrict access to the network",
                self.address,
            )

    async def _listen(self, host: str, port: int) -> ListenerHandle:
        acceptor = AcceptAll(self._server.accept)
        return await self._seams.network.serve(acceptor, host, port, MAX_CONNECTIONS)

    def close(self) -> None:
        """Stop watching and answering."""
        if self._watch is not None:
            self._watch.stop()
        self._ends.close()
        self._server.close()
        if self._opened is not None:
            self._opened.close()

    def _spaces(self) -> Spaces:
        """The size and the free bytes of the log dirs that work. For threads."""
        log_dirs = self._context.replicas.log_dirs
        paths = [one.path for one in log_dirs.dirs if not one.offline]
        return {path: self._context.files.space(path) for path in paths}

    def _session_changed(self, session: SessionState) -> None:
        self._context.metrics.store_connected = session is SessionState.OPEN

    def _not_healthy(self) -> str:
        return "the disks failed, see the log" if self._storage_is_lost() else ""

    def _not_ready(self) -> str:
        if self.stopping:
            return STOPPING
        return self._not_healthy() if self._context.serving else STARTING
