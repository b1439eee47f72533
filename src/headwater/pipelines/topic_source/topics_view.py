"""Looks up the topics of a query and resolves its options to offsets."""

import logging
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from headwater.client.cluster import TopicView
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.config.keys import ConfigError, nearest
from headwater.model import EARLIEST, LATEST, TopicPartition, Uuid
from headwater.pipelines.topic_source.broker_client_loop import (
    BrokerClient,
    broker_client,
    partitions_of,
)
from headwater.pipelines.topic_source.offsets import OffsetRange, Offsets
from headwater.pipelines.topic_source.options import Bound, SourceOptions
from headwater.pipelines.topic_source.range_reader import REMEDY, DataLossError

log = logging.getLogger(__name__)


class OffsetBounds(NamedTuple):
    """The first offset and the end of each partition."""

    earliest: Offsets
    latest: Offsets


class ExistingPartitions(NamedTuple):
    """The partitions and topic ids of a query at one moment."""

    partitions: list[TopicPartition]
    ids: dict[str, Uuid]


class TopicsView:
    """Looks up topics and offsets for one query, on the driver."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.brokers: BrokerClient = broker_client(options.client)

    # -- topics

    def seen(self) -> ExistingPartitions:
        """Return the partitions to read that exist now."""
        options = self._options
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            views = self.brokers.topics(lambda name: pattern.fullmatch(name) is not None)
            views = {name: view for name, view in views.items() if not view.internal}
        else:
            names = set(options.topics) or {where.topic for where in options.assigned}
            views = self.brokers.topics(names.__contains__)
        found = partitions_of(views.values())
        if options.assigned:
            found = [where for where in found if where in options.assigned]
        return ExistingPartitions(found, {name: view.topic_id for name, view in views.items()})

    def all_seen(self) -> ExistingPartitions:
        """Like `seen`, for the start of a query: named topics that are missing are an error."""
        seen = self.seen()
        names = set(self._options.topics) | {where.topic for where in self._options.assigned}
        if missing := sorted(names - seen.ids.keys()):
            known: dict[str, TopicView] = self.brokers.topics(lambda _: True)
            raise UnknownTopicOrPartitionError(
                f"topic {missing[0]} does not exist{nearest(missing[0], known)}: check the name, or "
                f"create it before the query starts"
            )
        if absent := sorted(set(self._options.assigned) - set(seen.partitions)):
            raise UnknownTopicOrPartitionError(f"assign names {absent[0]}, which does not exist")
        return seen

    def ends(self, partitions: Collection[TopicPartition]) -> OffsetBounds:
        """Look up the first offsets and the ends."""
        return OffsetBounds(self.brokers.earliest(partitions), self.brokers.latest(partitions))

    def visible_ends(self, partitions: Collection[TopicPartition], read: Offsets) -> Offsets:
        """Look up where a stream may read to; `read` is how far it has read.

        A stream that has read beyond an open transaction, before it was told to read only what is
        committed, has lost nothing: it waits.
        """
        latest = self.brokers.latest(partitions)
        behind = [where for where, end in latest.items() if end < read.get(where, 0)]
        for where, end in self.brokers.log_ends(behind).items():
            latest[where] = max(latest[where], min(end, read[where]))
        return latest

    # -- bounds

    def starts(self, bound: Bound, ends: OffsetBounds) -> Offsets:
        """Return where reading begins."""
        if bound.kind == "committed":
            told = self.brokers.committed(bound.group)
            return {
                where: self._still_there(where, told.get(where, first), first, bound.group)
                for where, first in ends.earliest.items()
            }
        if bound.kind in ("time", "times"):
            found = self._at_times(bound, ends, "startingOffsetsByTimestamp")
            late = sorted(where for where, offset in found.items() if offset is None)
            if late and not self._options.no_match_is_latest:
                raise ConfigError(
                    f"{late[0]} has no record as new as the starting time: choose an earlier one, or "
                    f"set startingOffsetsByTimestampStrategy=latest to wait for new records"
                )
            return _or_latest(found, ends)
        return self._at_offsets(bound, ends, "startingOffsets")

    def _still_there(self, where: TopicPartition, offset: int, first: int, group: str) -> int:
        """Return a committed offset, or the first that retention has left."""
        if offset >= first:
            return offset
        log.warning(
            "%s: group %s committed offset %d but the partition begins at %d; the records between "
            "them are deleted, reading begins at %d",
            *(where, group, offset, first, first),
        )
        return first

    def stops(self, bound: Bound, ends: OffsetBounds) -> Offsets:
        """Return where a batch query ends."""
        if bound.kind in ("time", "times"):
            return _or_latest(self._at_times(bound, ends, "endingOffsetsByTimestamp"), ends)
        return self._at_offsets(bound, ends, "endingOffsets")

    def _at_times(
        self, bound: Bound, ends: OffsetBounds, option: str
    ) -> dict[TopicPartition, int | None]:
        if bound.kind == "time":
            return self.brokers.at_times(dict.fromkeys(ends.latest, bound.time_ms))
        return self.brokers.at_times(_complete(bound.offsets or {}, ends, option))

    def _at_offsets(self, bound: Bound, ends: OffsetBounds, option: str) -> Offsets:
        if bound.kind == "earliest":
            return dict(ends.earliest)
        if bound.kind == "latest":
            return dict(ends.latest)
        told = _complete(bound.offsets or {}, ends, option)
        sides = {EARLIEST: ends.earliest, LATEST: ends.latest}
        return {
            where: sides[offset][where] if offset in sides else offset
            for where, offset in told.items()
        }

    # -- batch queries

    def between(self, starts: Offsets, stops: Offsets, ends: OffsetBounds) -> list[OffsetRange]:
        """Return the ranges of a batch query; missing records count as lost.

        Records of open transactions are not missing: the tasks wait for them.
        """
        found = []
        beyond = [each for each in starts if max(starts[each], stops[each]) > ends.latest[each]]
        latest = {**ends.latest, **self.brokers.log_ends(beyond)}
        for where in sorted(starts):
            start, stop = starts[where], stops[where]
            if start > stop and stop < ends.latest[where]:
                raise ConfigError(
                    f"{where}: the ending offset {stop} is before the starting offset {start}"
                )
            first, last = max(start, ends.earliest[where]), min(stop, latest[where])
            if first > start and stop > start:
                lost = f"{where}: offsets {start} to {min(first, stop) - 1} are gone"
                self.lost(f"{lost}: the partition begins at {ends.earliest[where]} now")
            if last < stop or start > latest[where]:
                self.lost(f"{where}: it ends at {last}, before offset {max(start, stop)}")
            if first < last:
                found.append(OffsetRange(where.topic, where.partition, first, last))
        return found

    def lost(self, what: str) -> None:
        """Raise DataLossError or log a warning, as `failOnDataLoss` says."""
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{what}. {REMEDY}")
        log.warning("%s; the query continues without it (failOnDataLoss=false)", what)


def _or_latest(found: Mapping[TopicPartition, int | None], ends: OffsetBounds) -> Offsets:
    return {
        where: ends.latest[where] if offset is None else offset for where, offset in found.items()
    }


def _complete(
    told: Mapping[TopicPartition, int], ends: OffsetBounds, option: str
) -> Mapping[TopicPartition, int]:
    """Check that JSON names exactly the partitions of the query."""
    if missing := sorted(ends.latest.keys() - told.keys()):
        raise ConfigError(
            f"{option} leaves out {missing[0]}: it must name every partition (-2 is the earliest "
            f"offset, -1 the latest)"
        )
    if foreign := sorted(told.keys() - ends.latest.keys()):
        raise ConfigError(f"{option} names {foreign[0]}, which this query does not read")
    return told
