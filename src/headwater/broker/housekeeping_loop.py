"""What a broker does beside serving: flushing, checkpoints, retention, and sweeping up.

Each job is a named task that repeats; a job that fails once is logged and tried again. Whatever
waits for the disk runs on a file thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headwater.broker.connection import Connection
from headwater.broker.context import Context
from headwater.broker.storage_health import StorageHealth
from headwater.replication.replica import Replica
from headwater.seams.tasks import Tasks

log = logging.getLogger("headwater.server")

FLUSH_CHECK_S = 0.5
"""A flush slows the writes beside it, so that a flood is flushed twice a second, not every 64 MiB."""
FLUSHED_CHECK_S = 0.25
PROBE_S = 1.0
SWEEP_S = 5.0
CHUNK = 500
"""Partitions that a job looks at before it lets the loop turn."""


class Housekeeping:
    """The background jobs of one broker."""

    def __init__(self, context: Context, tasks: Tasks, health: StorageHealth) -> None:
        self._context = context
        self._tasks = tasks
        self._health = health
        self._running: list[asyncio.Task[None]] = []
        self._checkpointing = asyncio.Lock()
        """Two checkpoints at once would write the same temporary files."""
        self._flushed = False
        """Whether a recovery point moved since the checkpoint was written."""

    def start(self) -> None:
        """Begin every job."""
        settings = self._context.settings
        jobs: list[tuple[str, float, Callable[[], Awaitable[None]]]] = [
            ("flush", FLUSH_CHECK_S, self._flush),
            ("checkpoint after flushes", FLUSHED_CHECK_S, self._checkpoint_flushed),
            ("probe full disks", PROBE_S, self._probe),
            ("sweep connections", SWEEP_S, self._sweep_connections),
            ("retention", settings.log_retention_check_interval_ms / 1000, self._retain),
            (
                "checkpoints",
                settings.replica_high_watermark_checkpoint_interval_ms / 1000,
                self._checkpoint,
            ),
            ("lag check", settings.replica_lag_time_max_ms / 2000, self._check_lag),
            (
                "producer expiry",
                settings.producer_id_expiration_check_interval_ms / 1000,
                self._expire_producers,
            ),
        ]
        for name, interval_s, job in jobs:
            self._running.append(self._tasks.spawn(self._repeat(name, interval_s, job), name))

    def stop(self) -> None:
        """End every job."""
        for task in self._running:
            task.cancel()

    async def _repeat(
        self, name: str, interval_s: float, job: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await job()
            except Exception:
                log.exception("%s failed; it is tried again in %.0f s", name, interval_s)

    # -- disks

    async def _flush(self) -> None:
        now_ms = self._context.clock.wall_ms()
        written, self._context.tick.written = self._context.tick.written, {}
        for replica in filter(self._hosted, written):
            if replica.flushing or not replica.log.flush_due(now_ms):
                self._context.tick.written[replica] = None
            else:
                replica.flushing = True
                self._tasks.spawn(self._flush_one(replica), f"flush {replica.topic_partition}")

    async def _flush_one(self, replica: Replica) -> None:
        work = None
        try:
            work = replica.log.unflushed()
            if work is not None:
                await self._tasks.in_thread(work.run)
        except Exception as failure:  # noqa: BLE001 - the replica tells one kind from another
            replica.flush_failed(work, failure)
            self._context.tick.written[replica] = None
            return
        if work is None:
            replica.flush_skipped()
        else:
            replica.flushed(work)
            self._flushed = True

    def _hosted(self, replica: Replica) -> bool:
        return self._context.replicas.get(*replica.topic_partition) is replica

    async def _probe(self) -> None:
        if self._health.any_full:
            self._health.probe(self._context.replicas)
        if self._context.replicas.retry_lost():
            self._context.changed()

    async def _checkpoint_flushed(self) -> None:
        """A flush saves a recovery its scan only once the recovery point is on the disk too."""
        if self._flushed:
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        async with self._checkpointing:
            self._flushed = False
            replicas = self._context.replicas
            marks = {
                replica.topic_partition: replica.partition.high_watermark for replica in replicas
            }
            await self._tasks.in_thread(replicas.log_dirs.checkpoint(marks))

    async def _retain(self) -> None:
        now_ms = self._context.clock.wall_ms()
        for rank, replica in enumerate(list(self._context.replicas)):
            if rank % CHUNK == CHUNK - 1:
                await asyncio.sleep(0)
            if replica.offline is None and replica.log.retain(
                now_ms, replica.partition.high_watermark
            ):
                self._unlink_later(replica)

    def _unlink_later(self, replica: Replica) -> None:
        """Dropped segments stay for reads that are under way."""
        garbage, replica.log.garbage = replica.log.garbage, []
        files = self._context.files

        def unlink() -> None:
            for path in garbage:
                with suppress(FileNotFoundError):
                    files.unlink(path)

        async def wait_and_unlink() -> None:
            await asyncio.sleep(replica.log.settings.file_delete_delay_ms / 1000)
            await self._tasks.in_thread(unlink)

        name = f"unlink {len(garbage)} files of {replica.topic_partition}"
        self._running.append(self._tasks.spawn(wait_and_unlink(), name))

    # -- clients and replicas

    async def _sweep_connections(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        limit_ms = self._context.settings.connections_max_idle_ms
        for rank, connection in enumerate(list(self._context.doorkeeper.open)):
            if rank % CHUNK == CHUNK - 1:
                await asyncio.sleep(0)
            if isinstance(connection, Connection):
                _sweep(connection, now_ms, limit_ms)

    async def _check_lag(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        for replica in list(self._context.replicas):
            replica.run(replica.partition.lag_checked(now_ms))

    async def _expire_producers(self) -> None:
        before_ms = self._context.clock.wall_ms() - self._context.settings.producer_id_expiration_ms
        for replica in list(self._context.replicas):
            replica.log.producers.expire(before_ms)


def _sweep(connection: Connection, now_ms: int, limit_ms: int) -> None:
    """Close a connection that said nothing for too long; give back what a quiet one holds."""
    idle_ms = connection.idle.for_ms(now_ms, connection.frames_taken)
    if 0 <= limit_ms < idle_ms and not connection.slots:
        if connection.gone:
            connection.abort()  # closed before this, but the peer does not take its last answers
        else:
            connection.close()
    elif idle_ms > SWEEP_S * 1000:
        connection.shrink()
