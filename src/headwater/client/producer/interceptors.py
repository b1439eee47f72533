"""Interceptors: they see each record before it is serialized and hear what became of it.

Their faults are logged and never reach the caller: an interceptor that raises is passed over.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.client.producer.futures import OnDelivery, RecordMetadata
from headwater.errors import KafkaError

log = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """A record as the caller gave it; `_replace` makes a changed one."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = None


class ProducerInterceptor:
    """Derive from this and override what is needed."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """The record to send in place of `record`; None drops it.

        A dropped record is not sent and no later interceptor sees it. Its future is done at once,
        with metadata that is `filtered`.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """The record is stored, or failed. Runs on the client's loop: be quick."""


class Interceptors:
    """A chain of them, in order."""

    def __init__(self, chain: Sequence[ProducerInterceptor]) -> None:
        self._chain = tuple(chain)

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """What the chain makes of `record`; None where an interceptor drops it."""
        for one in self._chain:
            try:
                changed = one.on_send(record)
                if changed is None:
                    return None
                record = ProducerRecord(*changed)
            except Exception:
                log.exception("on_send of %s raised; it is passed over", type(one).__name__)
        return record

    def around(self, on_delivery: OnDelivery | None) -> OnDelivery:
        """A callback that tells the chain first, then the caller's own."""

        def told(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            self.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return told

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Tell the chain what became of a record."""
        for one in self._chain:
            try:
                one.on_acknowledgement(metadata, error)
            except Exception:
                log.exception(
                    "on_acknowledgement of %s raised; it is passed over", type(one).__name__
                )
