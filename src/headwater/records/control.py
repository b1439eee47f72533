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
from headwater.records.batch import Buffer, read_header
from headwater.records.builder import build_batch
from headwater.records.record import Record, decode_records

_KEY = struct.Struct(">hh")
_END_VALUE = struct.Struct(">hi")
_VERSION = 0


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
