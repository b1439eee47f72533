"""Administrators, which create, alter and delete topics in addition to the watched ones."""

from headwater.errors import E
from headwater.model import TopicPartition
from headwater.wire.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.wire.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from simulator.invariants import PartitionPromises
from simulator.workload.client import Client, Disturbed

TOPIC = 2
RECREATED = "events"
"""The name of a topic that is deleted and recreated while it is in use."""


class Admin(Client):
    """Creates, alters and deletes."""

    async def run(self, rounds: int) -> None:
        """Run some actions; the outcome of a disturbed one stays unknown."""
        for number in range(rounds):
            await self.pause(400)
            try:
                await self._act(f"{self.name}-{number}")
            except Disturbed:
                await self.back_off()
        self.disconnect()

    async def create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        """Create a topic, with retries until it succeeds."""
        while True:
            try:
                await self._create(name, partitions, configs)
            except Disturbed:
                await self.back_off()
            else:
                return

    async def _act(self, fresh: str) -> None:
        mine = [name for name in self.promises.topics if name.startswith(self.name)]
        match self.chance.randrange(5):
            case 0 | 1:
                partitions = self.chance.randrange(1, 4)
                await self._create(fresh, partitions, {})
                self.promises.topics[fresh] = partitions
            case 2 if mine:
                await self._delete(self.chance.choice(mine))
            case 3:
                await self._alter()
            case _:
                await self.delete_records(self.promises.partitions[self._any_partition()])

    async def _create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        rows = [
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=rows
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)
        answer = await self.call(request, CreateTopicsResponse)
        self.check(answer.topics[0].error_code, E.TOPIC_ALREADY_EXISTS)

    async def _delete(self, name: str) -> None:
        del self.promises.topics[name]
        topic = DeleteTopicsRequest.DeleteTopicState(name=name)
        request = DeleteTopicsRequest(topics=[topic], topic_names=[name], timeout_ms=20_000)
        answer = await self.call(request, DeleteTopicsResponse)
        self.check(answer.responses[0].error_code)

    async def _alter(self) -> None:
        at = self._any_partition()
        change = IncrementalAlterConfigsRequest.AlterableConfig(
            name="segment.bytes", value=str(self.chance.choice((5000, 12_000, 40_000)))
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC, resource_name=at.topic, configs=[change]
        )
        answer = await self.call(
            IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
        )
        self.check(answer.responses[0].error_code)

    async def delete_records(self, books: PartitionPromises) -> None:
        """Move the start of a partition to a random offset in it."""
        at = books.at
        end = max(books.high_watermark, max(books.acknowledged, default=-1) + 1)
        offset = self.chance.choice((end, self.chance.randrange(end + 1)))
        books.may_start_at = max(books.may_start_at, offset)
        row = DeleteRecordsRequest.DeleteRecordsPartition(
            partition_index=at.partition, offset=offset
        )
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=at.topic, partitions=[row])
        answer = await self.call(
            DeleteRecordsRequest(topics=[topic], timeout_ms=5000), DeleteRecordsResponse
        )
        # A power failure may have left fewer records than are to be deleted.
        self.check(answer.topics[0].partitions[0].error_code, E.OFFSET_OUT_OF_RANGE)

    def _any_partition(self) -> TopicPartition:
        """Choose a partition of a topic that is never deleted."""
        steady = [at for at in self.promises.partitions if at.topic != RECREATED]
        return self.chance.choice(steady)
