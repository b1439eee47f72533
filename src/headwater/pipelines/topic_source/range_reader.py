"""Reads a range of offsets of one partition as Arrow batches with the columns of Spark's Kafka source.

Records are decoded from the broker's bytes into Arrow's memory without becoming Python objects. The
next response is in flight while one is decoded. A range ends when the position passes its end: the
record before the end may be missing, by compaction or because a transaction was aborted.
"""

import logging
from collections.abc import Iterator
from typing import Any, Final

from headwater.client.errors import ClientError
from headwater.client.partition_reader import CompletedFetch, OutOfRange, PartitionReader
from headwater.errors import E
from headwater.model import TopicPartition
from headwater.pipelines.arrow_rows import ROWS, PartitionRows
from headwater.pipelines.topic_source.broker_client_loop import BrokerClient
from headwater.pipelines.topic_source.offsets import OffsetRange
from headwater.records.codec import ColumnReader

log = logging.getLogger(__name__)

MAX_FETCH_BYTES: Final = 4 * 1024 * 1024


class DataLossError(ClientError):
    """Records that a query had yet to read are gone, and `failOnDataLoss` is true."""

    CODE = E.OFFSET_OUT_OF_RANGE


REMEDY: Final = (
    "To continue without them set failOnDataLoss=false; to keep them next time raise the topic's "
    "retention above the time that the query may lag"
)


class RangeReader:
    """Reads ranges one at a time."""

    def __init__(
        self, brokers: BrokerClient, *, headers: bool, fail_on_data_loss: bool, timeout_ms: int
    ) -> None:
        self._brokers = brokers
        self._headers = headers
        self._fail = fail_on_data_loss
        self._timeout_ms = timeout_ms

    def read(self, wanted: OffsetRange) -> Iterator[Any]:
        """Yield the records of a range in order, as pyarrow RecordBatches."""
        where = TopicPartition(wanted.topic, wanted.partition)
        fetcher = self._brokers.fetcher(where, self._timeout_ms)
        try:
            yield from self._read(fetcher, wanted, where)
        finally:
            fetcher.close()

    def _read(
        self, fetcher: PartitionReader, wanted: OffsetRange, where: TopicPartition
    ) -> Iterator[Any]:
        rows, reader = PartitionRows(*where, headers=self._headers), ColumnReader()
        position, size = wanted.start, self._brokers.settings.max_partition_fetch_bytes
        check = self._brokers.settings.check_crcs
        fetcher.request(position, size)
        while position < wanted.end:
            answer = fetcher.receive()
            if isinstance(answer, OutOfRange):
                position = self._past_loss(wanted, position, answer)
                fetched = None
            else:
                fetched = answer.decode(where, position, check_crcs=check)
                size = _next_size(wanted.end, position, fetched)
                position = fetched.end_offset
            if position < wanted.end:
                fetcher.request(position, size)
            if fetched is not None:
                yield from _batches(fetched, wanted.end, reader, rows)

    def _past_loss(self, wanted: OffsetRange, position: int, ends: OutOfRange) -> int:
        """Return where to continue after lost records; raise if they must not be lost."""
        where = f"{wanted.topic}-{wanted.partition}"
        if position < ends.earliest:
            onward = min(ends.earliest, wanted.end)
            lost = (
                f"{where}: offsets {position} to {onward - 1} were deleted before they were read: the "
                f"partition begins at {ends.earliest} (retention, or deleted records)"
            )
        else:
            onward = wanted.end
            lost = (
                f"{where}: offsets {position} to {wanted.end - 1} do not exist: the partition ends "
                f"at {ends.latest} (the topic was deleted or recreated, or the log was truncated)"
            )
        if self._fail:
            raise DataLossError(f"{lost}. {REMEDY}")
        log.warning("%s; the query continues without them", lost)
        return onward


def _next_size(end: int, position: int, fetched: CompletedFetch) -> int:
    """Return how many bytes to request next: the estimated rest of the range, within limits."""
    each = fetched.size / (fetched.end_offset - position)
    rest = int((end - fetched.end_offset) * each * 1.1) + 4096
    return min(MAX_FETCH_BYTES, rest)


def _batches(
    fetched: CompletedFetch, end: int, reader: ColumnReader, rows: PartitionRows
) -> Iterator[Any]:
    """Yield Arrow batches, each filled from several batches of the log."""
    while True:
        fetched.take_columns(reader, ROWS, last=end - 1)
        if not reader.count:
            return
        yield rows.batch(reader.finish())
