"""Stores records that failed after all retries in a topic, with origin and error in headers.

Each is acknowledged before its work counts as done. The topic is looked up at the start, so that a
wrong name fails before the first bad record.
"""

from typing import Any

from headwater.client.consumer.processing.waiters import ProcessWaiter
from headwater.client.consumer.record import ConsumerRecord
from headwater.config.client import ClientSettings, ConsumerSettings
from headwater.errors import KafkaError

Headers = list[tuple[str, bytes | None]]

_HEADER = "dead-letter."
_MESSAGE_LIMIT = 1000


def dead_letter_headers(
    record: ConsumerRecord[Any, Any], problem: BaseException, attempts: int
) -> Headers:
    """Return the record's own headers, followed by its origin and its error."""
    origin = {
        "error-class": f"{type(problem).__module__}.{type(problem).__qualname__}",
        "error-message": str(problem)[:_MESSAGE_LIMIT],
        "attempts": str(attempts),
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
    }
    return [*record.headers, *((_HEADER + name, text.encode()) for name, text in origin.items())]


def producer_options(settings: ConsumerSettings) -> dict[str, Any]:
    """Return the settings with which a producer reaches the consumer's cluster."""
    return {
        row.attribute: getattr(settings, row.attribute)
        for row in ClientSettings.KEYS.values()
        if row.name in settings.chosen
    }


class DeadLetters:
    """The dead letter topic of one `process`, if it has one."""

    def __init__(
        self, settings: ConsumerSettings, topic: str | None, waiter: ProcessWaiter
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._waiter = waiter
        self._producer: Any = None

    @property
    def wanted(self) -> bool:
        return self._topic is not None

    async def send(
        self, record: ConsumerRecord[Any, Any], problem: BaseException, attempts: int
    ) -> None:
        """Store the record unchanged, with error and origin in its headers."""
        headers = dead_letter_headers(record, problem, attempts)
        try:
            await self._waiter.call(
                self._producer.send_and_wait,
                self._topic,
                record.value,
                record.key,
                headers=headers,
            )
        except KafkaError as refused:
            raise refused from problem

    async def __aenter__(self) -> None:
        if self._topic is None:
            return
        self._producer = self._waiter.producer_class(**producer_options(self._settings))
        try:
            await self._waiter.call(self._producer.partitions_for, self._topic)
        except BaseException:
            await self._waiter.call(self._producer.close)
            raise

    async def __aexit__(self, *exc: object) -> None:
        if self._producer is not None:
            await self._waiter.call(self._producer.close)
