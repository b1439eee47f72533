"""Records how far a query has written its topics, as marks in the group `headwater-sink.<query>`.

The group's offsets are the end of the last finished batch, so only later records can belong to a
repeated batch. Nothing is ever deleted here.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.client.admin import BlockingAdmin as Admin
from headwater.client.consumer.record import OffsetAndMetadata
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from headwater.pipelines.topic_sink.origin import (
    BatchState,
    Mark,
    PriorWrites,
    RecordOrigin,
    prior_writes,
    read_mark,
)

log = logging.getLogger(__name__)


class Opening(NamedTuple):
    """What a task needs to know before it writes to a topic."""

    prior_writes: PriorWrites
    starts: Mapping[TopicPartition, int]
    """Where the tail of each partition begins; a missing partition is read from its beginning."""


class Ledger:
    """The marks of one query."""

    def __init__(self, admin: Admin, query: str) -> None:
        self.group = f"headwater-sink.{query}"
        self._admin = admin

    def open(
        self, topic: str, partitions: Iterable[int], origin: RecordOrigin, run: str, attempt: int
    ) -> Opening:
        """Begin to write a batch and mark it in the group.

        A query that is new to the topic begins at its end. The end is looked up before the group is
        read a second time: a task that still finds no mark has an end from before the first record
        of any task, because every task leaves a mark before it writes.
        """
        held = self._held(topic)
        if not held:
            ends = self._admin.end_offsets(TopicPartition(topic, row) for row in partitions)
            held = self._held(topic)
            if not held:
                self._mark(ends, Mark(BatchState.BEGUN, origin.batch, run))
                return Opening(PriorWrites.NOTHING, ends)
        mark = _mark_of(held)
        starts = {place: row.offset for place, row in held.items()}
        if mark is None or mark.batch < origin.batch:
            self._mark(starts, Mark(BatchState.BEGUN, origin.batch, run))
        return Opening(prior_writes(mark, origin.batch, run, attempt), starts)

    def last_batch(self, topic: str) -> int:
        """Return the highest batch that is written or being written to the topic; -1 if none."""
        mark = _mark_of(self._held(topic))
        return -1 if mark is None else mark.batch

    def finish(self, topics: Iterable[str], batch: int) -> None:
        """Mark the batch as done in these topics; the next tail begins at their ends."""
        views = self._admin.describe_topics(topics)
        ends = self._admin.end_offsets(
            TopicPartition(name, row.partition)
            for name, view in views.items()
            for row in view.partitions
        )
        self._mark(ends, Mark(BatchState.DONE, batch))

    def tear(self, topics: Iterable[str], batch: int) -> None:
        """Mark that a task failed, so that later attempts read back before they write."""
        for topic in topics:
            try:
                held = self._held(topic)
                starts = {place: row.offset for place, row in held.items()}
                if (
                    held
                    and prior_writes(_mark_of(held), batch, "", 0) is not PriorWrites.EVERYTHING
                ):
                    self._mark(starts, Mark(BatchState.TORN, batch))
            except KafkaError as problem:
                log.warning(
                    "topic %s: batch %d could not be marked as torn: %s", topic, batch, problem
                )

    def _held(self, topic: str) -> dict[TopicPartition, OffsetAndMetadata]:
        rows = self._admin.group_offsets(self.group)
        return {place: row for place, row in rows.items() if place.topic == topic}

    def _mark(self, offsets: Mapping[TopicPartition, int], mark: Mark) -> None:
        note = mark.text()
        self._admin.set_group_offsets(
            self.group,
            {place: OffsetAndMetadata(offset, note) for place, offset in offsets.items()},
        )


def _mark_of(held: Mapping[TopicPartition, OffsetAndMetadata]) -> Mark | None:
    """Return the mark of a topic: the newest of its partitions, some of which may lag behind."""
    marks = [mark for row in held.values() if (mark := read_mark(row.metadata))]
    return max(marks, key=lambda mark: mark.batch, default=None)
