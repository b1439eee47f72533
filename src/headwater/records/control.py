"""Control records, which brokers write for brokers and client libraries, one in a batch.

    key = version i16 (0) · type i16        end-of-transaction value = version i16 · coordinator
                                            epoch i32

A marker ends the transaction of its batch's producer in this partition. Readers skip control
records but count their offsets.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from headwater.errors import E, KafkaError
from headwater.records.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    Buffer,
    RawHeader,
    read_header,
)
from headwater.records.builder import build_batch
from headwater.records.header_fields import (
    ATTRIBUTES,
    LENGTH,
    MAGIC_BYTE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
)
from headwater.records.record import Record, decode_records

_KEY = struct.Struct(">hh")
_END_VALUE = struct.Struct(">hi")
_VERSION = 0
_USUAL_RECORD = struct.Struct(">5shhbhib")
"""The record of a marker as brokers write it: lengths and deltas, key, length, value, no headers."""
_BEFORE_KEY, _BEFORE_VALUE = b"\x20\x00\x00\x00\x08", 0x0C
_USUAL_SIZE = HEADER_SIZE + _USUAL_RECORD.size


class ControlType(IntEnum):
    """The type of a control record; readers skip unknown ones."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Marker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int


def build_marker(marker: Marker, now: int) -> bytearray:
    """Build the batch of a marker."""
    kind = ControlType.COMMIT if marker.commit else ControlType.ABORT
    record = Record(
        key=_KEY.pack(_VERSION, kind),
        value=_END_VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return build_batch(
        [record],
        now=now,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: Buffer) -> Marker | None:
    """Return the marker in a control batch; None for another kind, or if compaction emptied it."""
    return _read_usual(batch) or _read_any(batch)


def _read_usual(batch: Buffer) -> Marker | None:
    """Return the marker if the batch is as brokers write it: each one is read many times."""
    if len(batch) < _USUAL_SIZE:
        return None
    header: RawHeader = HEADER.unpack_from(batch)
    before_key, _, kind, before_value, _, epoch, headers = _USUAL_RECORD.unpack_from(
        batch, HEADER_SIZE
    )
    if (
        header[LENGTH] + OVERHEAD != _USUAL_SIZE
        or header[MAGIC_BYTE] != MAGIC
        or header[ATTRIBUTES] & CODEC_MASK
        or header[RECORD_COUNT] != 1
        or (before_key, before_value, headers) != (_BEFORE_KEY, _BEFORE_VALUE, 0)
        or kind not in (ControlType.ABORT, ControlType.COMMIT)
    ):
        return None
    return Marker(header[PRODUCER_ID], header[PRODUCER_EPOCH], kind == ControlType.COMMIT, epoch)


def _read_any(batch: Buffer) -> Marker | None:
    records = decode_records(batch)
    header = read_header(batch)
    if not records:
        return None
    try:
        _, kind = _KEY.unpack_from(records[0].key or b"")
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        _, coordinator_epoch = _END_VALUE.unpack_from(records[0].value or b"")
    except struct.error:
        raise KafkaError(E.CORRUPT_MESSAGE, "the control record is cut short") from None
    return Marker(
        header.producer_id, header.producer_epoch, kind == ControlType.COMMIT, coordinator_epoch
    )
