"""Offsets that transactions will commit: they become visible with the marker, or never.

A later commit of the same partition wins over an earlier one, whichever is decided first: an offset
that was overwritten in the log stays pending, but its transaction does not bring it back.
"""

from typing import TypeAlias

from headwater.coordination.groups.records import CommittedOffset, OffsetRecord

_Key: TypeAlias = tuple[str, int]
"""Topic and partition."""
_Pending: TypeAlias = tuple[int, CommittedOffset | None]
"""The order in the log, and the offset; None once it is overwritten."""


_NONE: dict[_Key, dict[int, None]] = {}


class PendingOffsets:
    """The offsets of open transactions, by producer id; changed by replay only."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[str, dict[_Key, _Pending]]] = {}
        self._holders: dict[str, dict[_Key, dict[int, None]]] = {}
        """By group and partition: the producers with a pending offset."""
        self._written = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._holders

    def groups(self) -> list[str]:
        return list(self._holders)

    # -- changes

    def add(self, producer_id: int, record: OffsetRecord) -> None:
        """Note an offset of an open transaction."""
        group_id, topic, partition, committed = record
        key = topic, partition
        self._written += 1
        of_producer = self._by_producer.setdefault(producer_id, {})
        of_producer.setdefault(group_id, {})[key] = (self._written, committed)
        self._holders.setdefault(group_id, {}).setdefault(key, {})[producer_id] = None

    def overwrite(self, record: OffsetRecord) -> None:
        """Note a commit outside of transactions, or a deletion, which ends what is pending."""
        self._overwrite(record, self._written)

    def _overwrite(self, record: OffsetRecord, order: int) -> None:
        group_id, key = record.group_id, (record.topic, record.partition)
        for producer_id in list(self._holders.get(group_id, _NONE).get(key, ())):
            of_producer = self._by_producer[producer_id]
            offsets = of_producer[group_id]
            written = offsets[key][0]
            if written > order:
                continue
            if record.committed is not None:
                offsets[key] = (written, None)
                continue
            self._release(producer_id, group_id, key)
            del offsets[key]
            if not offsets:
                del of_producer[group_id]
            if not of_producer:
                del self._by_producer[producer_id]

    def end(self, producer_id: int, *, commit: bool) -> list[OffsetRecord]:
        """End the producer's transaction, and return the offsets that it commits."""
        ended = self._by_producer.pop(producer_id, {})
        committed = []
        for group_id, offsets in ended.items():
            for (topic, partition), (order, offset) in offsets.items():
                self._release(producer_id, group_id, (topic, partition))
                if commit and offset is not None:
                    record = OffsetRecord(group_id, topic, partition, offset)
                    committed.append(record)
                    self._overwrite(record, order)
        return committed

    def _release(self, producer_id: int, group_id: str, key: _Key) -> None:
        of_group = self._holders[group_id]
        holders = of_group[key]
        del holders[producer_id]
        if not holders:
            del of_group[key]
        if not of_group:
            del self._holders[group_id]

    # -- reading

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has an offset for the partition."""
        return (topic, partition) in self._holders.get(group_id, _NONE)

    def of_group(self, group_id: str) -> list[_Key]:
        """Return the partitions with pending offsets of a group."""
        return list(self._holders.get(group_id, _NONE))
