"""Topics as a Spark source: batch and micro-batch.

The driver decides which offsets a batch reads; executors read them. All state of a stream is in
Spark's checkpoint; what a reader keeps besides only makes it faster or detects more errors. Nothing
may depend on `commit` and `stop`, because Spark calls them late or never.
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
    """What the batch and the stream reader share; pickled and sent to executors."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the records of one task, on an executor."""
        wanted = partition.value
        if not isinstance(wanted, OffsetRange):  # Spark's placeholder for no partitions
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
        """Return ranges as tasks, divided as the options say."""
        options = self.options
        pieces = split(found, options.min_partitions, options.max_rows_per_task)
        return [InputPartition(piece) for piece in pieces]


class BatchReader(DataSourceReader):
    """Reads a range of some topics that is fixed when the query is planned."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._reading = _Reading(parse(options, streaming=False))

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks from the current offsets."""
        options = self._reading.options
        view = TopicsView(options)
        ends = view.ends(view.all_seen().partitions)
        starts, stops = view.starts(options.starting, ends), view.stops(options.ending, ends)
        return self._reading.tasks(view.between(starts, stops, ends))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one task, on an executor."""
        return self._reading.read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads some topics as a stream; lives in one process as long as the query runs."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._reading = _Reading(parse(options, streaming=True))
        self._driver: StreamPlan | None = None

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Return where a query without a checkpoint begins."""
        return to_json(self._plan.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch that the options set."""
        options = self._reading.options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.target_ms is not None:
            return ReadMaxRows(MOST_ROWS)
        return ReadAllAvailable() if options.min_rows is None else ReadMinRows(options.min_rows)

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
        """Return where the next batch ends; `start` if there is nothing to read."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        least = None if isinstance(limit, ReadAllAvailable) else self._reading.options.min_rows
        return to_json(self._plan.next_end(from_json(start), rows, least))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the stream to the current ends of its topics."""
        self._plan.stop_here()

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        """Return the ends of the topics, for Spark's progress."""
        known = self._plan.known_latest
        return None if known is None else to_json(known)

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """Return the tasks of a batch; a repeated batch gets the same ones."""
        return self._reading.tasks(self._plan.ranges(from_json(start), from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one task, on an executor."""
        return self._reading.read(partition)

    @property
    def _plan(self) -> StreamPlan:
        """The plan, created on the driver when it is first needed; executors have none."""
        if self._driver is None:
            self._driver = StreamPlan(self._reading.options)
        return self._driver
