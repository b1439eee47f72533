"""Offsets that transactions will commit: they become visible with the marker, or never.

A later commit of the same partition wins over an earlier one, whichever is decided first: an offset
that was overwritten in the log stays pending, but its transaction does not bring it back.
"""

from collections.abc import Iterator
from typing import TypeAlias

from headwater.coordination.groups.records import CommittedOffset, OffsetRecord

_Key: TypeAlias = tuple[str, int]
"""Topic and partition."""
_Pending: TypeAlias = tuple[int, CommittedOffset | None]
"""The order in the log, and the offset; None once it is overwritten."""


class PendingOffsets:
    """The offsets of open transactions, by producer id; changed by replay only."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[str, dict[_Key, _Pending]]] = {}
        self._producers_of: dict[str, dict[int, None]] = {}
        """By group: the producers with pending offsets, in the order of their first one."""
        self._written = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._producers_of

    def groups(self) -> list[str]:
        return list(self._producers_of)

    # -- changes

    def add(self, producer_id: int, record: OffsetRecord) -> None:
        """Note an offset of an open transaction."""
        group_id, topic, partition, committed = record
        self._written += 1
        of_producer = self._by_producer.setdefault(producer_id, {})
        of_producer.setdefault(group_id, {})[topic, partition] = (self._written, committed)
        self._producers_of.setdefault(group_id, {})[producer_id] = None

    def overwrite(self, record: OffsetRecord) -> None:
        """Note a commit outside of transactions, or a deletion, which ends what is pending."""
        self._overwrite(record, self._written)

    def _overwrite(self, record: OffsetRecord, order: int) -> None:
        group_id, key = record.group_id, (record.topic, record.partition)
        for producer_id in list(self._producers_of.get(group_id, ())):
            offsets = self._by_producer[producer_id][group_id]
            if key not in offsets or offsets[key][0] > order:
                continue
            if record.committed is not None:
                offsets[key] = (offsets[key][0], None)
                continue
            del offsets[key]
            if not offsets:
                self._forget(producer_id, group_id)

    def end(self, producer_id: int, *, commit: bool) -> list[OffsetRecord]:
        """End the producer's transaction, and return the offsets that it commits."""
        ended = self._by_producer.get(producer_id, {})
        for group_id in list(ended):
            self._forget(producer_id, group_id)
        if not commit:
            return []
        committed = []
        for group_id, offsets in ended.items():
            others = group_id in self._producers_of
            for (topic, partition), (order, offset) in offsets.items():
                if offset is not None:
                    record = OffsetRecord(group_id, topic, partition, offset)
                    committed.append(record)
                    if others:
                        self._overwrite(record, order)
        return committed

    def _forget(self, producer_id: int, group_id: str) -> None:
        of_producer = self._by_producer[producer_id]
        # `end` still reads the offsets: only the table of the producer is replaced.
        kept = {other: offsets for other, offsets in of_producer.items() if other != group_id}
        if kept:
            self._by_producer[producer_id] = kept
        else:
            del self._by_producer[producer_id]
        producers = self._producers_of[group_id]
        del producers[producer_id]
        if not producers:
            del self._producers_of[group_id]

    # -- reading

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has an offset for the partition."""
        key = topic, partition
        return any(
            key in self._by_producer[producer_id][group_id]
            for producer_id in self._producers_of.get(group_id, ())
        )

    def of_group(self, group_id: str) -> Iterator[_Key]:
        """Yield the partitions with pending offsets of a group."""
        keys: dict[_Key, None] = {}
        for producer_id in self._producers_of.get(group_id, ()):
            keys.update(dict.fromkeys(self._by_producer[producer_id][group_id]))
        return iter(keys)
