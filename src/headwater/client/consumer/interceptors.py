"""Interceptors: they see what a poll returns and what is committed.

Their faults are logged and never reach the caller: an interceptor that raises is passed over.
"""

import logging
from collections.abc import Mapping, Sequence

from headwater.client.consumer.record import OffsetAndMetadata, Records
from headwater.model import TopicPartition

log = logging.getLogger(__name__)


class ConsumerInterceptor:
    """Derive from this and override what is needed."""

    def on_consume(self, records: Records) -> Records:
        """The records to return in place of `records`."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets are committed."""


class ConsumerInterceptors:
    """A chain of them, in order."""

    def __init__(self, chain: Sequence[ConsumerInterceptor]) -> None:
        self._chain = tuple(chain)

    def on_consume(self, records: Records) -> Records:
        """What the chain makes of `records`."""
        for one in self._chain:
            try:
                records = one.on_consume(records)
            except Exception:
                log.exception("on_consume of %s raised; it is passed over", type(one).__name__)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell the chain what was committed."""
        for one in self._chain:
            try:
                one.on_commit(offsets)
            except Exception:
                log.exception("on_commit of %s raised; it is passed over", type(one).__name__)
