"""The fetched records that poll() returns; taking them advances the positions.

Runs in the caller's own thread: records that have arrived are taken without the event loop. Records
of paused partitions stay in the buffer, because an interruption must not lose them.
"""

from collections.abc import Callable
from typing import Any

from headwater.client.consumer.fetching.arrow import RecordBatch, Runs, record_batch
from headwater.client.consumer.fetching.completed_fetch import ENOUGH_BYTES, CompletedFetch
from headwater.client.consumer.fetching.fetcher_loop import Fetcher
from headwater.client.consumer.handover import Handover
from headwater.client.consumer.interceptors import ConsumerInterceptors
from headwater.client.consumer.metrics import ConsumerMetrics
from headwater.client.consumer.record import Records
from headwater.client.errors import CorruptRecordError, SerializationError
from headwater.records.codec import ColumnReader
from headwater.seams.clock import Clock


class ReadyRecords:
    """Takes records from completed fetches."""

    def __init__(
        self,
        fetcher: Fetcher,
        handover: Handover,
        interceptors: ConsumerInterceptors | None,
        metrics: ConsumerMetrics,
        clock: Clock,
    ) -> None:
        self._fetches = fetcher.ready
        self._handover = handover
        self._interceptors = interceptors
        self._metrics = metrics
        self._clock = clock
        self._column_reader = ColumnReader()

    def take_records(self, limit: int) -> Records[Any, Any]:
        """Return up to `limit` records; empty if none are ready."""
        found: Records[Any, Any] = Records()

        def add(fetched: CompletedFetch) -> bool:
            self._handover.remember(fetched.state)
            records = fetched.take_records(limit - len(found))
            found.extend(records)
            return bool(records)

        self._take_in_order(add, lambda: len(found) < limit, lambda: not found)
        if not found:
            self._handover.open = False
            return found
        self._metrics.records.add(self._clock.monotonic_ms(), len(found))
        if self._interceptors is not None:
            found = self._interceptors.on_consume(found)
            self._handover.open = bool(found)
        return found

    def take_record(self) -> Records[Any, Any]:
        """Return one record or None: a faster `take_records(1)` for iterations."""
        fetches = self._fetches
        if not fetches or self._interceptors is not None:
            return self.take_records(1)
        fetched = fetches[0]
        if fetched.stale or fetched.state.paused or not fetched.has_decoded:
            return self.take_records(1)
        self._handover.remember(fetched.state)
        found: Records[Any, Any] = Records(fetched.take_records(1))
        if fetched.exhausted:
            del fetches[0]
            fetched.state.drained += fetched.size
        self._metrics.records.add(self._clock.monotonic_ms())
        return found

    def take_columns(self, limit: int) -> RecordBatch | None:
        """Return about `limit` records as columns; None if none are ready."""
        reader, runs = self._column_reader, Runs()

        def add(fetched: CompletedFetch) -> bool:
            self._handover.remember(fetched.state)
            before = reader.count
            fetched.take_columns(reader, limit)
            taken = reader.count - before
            if taken:
                runs.append((fetched.state.topic, fetched.state.partition, taken))
            return bool(taken)

        def hungry() -> bool:
            return reader.count < limit and reader.size < ENOUGH_BYTES

        self._take_in_order(add, hungry, lambda: not reader.count)
        if not reader.count:
            self._handover.open = False
            return None
        self._metrics.records.add(self._clock.monotonic_ms(), reader.count)
        return record_batch(reader.finish(), runs)

    def discard_partial_columns(self) -> None:
        """Drop columns that an interrupted poll_arrow() left behind."""
        self._column_reader = ColumnReader()

    def _take_in_order(
        self,
        add: Callable[[CompletedFetch], bool],
        hungry: Callable[[], bool],
        empty: Callable[[], bool],
    ) -> None:
        """Let `add` take from each fetch, oldest first, while `hungry`."""
        fetches, at = self._fetches, 0
        while at < len(fetches) and hungry():
            fetched = fetches[at]
            if fetched.stale:
                del fetches[at]
            elif fetched.state.paused:
                at += 1
            elif not self._add_from(add, at, empty):
                break

    def _add_from(
        self, add: Callable[[CompletedFetch], bool], at: int, empty: Callable[[], bool]
    ) -> bool:
        """Take from one fetch; return False if its error must wait for the next poll."""
        fetched = self._fetches[at]
        state = fetched.state
        try:
            if not add(fetched) or fetched.exhausted:
                del self._fetches[at]
                state.drained += fetched.size
        except (CorruptRecordError, SerializationError) as problem:
            if not empty():
                return False
            self._handover.open = False
            if isinstance(problem, CorruptRecordError):
                self._handover.undo = True  # the next poll fetches it again
            raise
        return True
