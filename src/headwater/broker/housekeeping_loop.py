"""Background jobs of a broker: flushes, checkpoints, retention, idle connections.

Each job is a named task that repeats; a failure is logged and the job runs again. Disk I/O runs on a
file thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from headwater.broker.context import Context
from headwater.broker.disk_reserve import DiskReserve
from headwater.broker.server_connection import ServerConnection
from headwater.broker.storage_health import StorageHealth
from headwater.broker.wall_clock import LastTime
from headwater.config.keys import ConfigError
from headwater.errors import KafkaError
from headwater.log.flushing import FlushWork
from headwater.log.log_dir_checkpoints import CheckpointFailed
from headwater.model import TopicPartition
from headwater.replication.replica import Replica
from headwater.seams.tasks import Lane, Tasks

log = logging.getLogger("headwater.server")

FLUSH_CHECK_S = 0.5
"""A flush slows concurrent writes, so heavy load is flushed twice a second, not every 64 MiB."""
AGE_CHECK_MS = 5000
"""How often the age of unflushed data is checked: a log that is not written meanwhile is due only by it."""
FLUSHED_CHECK_S = 0.25
LOGS_PER_CHECK = 500
"""A broker with N times as many logs writes the checkpoint after N + 1 checks: 10,000 every 5 s."""
PROBE_S = 1.0
MEMORY_CHECK_S = 2.0
SWEEP_S = 5.0
KEY_STORE_CHECK_S = 5.0
CHUNK = 500
"""Partitions that a job checks before it yields to the loop."""
OPENED_A_STEP = 10
"""Partitions that one step opens: each takes some files."""
FLUSH_LANES = 2
FLUSH_BITE = 8
"""Partitions that one call to a file thread flushes one after another."""


class Housekeeping:
    """The background jobs of one broker."""

    def __init__(
        self,
        context: Context,
        tasks: Tasks,
        health: StorageHealth,
        reserve: DiskReserve,
        last_time: LastTime | None = None,
    ) -> None:
        self._context = context
        self._tasks = tasks
        self._health = health
        self._reserve = reserve
        self._running: set[asyncio.Task[None]] = set()
        self._wall = context.wall_clock
        self._last_time = last_time
        self._looked_ms = context.clock.monotonic_ms()
        """When the written partitions were last checked."""
        self._aging: dict[Replica, None] = {}
        """Partitions with unflushed data whose flush becomes due by its age, or by more writes."""
        self._ages_checked_ms = self._looked_ms
        self._due: deque[Replica] = deque()
        """Partitions that wait for a flush."""
        self._lanes = 0
        self._checkpointing = asyncio.Lock()
        """Two checkpoints at once would write the same temporary files."""
        self._flushed = False
        """Whether a recovery point moved since the checkpoint was written."""
        self._checks_skipped = 0
        self._retention_failures: dict[TopicPartition, str] = {}
        """Why the last pass of retention failed over a partition."""

    def start(self) -> None:
        """Start every job."""
        settings = self._context.settings
        jobs: list[tuple[str, float, Callable[[], Awaitable[None]]]] = [
            ("flush", FLUSH_CHECK_S, self._flush),
            ("checkpoint after flushes", FLUSHED_CHECK_S, self._checkpoint_flushed),
            ("probe full disks", PROBE_S, self._probe),
            ("sweep connections", SWEEP_S, self._sweep_connections),
            ("free memory", MEMORY_CHECK_S, self._free_memory),
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
        if self._context.listener_tls:
            jobs.append(("key stores", KEY_STORE_CHECK_S, self._reload_key_stores))
        for name, interval_s, job in jobs:
            self._keep(self._tasks.spawn(self._repeat(name, interval_s, job), name))

    def _keep(self, task: "asyncio.Task[None]") -> None:
        """Cancel the task at the stop, unless it ends before."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def stop(self) -> None:
        """Stop every job."""
        for task in self._running:
            task.cancel()

    async def _repeat(
        self, name: str, interval_s: float, job: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await job()
            except OSError as failure:
                log.error(
                    "background job '%s' failed: %s; retrying in %.0f s", name, failure, interval_s
                )
            except Exception:
                log.exception("background job '%s' failed; retrying in %.0f s", name, interval_s)

    # -- disks

    async def _flush(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        written, self._context.tick.written = self._context.tick.written, {}
        if now_ms - self._ages_checked_ms >= AGE_CHECK_MS:
            written = {**self._aging, **written}
            self._aging, self._ages_checked_ms = {}, now_ms
        try:
            for rank, replica in enumerate(written):
                if rank % CHUNK == CHUNK - 1:
                    await asyncio.sleep(0)
                self._announce_flush(replica, now_ms)
        finally:
            self._start_flush_lanes()  # a stop that cancels this job waits for announced flushes
        self._looked_ms = now_ms

    def _announce_flush(self, replica: Replica, now_ms: int) -> None:
        if not self._hosted(replica):
            return
        if replica.flushes.announce(now_ms, self._looked_ms):
            self._due.append(replica)
        elif replica.flushes.due_by_age:
            self._aging[replica] = None
        elif replica.flushes.pending:
            self._context.tick.written[replica] = None

    def _start_flush_lanes(self) -> None:
        while self._due and self._lanes < FLUSH_LANES:
            self._lanes += 1
            self._tasks.spawn(self._flush_lane(), f"flush lane {self._lanes}")

    async def _flush_lane(self) -> None:
        """Flush what is due, a few partitions at a time: thousands at once would hold the loop."""
        try:
            while self._due:
                count = min(FLUSH_BITE, len(self._due))
                await self._flush_some([self._due.popleft() for _ in range(count)])
        finally:
            self._lanes -= 1

    async def _flush_some(self, replicas: Sequence[Replica]) -> None:
        works: list[tuple[Replica, FlushWork]] = []
        for replica in replicas:
            try:
                work = replica.flushes.begin()
            except Exception as failure:  # noqa: BLE001 - the replica tells one kind from another
                self._flush_failed(replica, None, failure)
            else:
                if work is not None:
                    works.append((replica, work))
        if not works:
            return
        run = partial(_run_works, [work for _, work in works])
        failures = await self._tasks.in_thread(run, Lane.FLUSH)
        for (replica, work), failed in zip(works, failures, strict=True):
            try:
                if failed is not None:
                    self._flush_failed(replica, work, failed)
                else:
                    replica.flushes.flushed(work)
                    self._flushed = True
            except Exception:
                # The others of the lane must not stay marked as flushing: a stop waits for them.
                log.exception("answering after a flush of %s failed", replica.topic_partition)

    def _flush_failed(self, replica: Replica, work: FlushWork | None, failure: Exception) -> None:
        replica.flushes.failed(work, failure)
        self._context.tick.written[replica] = None

    def _hosted(self, replica: Replica) -> bool:
        return self._context.replicas.get(*replica.topic_partition) is replica

    async def _probe(self) -> None:
        if self._health.full_dirs:
            self._health.probe(self._context.replicas)
        elif self._reserve.missing:
            await self._tasks.in_thread(self._reserve.make)
        opened = False
        for tried, is_open in enumerate(self._context.replicas.retry_offline(), 1):
            opened = opened or is_open
            if tried % OPENED_A_STEP == 0:
                await asyncio.sleep(0)
        if opened:
            self._context.changed()

    async def _checkpoint_flushed(self) -> None:
        """Write the checkpoint after flushes: recovery skips flushed data only by its recovery point.

        A checkpoint names every log, so a broker with many logs writes one less often.
        """
        moved = self._context.moved_starts
        if not self._flushed and not moved:
            return
        if self._checks_skipped < len(self._context.replicas.log_dirs.logs) // LOGS_PER_CHECK:
            self._checks_skipped += 1
            return
        self._checks_skipped = 0
        for replica in moved:
            if not replica.upkeep.start_is_flushed:
                replica.flushes.flush()
        try:
            await self._checkpoint()
        finally:
            self._starts_stored()

    def _starts_stored(self) -> None:
        """Let requests continue that wait for the start of a log to be stored."""
        moved, self._context.moved_starts = self._context.moved_starts, {}
        for replica in moved:
            if not self._hosted(replica) or replica.offline is not None:
                continue
            if not replica.upkeep.start_is_stored:
                self._context.moved_starts[replica] = None
            else:
                replica.wake_watchers()
                self._context.replica_fetchers.start_stored(replica)

    async def _checkpoint(self) -> None:
        async with self._checkpointing:
            self._flushed = False
            replicas = self._context.replicas

            def high_watermark_of(at: TopicPartition) -> int | None:
                replica = replicas.get(*at)
                return None if replica is None else replica.high_watermark

            checkpoint = replicas.log_dirs.next_checkpoint(high_watermark_of)
            for _ in checkpoint.collect():
                await asyncio.sleep(0)
            try:
                await self._tasks.in_thread(checkpoint.write)
            except CheckpointFailed as failed:
                self._health.checkpoint_failed(replicas, failed)
        now_ms = self._wall.believed_ms()
        if self._last_time is not None and self._last_time.is_due(now_ms):
            await self._tasks.in_thread(partial(self._last_time.note, now_ms))

    async def _retain(self) -> None:
        """Apply retention; partitions whose only segment has expired come last, since they need a new one."""
        now_ms = self._wall.believed_ms()
        for at in [
            at for at in self._retention_failures if self._context.replicas.get(*at) is None
        ]:
            del self._retention_failures[at]
        rolling = [
            replica
            async for replica in self._each_replica()
            if await self._retain_one(replica, now_ms, may_roll=False)
        ]
        for replica in rolling:
            await self._retain_one(replica, now_ms, may_roll=True)

    async def _retain_one(self, replica: Replica, now_ms: int, *, may_roll: bool) -> bool:
        """Drop expired segments in steps; return whether the rest waits for a roll."""
        more = True
        needs_roll = False
        while more and self._may_retain(replica):
            try:
                done = replica.upkeep.retain(now_ms, may_roll=may_roll)
                more, needs_roll = done.more, done.needs_roll
                self._retention_failures.pop(replica.topic_partition, None)
            except Exception as failure:  # noqa: BLE001 - one partition never stops the pass
                self._retention_failed(replica, failure)
                more = False
            if more:
                await asyncio.sleep(0)
        garbage = replica.upkeep.pop_garbage()
        if garbage:
            self.unlink_later(replica, garbage)
        elif may_roll:
            await asyncio.sleep(0)
        return needs_roll

    def _may_retain(self, replica: Replica) -> bool:
        return replica.offline is None and not replica.following.cutting and self._hosted(replica)

    def _retention_failed(self, replica: Replica, failure: Exception) -> None:
        """Log a failure that the previous pass did not have; continue with the other partitions."""
        at, reason = replica.topic_partition, f"{type(failure).__name__}: {failure}"
        if self._retention_failures.get(at) != reason:
            self._retention_failures[at] = reason
            expected = isinstance(failure, OSError | KafkaError)
            log.warning(
                "retention of %s failed, retrying in the next pass: %s",
                at,
                failure if expected else reason,
                exc_info=None if expected else failure,
            )
        if isinstance(failure, OSError) and not replica.upkeep.is_damaged:
            self._health.failed(self._context.replicas, replica, failure, flushing=False)

    async def _each_replica(self) -> AsyncIterator[Replica]:
        """Yield every partition that still exists; the loop runs after each CHUNK of them."""
        for rank, replica in enumerate(list(self._context.replicas)):
            if rank % CHUNK == CHUNK - 1:
                await asyncio.sleep(0)
            if self._hosted(replica):
                yield replica

    def unlink_later(self, replica: Replica, garbage: list[str]) -> None:
        """Delete dropped segments after a delay, for reads in flight."""
        files = self._context.files

        def unlink() -> None:
            for path in garbage:
                with suppress(FileNotFoundError):
                    files.unlink(path)

        async def wait_and_unlink() -> None:
            await asyncio.sleep(replica.upkeep.file_delete_delay_ms / 1000)
            await self._tasks.in_thread(unlink)

        name = f"unlink {len(garbage)} files of {replica.topic_partition}"
        self._keep(self._tasks.spawn(wait_and_unlink(), name))

    # -- clients and replicas

    async def _sweep_connections(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        limit_ms = self._context.settings.connections_max_idle_ms
        for rank, connection in enumerate(list(self._context.connection_quotas.open)):
            if rank % CHUNK == CHUNK - 1:
                await asyncio.sleep(0)
            if isinstance(connection, ServerConnection):
                _sweep(connection, now_ms, limit_ms)

    async def _reload_key_stores(self) -> None:
        """Use key stores that have changed for new connections."""
        settings = self._context.settings
        for tls in self._context.listener_tls.values():
            try:
                fresh = await self._tasks.in_thread(partial(tls.read_if_changed, settings))
            except (ConfigError, OSError) as problem:
                why = problem.message if isinstance(problem, ConfigError) else str(problem)
                if tls.refused != why:
                    log.error("a changed key store is not used: %s", why)
                tls.refused = why
                continue
            tls.refused = ""
            if fresh is not None:
                tls.store = fresh
                log.info(
                    "listener %s uses its changed key store: %s, valid until %s",
                    tls.name,
                    fresh.certificate.subject,
                    fresh.certificate.not_after,
                )

    async def _free_memory(self) -> None:
        """Close connections that hold memory without progress while others wait for it."""
        memory = self._context.memory
        for holder in memory.stuck():
            if isinstance(holder, ServerConnection):
                self._context.peer_log.warning(
                    "memory",
                    holder.host,
                    f"closed a connection that held {memory.held.get(holder, 0)} bytes and made no "
                    "progress, while others waited for memory (queued.max.request.bytes)",
                )
                holder.abort()
                holder.leave_budget()
            if not memory.waiting and memory.used <= memory.limit:
                break

    async def _check_lag(self) -> None:
        async for replica in self._each_replica():
            replica.leading.check_lag()

    async def _expire_producers(self) -> None:
        before_ms = self._wall.believed_ms() - self._context.settings.producer_id_expiration_ms
        async for replica in self._each_replica():
            if not replica.following.cutting:
                replica.upkeep.expire_producers(before_ms)


def _run_works(works: Sequence[FlushWork]) -> list[Exception | None]:
    """Run flushes one after another; return the exception of each, or None."""
    failures: list[Exception | None] = []
    for work in works:
        try:
            work.run()
        except Exception as failure:  # noqa: BLE001 - the owner of each log handles its own
            failures.append(failure)
        else:
            failures.append(None)
    return failures


def _sweep(connection: ServerConnection, now_ms: int, limit_ms: int) -> None:
    """Close a connection that was idle for too long; free the buffer of a quiet one."""
    idle_ms = connection.idle.for_ms(now_ms, connection.frames_read)
    if 0 <= limit_ms < idle_ms and not connection.pending:
        if connection.gone:
            connection.abort()  # already closed, but the peer does not read its last responses
        else:
            connection.close()
    elif idle_ms > SWEEP_S * 1000:
        connection.shrink()
