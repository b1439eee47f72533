"""What compaction leaves of one batch: all of it, some of its records, its header alone, or nothing.

A batch that loses records keeps its base offset, its last offset and its sequence: offsets never
change, and the sequence of its last record is still known. An empty batch remains where a producer's
last sequence is, and at the end of each new segment, so that segments follow one another without a gap.

Tombstones and markers are kept until the batch's delete horizon, `delete.retention.ms` after the pass
that first found them (KIP-534). The horizon takes the place of the base timestamp, and the deltas of
the records change with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import E, KafkaError
from headwater.log.compaction.cleaned_transactions import CleanedTransactions
from headwater.log.compaction.jobs import ANY_OFFSET, LastBatch
from headwater.model import NO_OFFSET, NO_TIMESTAMP
from headwater.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Buffer,
    RawHeader,
)
from headwater.records.compression import compress, decompress
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
)
from headwater.records.header_writing import complete_batch
from headwater.records.record import wrap
from headwater.records.rules import MAX_UNCOMPRESSED_BYTES
from headwater.records.varint import INT64_BYTES, read_varint, write_varint

if TYPE_CHECKING:
    from headwater.log.compaction.pure_key_map import KeyMap

_LAST_TIMESTAMP = (1 << 63) - 1


@dataclass(slots=True)
class CleanCounts:
    """What a pass has read and kept so far."""

    read_bytes: int = 0
    kept_bytes: int = 0
    read_records: int = 0
    kept_records: int = 0


class BatchCleaner:
    """Decides about the batches of a log, in the order of their offsets."""

    __slots__ = (
        "_delete_retention_ms", "_keys", "_last_mapped", "_now_ms", "_producers", "counts",
        "transactions",
    )  # fmt: skip

    def __init__(
        self,
        keys: "KeyMap",
        last_mapped: int,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastBatch],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._keys = keys
        # Records above this offset are not in the map: all of them remain.
        self._last_mapped = last_mapped
        self.transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.counts = CleanCounts()

    def clean(self, header: RawHeader, batch: Buffer, *, is_final: bool) -> Buffer | None:
        """Return what remains of the batch, None if nothing does.

        `is_final` says that it is the last batch of a new segment, which remains at least empty.
        """
        counts = self.counts
        counts.read_bytes += len(batch)
        counts.read_records += header[RECORD_COUNT]
        if header[ATTRIBUTES] & CONTROL:
            kept = self._clean_marker(header, batch)
        else:
            kept = self._clean_records(header, batch)
        if kept is None and (is_final or self._is_last_of_producer(header)):
            kept = batch if not header[RECORD_COUNT] else _emptied(header)
        if kept is not None:
            counts.kept_bytes += len(kept)
        return kept

    def _clean_marker(self, header: RawHeader, batch: Buffer) -> Buffer | None:
        over = self.transactions.is_over(header, batch)
        if not header[RECORD_COUNT]:
            return None
        horizon = _horizon(header)
        expired = over and horizon is not None and horizon <= self._now_ms
        # The last marker of a producer also has its epoch, which a restart needs.
        if expired and not self._is_last_of_producer(header):
            return None
        self.counts.kept_records += 1
        if not over or horizon is not None:
            return batch
        area = bytes(memoryview(batch)[HEADER_SIZE:])
        return self._with_horizon(header, area, 1, header[MAX_TIMESTAMP])

    def _clean_records(self, header: RawHeader, batch: Buffer) -> Buffer | None:
        if self.transactions.is_aborted(header) or not header[RECORD_COUNT]:
            return None
        horizon = _horizon(header)
        area = uncompressed(header, batch)
        kept, count, tombstones, newest = self._keys.keep_records(
            area,
            header[RECORD_COUNT],
            header[BASE_OFFSET],
            header[BASE_TIMESTAMP],
            self._last_mapped,
            horizon is None or self._now_ms < horizon,
        )
        self.counts.kept_records += count
        if not count:
            return None
        if header[ATTRIBUTES] & LOG_APPEND_TIME:
            newest = header[MAX_TIMESTAMP]
        # A tombstone above the map is new to the pass that maps it: its time begins there.
        mapped = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] <= self._last_mapped
        if tombstones and mapped and horizon is None:
            return self._with_horizon(header, area if kept is None else kept, count, newest)
        if kept is None:
            return batch
        return _rebuilt(header, kept, count, newest)

    def _with_horizon(self, header: RawHeader, area: Buffer, count: int, newest: int) -> bytearray:
        horizon = min(self._now_ms + self._delete_retention_ms, _LAST_TIMESTAMP)
        shifted = shift_timestamps(area, count, wrap(header[BASE_TIMESTAMP] - horizon))
        changed = list(header)
        changed[ATTRIBUTES] |= DELETE_HORIZON
        changed[BASE_TIMESTAMP] = horizon
        return _rebuilt(tuple(changed), shifted, count, newest)  # type: ignore[arg-type]

    def _is_last_of_producer(self, header: RawHeader) -> bool:
        """Return whether the batch has the last sequence of a producer, or its last epoch."""
        last = self._producers.get(header[PRODUCER_ID]) if header[PRODUCER_ID] >= 0 else None
        if last is None:
            return False
        if last.last_offset == ANY_OFFSET:
            return True
        if last.last_offset == NO_OFFSET:
            return bool(header[ATTRIBUTES] & CONTROL) and header[PRODUCER_EPOCH] == last.epoch
        return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] == last.last_offset


def uncompressed(header: RawHeader, batch: Buffer) -> bytes:
    """Return the records of a batch, uncompressed."""
    area = memoryview(batch)[HEADER_SIZE:]
    codec = header[ATTRIBUTES] & CODEC_MASK
    return decompress(codec, area, MAX_UNCOMPRESSED_BYTES, MAX_UNCOMPRESSED_BYTES)


def shift_timestamps(area: Buffer, count: int, shift: int) -> bytes:
    """Return the records with `shift` added to their timestamp deltas, for another base timestamp."""
    parts: list[Buffer] = []
    pos = 0
    try:
        for _ in range(count):
            size, pos = read_varint(area, pos)
            stop = pos + size
            delta, at = read_varint(area, pos + 1, INT64_BYTES)
            if not pos < at <= stop <= len(area):
                raise KafkaError(E.INVALID_RECORD, "a record ends before its length says")
            written = write_varint(wrap(delta + shift))
            parts += (write_varint(1 + len(written) + stop - at), area[pos : pos + 1], written)
            parts.append(area[at:stop])
            pos = stop
    except IndexError:
        raise KafkaError(E.INVALID_RECORD, "the batch ends inside a record") from None
    return b"".join(parts)


def _horizon(header: RawHeader) -> int | None:
    return header[BASE_TIMESTAMP] if header[ATTRIBUTES] & DELETE_HORIZON else None


def _rebuilt(header: RawHeader, area: Buffer, count: int, newest: int) -> bytearray:
    """Return the batch with fewer records, in its codec."""
    changed = list(header)
    changed[MAX_TIMESTAMP], changed[RECORD_COUNT] = newest, count
    body = compress(header[ATTRIBUTES] & CODEC_MASK, area)
    return complete_batch(tuple(changed), body)  # type: ignore[arg-type]


def _emptied(header: RawHeader) -> bytearray:
    """Return the batch without records: offsets, producer and newest timestamp stay."""
    changed = list(header)
    changed[ATTRIBUTES] &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    changed[BASE_TIMESTAMP], changed[RECORD_COUNT] = NO_TIMESTAMP, 0
    return complete_batch(tuple(changed), b"")  # type: ignore[arg-type]
