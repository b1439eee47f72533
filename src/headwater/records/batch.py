"""The 61-byte header of a record batch (magic 2), read and patched in place.

    0 base offset i64 · 8 length i32 (of what follows it) · 12 leader epoch i32 · 16 magic i8
    17 crc u32 (CRC-32C of byte 21 to the end) · 21 attributes i16 · 23 last offset delta i32
    27 base timestamp i64 · 35 max timestamp i64 · 43 producer id i64 · 51 producer epoch i16
    53 base sequence i32 · 57 record count i32 · 61 records, compressed as one block

Base offset and leader epoch come before the CRC's range: the broker assigns them without touching
the checksum, and the checksum does not protect them (`log/batch_scan.py` checks them).
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
RawHeader: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The thirteen numbers of a header in wire order, for the hot path."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
OVERHEAD: Final = 12
"""Bytes before those that the length field counts."""
CRC_START: Final = 21
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

SEQUENCES: Final = 1 << 31
"""Sequence numbers count modulo this."""

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")


class BatchHeader(NamedTuple):
    """A header with names, for code that is not hot."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's word hides tuple.count

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record; compaction keeps it even if that record is gone."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset at which the next batch begins."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Number of the compression codec."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether every record has `max_timestamp`, set by the broker."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether the batch holds one record for brokers and client libraries, not for users."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones; stored in place of the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped; -1 for a producer without sequences."""
        return last_sequence(self.base_sequence, self.last_offset_delta)


def last_sequence(base_sequence: int, last_offset_delta: int) -> int:
    """Return the sequence `last_offset_delta` after `base_sequence`; 0 follows 2**31 - 1."""
    if base_sequence < 0:
        return -1
    return (base_sequence + last_offset_delta) % SEQUENCES


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Return the header at `pos`; struct.error if fewer than 61 bytes are left."""
    return BatchHeader._make(HEADER.unpack_from(buf, pos))


def batches(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch; an incomplete or invalid tail ends the walk.

    Only the lengths are checked: a yielded batch may still fail its CRC.
    """
    pos = 0
    end = len(buf)
    while pos + HEADER_SIZE <= end:
        header = read_header(buf, pos)
        size = header.length + OVERHEAD
        if size < HEADER_SIZE or pos + size > end:
            return
        yield pos, header
        pos += size


def assign(buf: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Assign offset and leader epoch to the batch at the start of `buf`; the CRC stays valid."""
    _BASE_OFFSET.pack_into(buf, 0, base_offset)
    _LEADER_EPOCH.pack_into(buf, 12, leader_epoch)
