"""Deletes and recreates a topic while other clients write to it and read it."""

from headwater.errors import E
from headwater.model import ZERO_UUID
from headwater.wire.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse
from simulator.cluster import Cluster
from simulator.incarnations import Incarnation, Name
from simulator.invariants import PartitionPromises, Promises
from simulator.workload.admin import Admin
from simulator.workload.client import Disturbed

PARTITIONS = 2
GONE = (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID)


class Recreator(Admin):
    """The only client that creates, truncates and deletes the topics of one name."""

    def __init__(self, cluster: Cluster, promises: Promises, name: str, topic: str) -> None:
        super().__init__(cluster, promises, name)
        self._topic = topic

    @property
    def _lives(self) -> Name:
        return self.promises.names[self._topic]

    async def run(self, rounds: int) -> None:
        """Truncate the topic, or delete and recreate it, with retries."""
        for _ in range(rounds):
            await self.pause(900)
            if self.chance.random() < 0.6:
                for books in self._lives.newest.partitions:
                    await self._truncate(books)
                await self.pause(1500)
            if self.chance.random() < 0.8:
                await self._delete_for_sure(self._lives.newest)
                if self.chance.random() < 0.5:
                    await self.pause(300)
                await self.create_again()
        self.disconnect()

    async def _truncate(self, books: PartitionPromises) -> None:
        try:
            await self.delete_records(books)
        except Disturbed:
            await self.back_off()

    async def _delete_for_sure(self, topic: Incarnation) -> None:
        """Delete the topic, with retries until the broker reports that it is gone."""
        self.promises.topics.pop(self._topic, None)
        topic.doomed = True
        by_id = self.chance.random() < 0.5
        while topic.gone_us is None:
            try:
                await self._ask_to_delete(topic, by_id)
                topic.gone_us = self.cluster.scheduler.now_us
            except Disturbed:
                await self.back_off()

    async def _ask_to_delete(self, topic: Incarnation, by_id: bool) -> None:
        state = DeleteTopicsRequest.DeleteTopicState(
            name=None if by_id else self._topic,
            topic_id=topic.topic_id if by_id and topic.topic_id else ZERO_UUID,
        )
        request = DeleteTopicsRequest(topics=[state], topic_names=[self._topic], timeout_ms=20_000)
        answer = await self.call(request, DeleteTopicsResponse)
        self.check(answer.responses[0].error_code, *GONE)

    async def create_again(self) -> None:
        """Create the topic with other settings, with retries."""
        configs = {"segment.bytes": str(self.chance.choice((5000, 1 << 20)))}
        synced = self.chance.random() < 0.5
        if synced:
            configs["flush.messages"] = "1"
        elif self.chance.random() < 0.5:
            configs["flush.ms"] = "200"
        topic = self.promises.begin(
            self._topic,
            PARTITIONS,
            synced=synced,
            forgetful=False,
            now_us=self.cluster.scheduler.now_us,
        )
        while topic.topic_id is None:
            try:
                await self._create(self._topic, PARTITIONS, configs)
                self.topic_ids = {}
                self._learn_id(await self.topic_id(self._topic))
            except Disturbed:
                await self.back_off()
        self.promises.topics[self._topic] = PARTITIONS

    def _learn_id(self, topic_id: bytes) -> None:
        found = self._lives.with_id(topic_id)
        if found is not self._lives.newest:
            self.promises.complain(
                f"I10: {self._topic} has the id of a topic that was deleted before"
            )
