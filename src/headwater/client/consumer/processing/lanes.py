"""Order in parallel work: which record may be processed next, and what may be committed. Pure.

Records with one key (or of one partition) form a lane; at most one record of a lane is processed at
a time, and lanes take turns. In each partition only the finished prefix may be committed: a record
in progress holds back all later ones.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from headwater.client.consumer.record import ConsumerRecord
from headwater.model import TopicPartition

LaneOf = Callable[[ConsumerRecord[Any, Any]], Hashable]
Lane = tuple[TopicPartition, Hashable]


def by_key(record: ConsumerRecord[Any, Any]) -> Hashable:
    """Keep records with one key in order; those without a key in the order of their partition."""
    key: Hashable = record.key
    return key


def by_partition(record: ConsumerRecord[Any, Any]) -> Hashable:
    """Keep all records of a partition in order."""
    return None


ORDERS: dict[str, LaneOf] = {"key": by_key, "partition": by_partition}


class Prefix:
    """The finished prefix of one partition's records."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, None] = OrderedDict()
        self._after_last = 0

    def add(self, offset: int) -> None:
        """Add a record; offsets grow."""
        self._open[offset] = None
        self._after_last = offset + 1

    def finish(self, offset: int) -> None:
        """Mark a record as finished."""
        self._open.pop(offset, None)  # a recreated topic has offsets twice

    @property
    def committable(self) -> int:
        """Return the first unfinished offset, or the one after the last."""
        return next(iter(self._open), self._after_last)

    @property
    def unfinished(self) -> int:
        """The number of records that are waiting or in progress."""
        return len(self._open)


class Lanes:
    """Records that wait for workers."""

    def __init__(self, lane_of: LaneOf) -> None:
        self._lane_of = lane_of
        self._waiting: dict[Lane, deque[ConsumerRecord[Any, Any]]] = {}
        self._out: dict[Lane, ConsumerRecord[Any, Any]] = {}
        self._free: deque[Lane] = deque()
        self._prefixes: dict[TopicPartition, Prefix] = {}
        self._told: dict[TopicPartition, int] = {}

    @property
    def unfinished(self) -> int:
        """The number of records that are waiting or in progress."""
        return sum(prefix.unfinished for prefix in self._prefixes.values())

    def add(self, records: Iterable[ConsumerRecord[Any, Any]]) -> None:
        """Add records in the order of their offsets."""
        for record in records:
            partition = TopicPartition(record[0], record[1])
            prefix = self._prefixes.get(partition)
            if prefix is None:
                prefix = self._prefixes[partition] = Prefix()
                self._told[partition] = record.offset
            prefix.add(record.offset)
            lane = (partition, self._lane_of(record))
            waiting = self._waiting.get(lane)
            if waiting is None:
                waiting = self._waiting[lane] = deque()
                if lane not in self._out:
                    self._free.append(lane)
            waiting.append(record)

    def next(self) -> ConsumerRecord[Any, Any] | None:
        """Return a record to process now; its lane is closed until `finish`."""
        while self._free:
            lane = self._free.popleft()
            waiting = self._waiting.get(lane)
            if not waiting or lane in self._out:
                continue
            record = self._out[lane] = waiting.popleft()
            if not waiting:
                del self._waiting[lane]
            return record
        return None

    def finish(self, record: ConsumerRecord[Any, Any]) -> None:
        """Mark `record` as finished: the next record of its lane may be processed."""
        partition = TopicPartition(record[0], record[1])
        lane = (partition, self._lane_of(record))
        if self._out.get(lane) is not record:
            return  # its partition was given up in the meantime
        del self._out[lane]
        self._prefixes[partition].finish(record.offset)
        if lane in self._waiting:
            self._free.append(lane)

    def commits(self) -> dict[TopicPartition, int]:
        """Return offsets to commit that were not returned before."""
        news = {}
        for partition, prefix in self._prefixes.items():
            offset = prefix.committable
            if self._told[partition] != offset:
                self._told[partition] = news[partition] = offset
        return news

    def committable(self) -> dict[TopicPartition, int]:
        """Return the end of each partition's finished prefix."""
        return {partition: prefix.committable for partition, prefix in self._prefixes.items()}

    def at_work(self, partitions: Iterable[TopicPartition]) -> int:
        """Return how many records of these partitions are in progress."""
        wanted = set(partitions)
        return sum(TopicPartition(*record[:2]) in wanted for record in self._out.values())

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more records of these partitions; those in progress may finish."""
        gone = set(partitions)
        for lane in [lane for lane in self._waiting if lane[0] in gone]:
            del self._waiting[lane]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that went to other members."""
        gone = set(partitions)
        self.hold_back(gone)
        for lane in [lane for lane in self._out if lane[0] in gone]:
            del self._out[lane]
        for partition in gone:
            self._prefixes.pop(partition, None)
            self._told.pop(partition, None)
