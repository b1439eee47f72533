"""Finds initial positions: the group's commits, otherwise auto.offset.reset.

Runs in the background of poll() and never delays records of other partitions. If a position cannot
be determined, the next poll raises the error.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from headwater.client.cluster import Cluster
from headwater.client.consumer.fetching.fetcher_loop import RESET_TO, Fetcher
from headwater.client.consumer.offset_lookups import OffsetLookups
from headwater.client.consumer.partition_state import PartitionState
from headwater.client.consumer.record import OffsetAndMetadata, OffsetAndTimestamp
from headwater.client.consumer.subscription import Subscription
from headwater.client.errors import NoOffsetForPartitionError, internal_error
from headwater.errors import KafkaError
from headwater.model import LATEST, TopicPartition
from headwater.seams.tasks import LoopTasks

log = logging.getLogger(__name__)

_WAIT_S = 0.1

Committed = Callable[
    [Sequence[TopicPartition]], Awaitable[dict[TopicPartition, OffsetAndMetadata | None]]
]


class PositionResolver:
    """Finds the positions of partitions that have none."""

    def __init__(
        self,
        reset_policy: str,
        cluster: Cluster,
        subscription: Subscription,
        fetcher: Fetcher,
        lookups: OffsetLookups,
        tasks: LoopTasks,
        committed: Committed | None,
    ) -> None:
        self._policy = reset_policy
        self._cluster = cluster
        self._subscription = subscription
        self._fetcher = fetcher
        self._lookups = lookups
        self._tasks = tasks
        self._committed = committed
        self._searches: set[asyncio.Task[None]] = set()
        # Lookups in progress; a partition that was moved by a seek needs a new one.
        self._sought: dict[PartitionState, int] = {}

    def unresolved(self) -> list[PartitionState]:
        """Return the partitions without a position."""
        return [
            state
            for state in self._subscription.partitions.values()
            if state.position is None and not state.leaving
        ]

    def start(self) -> None:
        """Start a lookup for the partitions that have none in progress."""
        states = [p for p in self.unresolved() if self._sought.get(p) != p.version]
        if states:
            self._mark_sought(states)
            search = self._tasks.spawn(self._run(states), "find positions")
            self._searches.add(search)
            search.add_done_callback(self._searches.discard)

    def _mark_sought(self, states: list[PartitionState]) -> None:
        self._sought.update({state: state.version for state in states})

    async def resolve(self) -> None:
        """Start a lookup and wait briefly: most positions are found long before the last one."""
        self.start()
        if self._searches:
            await asyncio.wait(self._searches, timeout=_WAIT_S, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Cancel the lookups."""
        for search in self._searches:
            search.cancel()
        await asyncio.gather(*self._searches, return_exceptions=True)

    async def _run(self, states: list[PartitionState]) -> None:
        try:
            await self._from_commits([state for state in states if state.reset is None])
            unknown = [p for p in states if p.position is None and p.reset is not None]
            self._mark_sought(unknown)
            await self._from_times(unknown)
        except KafkaError as problem:
            if problem.code.retriable:
                log.info("positions are not known yet: %s", problem)
                self._fetcher.poll_wakeup.set()
            else:
                self._fetcher.fail(problem)
        except Exception as fault:  # noqa: BLE001 - logged, and raised by poll() or position()
            self._fetcher.fail(internal_error("the lookup of positions", fault))
        finally:
            for state in states:
                self._sought.pop(state, None)

    async def _from_commits(self, states: list[PartitionState]) -> None:
        if not states:
            return
        versions = {state.key: state.version for state in states}
        committed = await self._committed(list(versions)) if self._committed is not None else {}
        lost = []
        for state in states:
            offset = committed.get(state.key)
            if state.position is not None or state.version != versions[state.key]:
                continue  # a seek came first
            if offset is not None:
                state.seek(offset.offset, offset.leader_epoch)
            elif (timestamp := RESET_TO.get(self._policy)) is not None:
                state.seek_to_timestamp(timestamp)
            else:
                lost.append(state.key)
        self._fetcher.changed(at_once=True)
        if lost:
            raise NoOffsetForPartitionError(
                f"nothing is committed for {', '.join(map(str, lost))}, and auto.offset.reset is "
                "none: call seek() to choose a position, or set it to earliest or latest"
            )

    async def _from_times(self, states: list[PartitionState]) -> None:
        if not states:
            return
        asked = {state.key: (state, state.version, state.reset or 0) for state in states}
        late: list[TopicPartition] = []

        def seek(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> None:
            for name, row in found.items():
                state, version, _ = asked[name]
                if row is None:
                    late.append(name)
                elif state.version == version:
                    state.seek(row.offset, row.leader_epoch)
            self._fetcher.changed(at_once=True)
            self._fetcher.poll_wakeup.set()

        try:
            await self._lookups.find({name: row[2] for name, row in asked.items()}, None, seek)
        finally:
            if late:
                ends = await self._lookups.ends(late, LATEST)
                seek({name: OffsetAndTimestamp(end, -1, -1) for name, end in ends.items()})
