"""Interceptors, which see the records of each poll and the committed offsets.

If an interceptor raises, the error is logged and the interceptor is skipped.
"""

import logging
from collections.abc import Mapping, Sequence

from headwater.client.consumer.record import OffsetAndMetadata, Records
from headwater.model import TopicPartition

log = logging.getLogger(__name__)


class ConsumerInterceptor:
    """Derive from this and override what is needed."""

    def on_consume(self, records: Records) -> Records:
        """Return the records that poll() returns in place of `records`."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called after these offsets are committed."""


class ConsumerInterceptors:
    """A chain of interceptors, in order."""

    def __init__(self, chain: Sequence[ConsumerInterceptor]) -> None:
        self._chain = tuple(chain)

    def on_consume(self, records: Records) -> Records:
        """Pass `records` through the chain."""
        for one in self._chain:
            try:
                records = one.on_consume(records)
            except Exception:
                log.exception("on_consume of %s raised and is skipped", type(one).__name__)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Report a commit to the chain."""
        for one in self._chain:
            try:
                one.on_commit(offsets)
            except Exception:
                log.exception("on_commit of %s raised and is skipped", type(one).__name__)
