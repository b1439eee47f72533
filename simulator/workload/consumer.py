"""Consumers by assignment, which follow one partition and check everything."""

from collections.abc import Callable

from headwater.errors import E
from headwater.model import EARLIEST, TopicPartition
from simulator.cluster import Cluster
from simulator.incarnations import Attempt, Incarnation
from simulator.invariants import Promises
from simulator.workload.client import Client, Disturbed
from simulator.workload.reading import BY_ID, VERSIONS, Fetched, end_of, fetch


class Consumer(Client):
    """Reads a partition from its start on."""

    def __init__(self, cluster: Cluster, promises: Promises, name: str, at: TopicPartition) -> None:
        super().__init__(cluster, promises, name)
        self._at = at
        self._name = promises.names[at.topic]
        self._reading: Incarnation = self._name.newest
        """The topic that the position belongs to."""
        self._version = self.chance.choice(VERSIONS)
        self._position = 0
        self._power_cuts = 0

    async def run(self, done: Callable[[], bool]) -> None:
        """Read until `done`."""
        while not done():
            try:
                await self._poll()
            except Disturbed:
                await self.back_off()
        self.disconnect()

    async def _poll(self) -> None:
        power_cuts = self.cluster.node.power_cuts
        attempt = Attempt(None, self.cluster.scheduler.now_us)
        if self._version >= BY_ID:
            attempt.topic_id = await self.topic_id(self._at.topic)
        found = await fetch(
            self,
            self._at,
            self._position,
            newest=self._version,
            max_bytes=self.chance.choice((1, 500, 5000, 100_000)),
            wait_ms=self.chance.choice((0, 20, 200)),
        )
        attempt.answered(self.cluster.scheduler.now_us)
        if power_cuts != self.cluster.node.power_cuts or not self._still_reads(attempt):
            raise Disturbed
        error = self.check(found.error_code, E.OFFSET_OUT_OF_RANGE)
        if error is not E.NONE:
            await self._start_over()
            return
        self._power_cuts = power_cuts
        self._take(found)
        if not found.records:
            await self.pause(30)

    def _still_reads(self, attempt: Attempt) -> bool:
        """Return whether the answer is of the topic being read; otherwise switch to the new one."""
        answered = self._name.target(attempt)
        if answered is self._reading:
            return True
        if answered is not None:
            self._reading, self._position = answered, 0
        return False

    def _take(self, found: Fetched) -> None:
        books = self._reading.partitions[self._at.partition]
        books.marked(found.high_watermark)
        for record in found.records:
            if record.offset != self._position:
                self.promises.complain(f"I2: {self._at} gave {record.offset} for {self._position}")
            books.consumed(record.offset, record.value or b"", found.high_watermark)
            self._position = record.offset + 1

    async def _start_over(self) -> None:
        """Start again after records were deleted, or lost with the end of the log."""
        attempt = Attempt(None, self.cluster.scheduler.now_us)
        earliest = await end_of(self, self._at, EARLIEST)
        attempt.answered(self.cluster.scheduler.now_us)
        if not self._still_reads(attempt):
            raise Disturbed
        lost_power = self._power_cuts != self.cluster.node.power_cuts
        if earliest <= self._position and not lost_power:
            self.promises.complain(
                f"I1: {self._at} has no {self._position}, which was its next offset"
            )
        self._power_cuts = self.cluster.node.power_cuts
        self._position = earliest
