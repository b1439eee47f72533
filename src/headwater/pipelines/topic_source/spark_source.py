"""Topics as a source of Spark: batch and micro-batch.

The driver decides which offsets a batch reads, executors read them. All state of a stream is in
Spark's checkpoint; what a reader remembers beside it only makes it quicker or more watchful.
Nothing hangs on `commit` and `stop`, because Spark calls them late or never.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headwater.pipelines.topic_source.broker_client_loop import broker_client
from headwater.pipelines.topic_source.offsets import (
    OffsetJson,
    OffsetRange,
    from_json,
    split,
    to_json,
)
from headwater.pipelines.topic_source.options import SourceOptions, parse
from headwater.pipelines.topic_source.pace import MOST_ROWS
from headwater.pipelines.topic_source.range_reader import RangeReader
from headwater.pipelines.topic_source.stream_plan import StreamPlan
from headwater.pipelines.topic_source.topics_view import TopicsView


class _Reading:
    """What the batch and the stream reader have in common; goes to the executors by pickle."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """On an executor: the records of one task."""
        wanted = partition.value
        if not isinstance(wanted, OffsetRange):  # Spark's stand-in for "no partitions at all"
            return iter(())
        options = self.options
        reader = RangeReader(
            broker_client(options.client),
            headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
            timeout_ms=options.poll_timeout_ms,
        )
        return reader.read(wanted)

    def tasks(self, found: list[OffsetRange]) -> list[InputPartition]:
        """Ranges as tasks, divided as the options say."""
        options = self.options
        pieces = split(found, options.min_partitions, options.max_rows_per_task)
        return [InputPartition(piece) for piece in pieces]


class BatchReader(DataSourceReader):
    """A part of some topics, fixed when the query is planned."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._reading = _Reading(parse(options, streaming=False))

    def partitions(self) -> list[InputPartition]:
        """Look up both ends once."""
        options = self._reading.options
        view = TopicsView(options)
        ends = view.ends(view.all_seen().partitions)
        starts, stops = view.starts(options.starting, ends), view.stops(options.ending, ends)
        return self._reading.tasks(view.between(starts, stops, ends))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """On an executor."""
        return self._reading.read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Some topics without end. Lives in one process as long as the query runs."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._reading = _Reading(parse(options, streaming=True))
        self._driver: StreamPlan | None = None

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Where a query without a checkpoint begins."""
        return to_json(self._plan.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options allow a batch to take."""
        options = self._reading.options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.target_ms is not None:
            return ReadMaxRows(MOST_ROWS)
        return ReadAllAvailable() if options.min_rows is None else ReadMinRows(options.min_rows)

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
        """Where the next batch ends; `start` where there is nothing to read."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        least = None if isinstance(limit, ReadAllAvailable) else self._reading.options.min_rows
        return to_json(self._plan.next_end(from_json(start), rows, least))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on the stream ends where it ends now."""
        self._plan.stop_here()

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        """How far the topics reach, for Spark's progress."""
        known = self._plan.known_latest
        return None if known is None else to_json(known)

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """The tasks of a batch: the same ones whenever it is planned again."""
        return self._reading.tasks(self._plan.ranges(from_json(start), from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """On an executor."""
        return self._reading.read(partition)

    @property
    def _plan(self) -> StreamPlan:
        """Made on the driver when first needed; executors have none."""
        if self._driver is None:
            self._driver = StreamPlan(self._reading.options)
        return self._driver
