"""Records how far a query has written its topics, as offsets of consumer groups.

The group `headwater-sink.<query>` has a mark for each topic. Its offsets are the end of the last
finished batch, so only later records can belong to a repeated batch. With transactions, the group
`headwater-sink.<query>.<task>` has the last part entry of that task. Nothing is ever deleted here.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from headwater.client.admin import BlockingAdmin as Admin
from headwater.client.consumer.record import OffsetAndMetadata
from headwater.client.errors import ClientError
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.pipelines.topic_sink.origin import (
    BatchState,
    Mark,
    PartEntry,
    PriorWrites,
    RecordOrigin,
    claim_by,
    prior_writes,
    read_mark,
    read_part_entry,
    untold_writes,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
Held = dict[TopicPartition, OffsetAndMetadata]


class QueryFencedError(ClientError):
    """Another driver of the same query has taken over."""

    CODE = E.PRODUCER_FENCED


class StaleCheckpointError(ClientError):
    """The checkpoint of the query is older than what the query has written."""

    CODE = E.INVALID_RECORD


class TransactionsBegunError(ClientError):
    """A batch that was begun with transactions is continued without them."""

    CODE = E.INVALID_TXN_STATE


class Opening(NamedTuple):
    """What a task needs to know before it writes to a topic."""

    prior_writes: PriorWrites
    starts: Mapping[TopicPartition, int]
    """Where the tail of each partition begins; a missing partition is read from its beginning."""


def part_group(origin: RecordOrigin) -> str:
    """Return the group of a task's part entries, which is its transactional id too."""
    return f"headwater-sink.{origin.query}.{origin.task}"


def part_place(topic: str) -> TopicPartition:
    """Return the partition for which the group of a task has the part entry of a topic."""
    return TopicPartition(topic, 0)


