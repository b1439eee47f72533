"""The produce requests in flight to each broker."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from headwater.client.producer.accumulator import ProducerBatch
from headwater.transport.client_connection import ClientConnection
from headwater.wire.messages.produce import ProduceResponse

BY_NAME = 12
"""The newest version of Produce with topic names, for brokers that give no ids."""


class InFlightRequest(NamedTuple):
    """A request in flight."""

    connection: ClientConnection
    version: int
    batches: list[ProducerBatch]
    sent_ms: int

    def rows_of(
        self, answer: ProduceResponse
    ) -> Iterator[tuple[ProducerBatch, ProduceResponse.PartitionProduceResponse | None]]:
        """Yield each batch with its row of the answer, if there is one."""
        by_id = self.version > BY_NAME
        rows = {
            (topic.topic_id if by_id else topic.name, row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        for batch in self.batches:
            topic = batch.topic_id if by_id else batch.queue.topic
            yield batch, rows.get((topic, batch.queue.partition))


class BrokerRequests:
    """The requests in flight to one broker."""

    __slots__ = ("connecting", "in_flight", "muted_until_ms")

    def __init__(self) -> None:
        self.in_flight: deque[InFlightRequest] = deque()
        self.connecting = False
        self.muted_until_ms = 0
