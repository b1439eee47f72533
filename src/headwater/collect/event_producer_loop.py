"""Produces events and waits for their acknowledgement, for `collect http`.

Nothing counts as stored before the broker acknowledges it. The producer's delivery.timeout.ms limits
the wait; while the broker is unavailable it is tried once per second, not once per request.
"""

import logging
from collections.abc import Sequence
from typing import Any

from headwater.client.errors import RecordTooLargeError, UnknownTopicOrPartitionError
from headwater.client.producer.futures import SendFuture
from headwater.client.producer.producer import Producer
from headwater.collect.events import Event, Refusal
from headwater.collect.rate_limits import CircuitBreaker
from headwater.config.keys import ConfigError
from headwater.errors import KafkaError
from headwater.seams.clock import Clock

log = logging.getLogger(__name__)

Headers = Sequence[tuple[str, bytes | None]]


class BrokerUnavailable(Exception):
    """The broker did not acknowledge in time; the events may or may not be stored."""


def delivery_settings(ack_timeout_s: float) -> dict[str, object]:
    """Return the settings of a producer that reports on a record within `ack_timeout_s`."""
    limit = int(ack_timeout_s * 1000)
    return {
        "delivery_timeout_ms": limit,
        "request_timeout_ms": max(limit // 2, 1),
        "max_block_ms": limit,
        "linger_ms": 2,
    }


class EventProducer:
    """One topic and the producer that writes to it."""

    def __init__(self, topic: str, clock: Clock, settings: dict[str, Any]) -> None:
        self._topic = topic
        self._clock = clock
        self._producer = Producer(**settings)
        self.breaker = CircuitBreaker()
        if self._producer.settings.acks == "0":
            raise ConfigError("acks=0 gives no acknowledgement: set acks to 1 or all")

    async def start(self) -> None:
        """Check that the topic exists; an unavailable broker is not an error yet."""
        try:
            await self._producer.partitions_for(self._topic)
        except UnknownTopicOrPartitionError:
            raise
        except KafkaError as away:
            self._failed(away)

    async def store(self, events: Sequence[Event], headers: Headers) -> list[Refusal]:
        """Send events and wait for all acknowledgements; return the events that are refused."""
        try:
            sent = [await self._sent(event, headers) for event in events]
            stored = [future is not None and await _is_stored(future) for future in sent]
        except KafkaError as away:
            self._failed(away)
            raise BrokerUnavailable from None
        if any(stored):
            self.breaker.succeeded()
        return [
            Refusal(event.number, "is larger than the topic takes", too_large=True)
            for event, taken in zip(events, stored, strict=True)
            if not taken
        ]

    async def close(self, timeout_s: float) -> None:
        """Wait for pending acknowledgements, then close the producer."""
        await self._producer.close(timeout_s)

    async def _sent(self, event: Event, headers: Headers) -> SendFuture | None:
        try:
            return await self._producer.send(self._topic, event.value, event.key, headers=headers)
        except RecordTooLargeError:
            return None

    def _failed(self, why: KafkaError) -> None:
        if not self.breaker.away:
            log.warning("the broker is unavailable: %s", why.message)
        self.breaker.failed(self._clock.monotonic_ms())


async def _is_stored(future: SendFuture) -> bool:
    try:
        await future
    except RecordTooLargeError:
        return False
    return True
