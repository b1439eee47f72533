"""The produce requests in flight to each broker."""

from collections import deque
from typing import NamedTuple

from headwater.client.producer.accumulator import ProducerBatch
from headwater.transport.client_connection import ClientConnection


class InFlightRequest(NamedTuple):
    """A request in flight."""

    connection: ClientConnection
    version: int
    batches: list[ProducerBatch]
    sent_ms: int


class BrokerRequests:
    """The requests in flight to one broker."""

    __slots__ = ("connecting", "in_flight", "muted_until_ms")

    def __init__(self) -> None:
        self.in_flight: deque[InFlightRequest] = deque()
        self.connecting = False
        self.muted_until_ms = 0
