"""The log cleaner: chooses the dirtiest compacted logs and has workers clean them.

Internal topics come first: a coordinator reads the whole log of its partition. A worker is a process
that starts with the first log to clean and ends when there is none. One that dies is replaced and
counted. A log that cannot be cleaned is set aside with the reason until the broker restarts; the
others go on.
"""

import asyncio
import errno
import logging
from bisect import insort
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from headwater.broker.context import Context
from headwater.broker.storage_health import StorageHealth
from headwater.log.compaction.dirtiness import Dirtiness
from headwater.log.compaction.jobs import (
    DISK,
    CleanedGroup,
    CleaningFailed,
    CleaningJob,
    PassDone,
    decode_answer,
    encode_job,
)
from headwater.log.compaction.report import FILE_NAME, write_report
from headwater.log.descriptors import EXHAUSTED
from headwater.log.folders import name_of
from headwater.model import INTERNAL_TOPICS, TopicPartition, Uuid
from headwater.replication.cleaning import CleaningLimits, ReplicaCleaning
from headwater.replication.replica import Replica
from headwater.seams.tasks import MOST_CLEANED_AT_ONCE, Lane, Tasks
from headwater.seams.workers import Worker, WorkerDied, Workers

log = logging.getLogger("headwater.server")

WORKER = "headwater.log.compaction.worker"
STEPS = 500
"""Partitions and segments that are looked at before the loop runs again."""
LEAST_PAUSE_S = 0.05
LEAST_LOAD = 0.1
RETRY_MS = 60_000
MOST_DEATHS = 3
"""A log over which as many workers died in a row is set aside."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
_LACKING = EXHAUSTED | {errno.ENOMEM, errno.EAGAIN}
"""The machine lacks open files or memory, perhaps only for a moment."""
_MIB = 1 << 20


class _NoWorker(Exception):
    """No process could be started: the machine lacks memory, processes or open files."""


@dataclass(slots=True)
class _Trouble:
    """A log whose last pass failed."""

    deaths: int
    retry_at_ms: int


class LogCleaner:
    """Compacts the logs of one broker."""

    def __init__(
        self,
        context: Context,
        tasks: Tasks,
        workers: Workers | None,
        health: StorageHealth,
        unlink_later: Callable[[Replica, list[str]], None],
    ) -> None:
        self._context = context
        self._tasks = tasks
        self._workers = workers
        self._health = health
        self._unlink_later = unlink_later
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}
        self._chooser: asyncio.Task[None] | None = None
        self._idle: list[Worker] = []
        self._busy: list[Worker] = []
        self._stopped = False
        self._pass_ended = asyncio.Event()
        self._trouble: dict[TopicPartition, _Trouble] = {}
        # The logs that were set aside, with the reasons.
        self.uncleanable: dict[TopicPartition, str] = {}
        # The ids of the topics that this is about: another one may take the name.
        self._topic_ids: dict[TopicPartition, Uuid] = {}
        self.passes = 0
        self.worker_deaths = 0
        self.read_bytes = 0
        self.kept_bytes = 0
        self.last_pass_ms = 0
        self.dirtiest_ratio = 0.0
        self.most_overdue_ms = 0
        self._checked_ms = 0

    @property
    def idle_ms(self) -> int:
        """How long ago logs were last checked; 0 while the cleaner is off."""
        if self._chooser is None:
            return 0
        return self._context.clock.monotonic_ms() - self._checked_ms

    def start(self) -> None:
        """Begin to look for dirty logs."""
        if self._workers is not None and self._context.settings.log_cleaner_enable:
            self._forget_reported()
            self._checked_ms = self._context.clock.monotonic_ms()
            self._chooser = self._tasks.spawn(self._run(), "log cleaner")

    def stop(self) -> None:
        """End every pass and every worker; what was not swapped in is lost."""
        self._stopped = True
        for task in (self._chooser, *self._running.values()):
            if task is not None:
                task.cancel()
        for worker in (*self._idle, *self._busy):
            worker.end()

    # -- choosing

    async def _run(self) -> None:
        while True:
            pause_s = self._pause_s
            try:
                async with asyncio.timeout(pause_s):
                    await self._pass_ended.wait()
            except TimeoutError:
                pass
            self._pass_ended.clear()
            try:
                await self._begin_passes()
            except Exception:
                log.exception("choosing a log to compact failed; retrying in %.0f s", pause_s)

    @property
    def _pause_s(self) -> float:
        return max(self._context.settings.log_cleaner_backoff_ms / 1000, LEAST_PAUSE_S)

    @property
    def _threads(self) -> int:
        return min(self._context.settings.log_cleaner_threads, MOST_CLEANED_AT_ONCE)

    async def _begin_passes(self) -> None:
        """Begin passes over the dirtiest logs, as many as `log.cleaner.threads` allows."""
        now_ms = self._context.wall_clock.believed_ms()
        dirtiest: list[tuple[Replica, Dirtiness]] = []
        async for row in self._dirty_logs(now_ms):
            insort(dirtiest, row, key=_urgency)
            del dirtiest[self._threads :]
        for replica, _ in dirtiest[: max(0, self._threads - len(self._running))]:
            at = replica.topic_partition
            name = f"compaction of {at}"
            self._running[at] = self._tasks.spawn(self._run_pass(replica, now_ms), name)
        if not self._running:
            while self._idle:
                await self._end_worker(self._idle.pop())

    async def _dirty_logs(self, now_ms: int) -> AsyncIterator[tuple[Replica, Dirtiness]]:
        ratio, overdue_ms = 0.0, 0
        self._forget_removed()
        steps = 0
        for replica in list(self._context.replicas):
            steps += 1
            if steps >= STEPS:
                await asyncio.sleep(0)
                steps = 0
            if not self._may_clean(replica):
                continue
            steps += replica.upkeep.segment_count
            if replica.upkeep.has_unflushed_segments:
                replica.flushes.flush()
                steps = STEPS
            try:
                await self._read_times(replica)
                found = replica.upkeep.dirtiness(now_ms)
            except Exception as failure:  # noqa: BLE001 - one bad log does not stop the others
                if not self._is_passing(replica, failure):
                    await self._set_aside(replica, f"its segments cannot be read: {failure}")
                continue
            ratio, overdue_ms = max(ratio, found.ratio), max(overdue_ms, found.overdue_ms)
            if replica.upkeep.should_be_cleaned(found):
                yield replica, found
        self.dirtiest_ratio, self.most_overdue_ms = ratio, overdue_ms
        self._checked_ms = self._context.clock.monotonic_ms()

    async def _read_times(self, replica: Replica) -> None:
        """Read what compaction must know about the age of records, on a thread."""
        read = replica.upkeep.times_to_read()
        if read is not None:
            replica.upkeep.note_times(await self._tasks.in_thread(read, Lane.CLEANING))

    def _may_clean(self, replica: Replica) -> bool:
        at = replica.topic_partition
        if at in self.uncleanable or at in self._running:
            return False
        trouble = self._trouble.get(at)
        if trouble is not None and trouble.retry_at_ms > self._context.clock.monotonic_ms():
            return False
        return self._is_ready(replica)

    def _is_ready(self, replica: Replica) -> bool:
        return (
            replica.upkeep.may_be_cleaned
            and self._is_hosted(replica)
            and replica.offline is None
            and not replica.following.cutting
            and not replica.flushes.held
        )

    def _is_hosted(self, replica: Replica) -> bool:
        return self._context.replicas.get(*replica.topic_partition) is replica

    def _forget_removed(self) -> None:
        """Forget what is known of logs that this broker no longer has."""
        known = self._context.replicas.log_dirs.logs
        for at, topic_id in list(self._topic_ids.items()):
            if at not in known or known[at].topic_id != topic_id:
                del self._topic_ids[at]
                self.uncleanable.pop(at, None)
                self._trouble.pop(at, None)

    # -- one pass

    async def _run_pass(self, replica: Replica, now_ms: int) -> None:
        at = replica.topic_partition
        worker: Worker | None = None
        try:
            worker = await self._take_worker()
            # Retention or a truncation may have changed the log since it was chosen: measure again,
            # and let nothing come between that and the begin of the pass.
            found = replica.upkeep.dirtiness(now_ms) if self._is_ready(replica) else None
            if found is None or not found.dirty_bytes:
                await self._release_worker(worker, reusable=True)
            else:
                await self._clean(replica, found, worker, now_ms)
        except _NoWorker as failure:
            self._retry_later(replica)
            log.warning(
                "no process to compact %s, retrying in %d s: %s", at, RETRY_MS // 1000, failure
            )
        except Exception as defect:
            if worker in self._busy:
                await self._release_worker(worker, reusable=False)
            if not self._is_passing(replica, defect):
                log.exception("the compaction of %s failed", at)
                await self._set_aside(replica, f"the cleaner failed: {defect}")
        finally:
            del self._running[at]
            self._pass_ended.set()

    async def _clean(self, replica: Replica, found: Dirtiness, worker: Worker, now_ms: int) -> None:
        at = replica.topic_partition
        cleaning = ReplicaCleaning(replica)
        began_ms = self._context.clock.monotonic_ms()
        finished = False
        try:
            job = cleaning.job(found, self._limits(), self._context.randomness.uuid(), now_ms)
            begin = partial(_begin, worker, job, self._rate())
            await self._tasks.in_thread(begin, Lane.CLEANING)
            finished = await self._follow(replica, cleaning, worker)
            self.last_pass_ms = self._context.clock.monotonic_ms() - began_ms
        except WorkerDied as death:
            await self._worker_died(replica, str(death))
        except CleaningFailed as failure:
            finished = True
            await self._failed(replica, failure)
        except OSError as failure:
            self._retry_later(replica)
            log.error("the segments of %s could not be swapped: %s", at, failure)
            self._health.failed(self._context.replicas, replica, failure, flushing=False)
        finally:
            cleaning.end()
        await self._release_worker(worker, reusable=finished)
        await self._tasks.in_thread(cleaning.remove_leftovers)

    async def _follow(self, replica: Replica, cleaning: ReplicaCleaning, worker: Worker) -> bool:
        """Swap new segments in as the worker completes them; return False if the log has changed."""
        while True:
            line = await self._tasks.in_thread(worker.next_answer, Lane.CLEANING)
            if line is None:
                return True
            answer = decode_answer(line) if cleaning.is_valid else None
            if isinstance(answer, PassDone):
                await self._end_pass(replica, cleaning, answer)
            elif answer is None or not await self._swap(cleaning, answer):
                log.info("compaction of %s ends: its log has changed", replica.topic_partition)
                return False
            else:
                self._unlink_later(replica, replica.upkeep.pop_garbage())

    async def _end_pass(
        self, replica: Replica, cleaning: ReplicaCleaning, answer: PassDone
    ) -> None:
        try:
            await self._tasks.in_thread(cleaning.sync)
        except OSError as failure:
            log.error("the folder of %s could not be synced: %s", replica.topic_partition, failure)
            self._health.failed(self._context.replicas, replica, failure, flushing=True)
        else:
            cleaning.cleaned_to(answer.cleaned_to)
            self._done(replica, answer)

    async def _swap(self, cleaning: ReplicaCleaning, group: CleanedGroup) -> bool:
        swapped: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(result: bool, failure: OSError | None) -> None:
            if swapped.done():
                return  # the broker stops
            if failure is not None:
                swapped.set_exception(failure)
            else:
                swapped.set_result(result)

        cleaning.swap(group, done)
        return await swapped

    def _done(self, replica: Replica, done: PassDone) -> None:
        self.passes += 1
        self.read_bytes += done.read_bytes
        self.kept_bytes += done.kept_bytes
        self._trouble.pop(replica.topic_partition, None)
        log.info(
            "compacted %s up to offset %d: %d of %d records and %.1f of %.1f MiB remain, %d keys",
            replica.topic_partition,
            done.cleaned_to,
            done.kept_records,
            done.read_records,
            done.kept_bytes / _MIB,
            done.read_bytes / _MIB,
            done.keys,
        )

    def _limits(self) -> CleaningLimits:
        settings = self._context.settings
        threads = max(1, self._threads)
        return CleaningLimits(
            settings.log_cleaner_dedupe_buffer_size // threads,
            min(1.0, max(LEAST_LOAD, settings.log_cleaner_io_buffer_load_factor)),
            settings.log_cleaner_io_buffer_size // threads,
        )

    def _rate(self) -> float:
        rate = self._context.settings.log_cleaner_io_max_bytes_per_second
        return max(1.0, rate / max(1, self._threads))

    # -- workers

    async def _take_worker(self) -> Worker:
        if self._idle:
            worker = self._idle.pop()
        else:
            try:
                worker = await self._tasks.in_thread(self._start_worker, Lane.CLEANING)
            except OSError as failure:
                raise _NoWorker(failure) from failure
        self._busy.append(worker)
        return worker

    def _start_worker(self) -> Worker:
        assert self._workers is not None
        worker = self._workers.start(WORKER)
        if self._stopped:
            worker.end()
        return worker

    async def _release_worker(self, worker: Worker, *, reusable: bool) -> None:
        """Keep a worker for the next pass, or end one that is dead or whose work is not needed."""
        self._busy.remove(worker)
        if reusable:
            self._idle.append(worker)
        else:
            await self._end_worker(worker)

    async def _end_worker(self, worker: Worker) -> None:
        await self._tasks.in_thread(worker.end, Lane.CLEANING)

    # -- failures

    async def _worker_died(self, replica: Replica, how: str) -> None:
        at = replica.topic_partition
        self.worker_deaths += 1
        trouble = self._trouble.setdefault(at, _Trouble(0, 0))
        self._topic_ids[at] = replica.topic_id
        trouble.deaths += 1
        log.warning("a cleaning worker died during the compaction of %s: %s", at, how)
        if trouble.deaths >= MOST_DEATHS:
            await self._set_aside(
                replica, f"{trouble.deaths} workers died over it, the last: {how}"
            )

    async def _failed(self, replica: Replica, failure: CleaningFailed) -> None:
        at = replica.topic_partition
        if failure.kind == DISK and failure.errno == errno.ENOENT and not self._is_hosted(replica):
            return  # the partition was deleted meanwhile
        if failure.kind == DISK and failure.errno in _FULL:
            self._retry_later(replica)
            log.warning(
                "no room to compact %s, retrying in %d s: %s", at, RETRY_MS // 1000, failure
            )
            return
        if not self._is_passing(replica, failure):
            await self._set_aside(replica, str(failure))

    def _is_passing(self, replica: Replica, failure: Exception) -> bool:
        """Return whether the machine lacked something; the log is then tried again later."""
        lacking = getattr(failure, "errno", None) in _LACKING
        if lacking or isinstance(failure, MemoryError):
            at = replica.topic_partition
            self._retry_later(replica)
            log.warning(
                "too few open files or too little memory to compact %s, retrying in %d s: %s",
                at,
                RETRY_MS // 1000,
                failure,
            )
            return True
        return False

    def _retry_later(self, replica: Replica) -> None:
        at = replica.topic_partition
        self._trouble[at] = _Trouble(0, self._context.clock.monotonic_ms() + RETRY_MS)
        self._topic_ids[at] = replica.topic_id

    async def _set_aside(self, replica: Replica, why: str) -> None:
        at = replica.topic_partition
        self.uncleanable[at] = why
        self._topic_ids[at] = replica.topic_id
        log.error(
            "%s cannot be compacted and is set aside until a restart: %s; check it with "
            "`headwater log verify --compacted`",
            at,
            why,
        )
        await self._tasks.in_thread(self._report)

    def _report(self) -> None:
        """Write which logs are set aside, for `headwater log compaction`. For file threads."""
        dir_of = self._context.replicas.log_dirs.dir_of
        rows: dict[str, dict[str, str]] = {}
        for at, why in list(self.uncleanable.items()):
            try:
                rows.setdefault(dir_of(at).path, {})[name_of(at)] = why
            except KeyError:
                continue  # the partition was deleted meanwhile
        for path, reasons in rows.items():
            write_report(self._context.files, path, reasons)

    def _forget_reported(self) -> None:
        """Remove the reports of an earlier run: every log is tried again."""
        files = self._context.files
        for log_dir in self._context.replicas.log_dirs.dirs:
            path = log_dir.join(FILE_NAME)
            if not log_dir.offline and files.exists(path):
                with suppress(OSError):
                    files.unlink(path)


def _begin(worker: Worker, job: Callable[[], CleaningJob], rate: float) -> None:
    worker.begin(encode_job(job()), rate)


def _urgency(row: tuple[Replica, Dirtiness]) -> tuple[bool, float]:
    replica, found = row
    return replica.topic_partition.topic not in INTERNAL_TOPICS, -found.ratio
