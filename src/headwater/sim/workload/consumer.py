"""Consumers by assignment: they follow one partition and believe nothing."""

from collections.abc import Callable

from headwater.errors import E
from headwater.model import TopicPartition
from headwater.sim.cluster import Cluster
from headwater.sim.invariants import Promises
from headwater.sim.workload.client import Client, Disturbed
from headwater.sim.workload.reading import EARLIEST, VERSIONS, end_of, fetch


class Consumer(Client):
    """Reads a partition from its start, over and over from where it was."""

    def __init__(self, cluster: Cluster, promises: Promises, name: str, at: TopicPartition) -> None:
        super().__init__(cluster, promises, name)
        self._at = at
        self._books = promises.partitions[at]
        self._version = self.chance.choice(VERSIONS)
        self._position = 0
        self._power_cuts = 0

    async def run(self, done: Callable[[], bool]) -> None:
        """Read until told to stop."""
        while not done():
            try:
                await self._poll()
            except Disturbed:
                await self.back_off()
        self.disconnect()

    async def _poll(self) -> None:
        power_cuts = self.cluster.node.power_cuts
        found = await fetch(
            self,
            self._at,
            self._position,
            newest=self._version,
            max_bytes=self.chance.choice((1, 500, 5000, 100_000)),
            wait_ms=self.chance.choice((0, 20, 200)),
        )
        if power_cuts != self.cluster.node.power_cuts:
            raise Disturbed
        error = self.check(found.error_code, E.OFFSET_OUT_OF_RANGE)
        if error is not E.NONE:
            await self._start_over()
            return
        self._power_cuts = power_cuts
        self._books.marked(found.high_watermark)
        for record in found.records:
            if record.offset != self._position:
                self.promises.complain(f"I2: {self._at} gave {record.offset} for {self._position}")
            self._books.consumed(record.offset, record.value or b"", found.high_watermark)
            self._position = record.offset + 1
        if not found.records:
            await self.pause(30)

    async def _start_over(self) -> None:
        """Records were deleted under the reader, or a power cut took the end of the log."""
        earliest = await end_of(self, self._at, EARLIEST)
        lost_power = self._power_cuts != self.cluster.node.power_cuts
        if earliest <= self._position and not lost_power:
            self.promises.complain(
                f"I1: {self._at} has no {self._position}, which was its next offset"
            )
        self._power_cuts = self.cluster.node.power_cuts
        self._position = earliest
