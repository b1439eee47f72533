"""Reads back what the ordinary clients of a run of a cluster have written and committed."""

from headwater.client.consumer.consumer import Consumer
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.transaction_run import PARTITIONS
from simulator.workload.real_clients import PATIENCE_MS, RealClient

ORDERS = "orders"


class Auditor(RealClient):
    """Reads everything back."""

    def __init__(self, cluster: Cluster, promises: Promises, name: str, with_group: bool) -> None:
        super().__init__(cluster, promises, name)
        self._with_group = with_group

    async def run(self) -> None:
        """Read every watched topic from its start to its end, and the committed offsets."""
        consumer = Consumer(
            bootstrap_servers=self.bootstrap, **self.seams(), **self.options(), group_id="group",
            enable_auto_commit=False, auto_offset_reset="earliest",
            default_api_timeout_ms=PATIENCE_MS,
        )  # fmt: skip
        self.opened(consumer._poller)
        for name in self.promises.topics:
            partitions = range(partitions_of(name))
            await self._read(consumer, [TopicPartition(name, one) for one in partitions])
        if self._with_group:
            await self._check_commits(consumer)
        await consumer.close()

    async def _read(self, consumer: "Consumer[bytes, bytes]", places: list[TopicPartition]) -> None:
        starts = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
        content: dict[TopicPartition, dict[int, bytes]] = {at: {} for at in places}
        await consumer.assign(places)
        for at in places:
            consumer.seek(at, starts[at])
        while any(starts[at] + len(content[at]) < ends[at] for at in places):
            for record in await consumer.poll(timeout=1.0):
                at = TopicPartition(record.topic, record.partition)
                content[at][record.offset] = record.value or b""
        for at in places:
            found = {offset: value for offset, value in content[at].items() if offset < ends[at]}
            self.promises.partitions[at].audit(starts[at], ends[at], found)

    async def _check_commits(self, consumer: "Consumer[bytes, bytes]") -> None:
        places = [TopicPartition(ORDERS, one) for one in range(partitions_of(ORDERS))]
        try:
            found = await consumer.committed(places)
        except KafkaError as failure:
            self.promises.complain(f"L3: the committed offsets cannot be read: {failure!r}")
            return
        for at in places:
            books = self.promises.commits_of("group", at.partition)
            offset = found.get(at)
            if books.asked >= 0:
                books.audit(-1 if offset is None else offset.offset)


def partitions_of(name: str) -> int:
    """Return how many partitions a topic of a run has."""
    return 2 if name == ORDERS else PARTITIONS.get(name, 1)
