"""The scrubber: reads sealed segments again, slowly, and finds damage before a reader does.

Off unless `log.scrub.bytes.per.second` is set. Damage is logged once, counted, and not served.
"""

import asyncio
import logging
from functools import partial

from headwater.broker.context import Context
from headwater.errors import KafkaError
from headwater.log.flushing import computed_checksums
from headwater.log.scrubbing import SegmentScrub
from headwater.log.segment import Segment
from headwater.replication.replica import Replica
from headwater.seams.tasks import Lane, Tasks

log = logging.getLogger("headwater.server")

PAUSE_S = 10.0
"""Between two passes over all logs, and before the first."""
CHUNK = 500
"""Partitions that are passed over before the loop runs again."""


class Scrubber:
    """Reads the sealed segments of one broker again and again."""

    def __init__(self, context: Context, tasks: Tasks) -> None:
        self._context = context
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        # Damaged segments by their paths: each counts once.
        self._damaged: set[str] = set()

    def start(self) -> None:
        """Begin the first pass after a pause."""
        if self._context.settings.log_scrub_bytes_per_second > 0:
            self._task = self._tasks.spawn(self._run(), "scrub")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            for rank, replica in enumerate(list(self._context.replicas)):
                if rank % CHUNK == CHUNK - 1:
                    await asyncio.sleep(0)
                if replica.offline is None:
                    await self._scrub_replica(replica)

    async def _scrub_replica(self, replica: Replica) -> None:
        sealed = [
            segment
            for segment in replica.upkeep.sealed_segments
            if segment.size and segment.path not in self._damaged
        ]
        for segment in sealed:
            if self._may_scrub(replica, segment):
                try:
                    await self._scrub(replica, segment)
                except (OSError, KafkaError) as failure:
                    log.warning("scrubbing %s failed: %s", segment.path, failure)

    async def _scrub(self, replica: Replica, segment: Segment) -> None:
        expected = replica.upkeep.expected_headers(segment)
        scrub = SegmentScrub(self._context.files, segment, expected)
        count = await self._tasks.in_thread(scrub.step, Lane.REMOVAL)
        while count and self._may_scrub(replica, segment):
            rate = max(1, self._context.settings.log_scrub_bytes_per_second)
            await asyncio.sleep(count / rate)
            count = await self._tasks.in_thread(scrub.step, Lane.REMOVAL)
        if scrub.damaged_at is not None:
            self._damaged.add(segment.path)
            self._context.metrics.damaged_segments += 1
        if scrub.proven and self._may_scrub(replica, segment):
            await self._save_checksums(replica, segment, scrub)

    async def _save_checksums(
        self, replica: Replica, segment: Segment, scrub: SegmentScrub
    ) -> None:
        """Give a sound segment its checksums, unless compaction or a truncation comes between."""
        segment.checksums.begin(indexes=False)
        presence = replica.upkeep.presence
        compute = partial(
            computed_checksums, self._context.files, segment, segment.size, presence, whole=True
        )
        content = await self._tasks.in_thread(compute, Lane.REMOVAL)
        if content is not None and scrub.is_valid and self._may_scrub(replica, segment):
            segment.checksums.write(content)

    def _may_scrub(self, replica: Replica, segment: Segment) -> bool:
        hosted = self._context.replicas.get(*replica.topic_partition) is replica
        return (
            hosted
            and replica.offline is None
            and not replica.following.cutting
            and not segment.moving_to
            and segment in replica.upkeep.sealed_segments
        )
