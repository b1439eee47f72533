"""Builds batches from records, for coordinators, tools, tests and the client."""

from collections.abc import Sequence

from headwater.model import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from headwater.records.batch import CONTROL, LOG_APPEND_TIME, MAGIC, TRANSACTIONAL
from headwater.records.compression import Codec, compress
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record, encode_records


def build_batch(
    records: Sequence[Record],
    *,
    now: int,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    codec: int = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = 0,
) -> bytearray:
    """Build a batch of at least one record; `now` is the time of records without a timestamp.

    With `timestamp_type` 1 (LogAppendTime) it is the time of all records.
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    records = [
        record._replace(timestamp=now) if record.timestamp == NO_TIMESTAMP else record
        for record in records
    ]
    base_timestamp = records[0].timestamp
    attributes = codec
    attributes |= LOG_APPEND_TIME if timestamp_type else 0
    attributes |= TRANSACTIONAL if transactional else 0
    attributes |= CONTROL if control else 0
    body = compress(codec, encode_records(records, base_timestamp))
    return complete_batch(
        (
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            len(records) - 1,
            base_timestamp,
            now if timestamp_type else max(record.timestamp for record in records),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        ),
        body,
    )
