"""Interceptors, which see each record before it is serialized, and its result.

If an interceptor raises, the error is logged and the interceptor is skipped.
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
        """Return the record to send in place of `record`; None drops it.

        A dropped record is not sent and no later interceptor sees it. Its future is done at once,
        with metadata that is `filtered`.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Called on the client's loop when the record is stored or has failed; must not block."""


class Interceptors:
    """A chain of interceptors, in order."""

    def __init__(self, chain: Sequence[ProducerInterceptor]) -> None:
        self._chain = tuple(chain)

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Pass `record` through the chain; return None if an interceptor drops it."""
        for one in self._chain:
            try:
                changed = one.on_send(record)
                if changed is None:
                    return None
                record = ProducerRecord(*changed)
            except Exception:
                log.exception("on_send of %s raised and is skipped", type(one).__name__)
        return record

    def around(self, on_delivery: OnDelivery | None) -> OnDelivery:
        """Return a callback that calls the chain first, then `on_delivery`."""

        def told(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            self.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return told

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Report a record's result to the chain."""
        for one in self._chain:
            try:
                one.on_acknowledgement(metadata, error)
            except Exception:
                log.exception("on_acknowledgement of %s raised and is skipped", type(one).__name__)