class Ledger:
    """The marks of one query."""

    def __init__(self, admin: Admin, query: str) -> None:
        self.group = f"headwater-sink.{query}"
        self._query = query
        self._admin = admin

    def open(
        self, topic: str, partitions: Iterable[int], origin: RecordOrigin, run: str, attempt: int
    ) -> Opening:
        """Begin to write a batch without transactions and mark it in the group."""
        mark, starts = self._begin(topic, partitions)
        self._not_stale(topic, mark, origin.batch)
        self._without_transactions(topic, mark, origin.batch)
        found = prior_writes(mark, origin.batch, run, attempt)
        if found is not PriorWrites.EVERYTHING and (mark is None or mark.batch < origin.batch):
            self._mark(starts, Mark(BatchState.BEGUN, origin.batch, run))
        return Opening(found, starts)

    def _begin(
        self, topic: str, partitions: Iterable[int]
    ) -> tuple[Mark | None, Mapping[TopicPartition, int]]:
        """Return the mark of a topic and where its tail begins.

        A query that is new to the topic begins at its end. The end is looked up before the group is
        read a second time: a task that still finds no mark has an end from before the first record
        of any task, because every task leaves a mark before it writes.
        """
        held = self._held(topic)
        if not held:
            ends = self._admin.end_offsets(TopicPartition(topic, row) for row in partitions)
            held = self._held(topic)
            if not held:
                return None, ends
        return _mark_of(held), {place: row.offset for place, row in held.items()}

    def last_batch(self, topic: str) -> int:
        """Return the highest batch that is written or being written to the topic; -1 if none."""
        mark = _mark_of(self._held(topic))
        return -1 if mark is None else mark.batch

    def finish(self, topics: Iterable[str], batch: int, run: str | None = None) -> None:
        """Mark the batch as done in these topics; the next tail begins at their ends.

        With transactions, `run` is the run that wrote it.
        """
        views = self._admin.describe_topics(topics)
        ends = self._admin.end_offsets(
            TopicPartition(name, row.partition)
            for name, view in views.items()
            for row in view.partitions
        )
        if run is None:
            self._mark(ends, Mark(BatchState.DONE, batch))
            return
        held = self._admin.group_offsets(self.group)
        for topic in views:  # a batch without rows was not claimed
            mark = self._unfenced(topic, _mark_of(_of_topic(held, topic)), run)
            done = claim_by(mark, batch, run)._replace(state=BatchState.DONE, transactional=True)
            self._mark(_of_topic(ends, topic), done)

    def tear(self, topics: Iterable[str], batch: int) -> None:
        """Mark that a task failed, so that later attempts read back before they write."""
        for topic in topics:
            try:
                held = self._held(topic)
                mark = _mark_of(held)
                kept = mark and (mark.covers(batch) or mark.has_transactions_of(batch))
                starts = {place: row.offset for place, row in held.items()}
                if held and not kept:
                    self._mark(starts, Mark(BatchState.TORN, batch))
            except KafkaError as problem:
                log.warning(
                    "topic %s: batch %d could not be marked as torn: %s", topic, batch, problem
                )

    # -- with transactions

    def claim(
        self, topic: str, partitions: Iterable[int], origin: RecordOrigin, run: str
    ) -> Opening:
        """Begin to write a batch with transactions; the latest run to claim it fences the others.

        Raises QueryFencedError if another run has replaced this one.
        """
        mark, starts = self._begin(topic, partitions)
        self._unfenced(topic, mark, run)
        self._not_stale(topic, mark, origin.batch)
        found = untold_writes(mark, origin.batch)
        if found is not PriorWrites.EVERYTHING and (
            mark is None or mark.batch < origin.batch or mark.run != run
        ):
            self._mark(starts, claim_by(mark, origin.batch, run))
        return Opening(found, starts)

    def check_owner(self, topic: str, run: str) -> None:
        """Raise QueryFencedError if another run has claimed the topic since this one did."""
        mark = _mark_of(self._held(topic))
        if mark is not None and mark.run != run:
            raise self._fenced(topic, mark)

    def part_entry(self, origin: RecordOrigin, topic: str, *, stable: bool) -> PartEntry | None:
        """Return the last part entry of a task for a topic.

        With `stable` it waits until the transaction that may change it has ended.
        """
        place = part_place(topic)
        held = self._admin.group_offsets(part_group(origin), [place], stable=stable)
        return read_part_entry(held[place].metadata) if place in held else None

    def is_writing(self, origin: RecordOrigin) -> bool:
        """Return whether a transaction of a task is open."""
        name = part_group(origin)
        return self._admin.describe_transactions([name])[name].state == "Ongoing"

    def _unfenced(self, topic: str, mark: Mark | None, run: str) -> Mark | None:
        if mark is not None and run in mark.earlier:
            raise self._fenced(topic, mark)
        return mark

    def _not_stale(self, topic: str, mark: Mark | None, batch: int) -> None:
        """Refuse a batch before the last one: Spark repeats none but the last.

        An older copy of a checkpoint plans its batches again, perhaps with other rows. To skip them
        as written would lose those rows.
        """
        if mark is not None and mark.batch > batch:
            raise StaleCheckpointError(
                f"query {self._query} has written batch {mark.batch} to topic {topic}, and its "
                f"checkpoint is back at batch {batch}: restore the newest checkpoint, or use a new one, "
                f"which writes every row again"
            )

    def _without_transactions(self, topic: str, mark: Mark | None, batch: int) -> None:
        """Refuse a batch whose records have no origin, by which a repeated task would find them."""
        if mark is not None and mark.has_transactions_of(batch):
            raise TransactionsBegunError(
                f"query {self._query} has begun batch {batch} to topic {topic} with transactions, and "
                f"this run writes without them, which would repeat rows: finish this batch with "
                f"transactions: remove the option transactions=off, or start brokers that all have "
                f"transactions; later batches may do without"
            )

    def _fenced(self, topic: str, mark: Mark) -> QueryFencedError:
        return QueryFencedError(
            f"query {self._query} is fenced: another driver of it has taken over topic {topic} in "
            f"batch {mark.batch}; stop one of the two, or give this one a new checkpoint to run it as "
            f"another query"
        )

    def _held(self, topic: str) -> Held:
        return _of_topic(self._admin.group_offsets(self.group), topic)

    def _mark(self, offsets: Mapping[TopicPartition, int], mark: Mark) -> None:
        note = mark.text()
        self._admin.set_group_offsets(
            self.group,
            {place: OffsetAndMetadata(offset, note) for place, offset in offsets.items()},
        )


def _of_topic(rows: Mapping[TopicPartition, T], topic: str) -> dict[TopicPartition, T]:
    return {place: row for place, row in rows.items() if place.topic == topic}


def _mark_of(held: Held) -> Mark | None:
    """Return the mark of a topic: the newest of its partitions, some of which may lag behind."""
    marks = [mark for row in held.values() if (mark := read_mark(row.metadata))]
    return max(marks, key=lambda mark: mark.batch, default=None)
