"""The records in `__transaction_state`, and their bytes.

A key is the int16 type of the record and the transactional id, a value the int16 version and a body; a
null value deletes. The formats are Kafka's.
"""

import struct
from collections import defaultdict
from typing import NamedTuple

from headwater.coordination.transactions.metadata import TransactionMetadata
from headwater.coordination.transactions.states import STATE_OF_CODE, STATES, TransactionState
from headwater.model import TopicPartition
from headwater.wire import codec
from headwater.wire.codec import WireError
from headwater.wire.messages.internal import TransactionLogKey, TransactionLogValue

TRANSACTION = 0
KEY_VERSION = 0
VALUE_VERSION = 1

_INT16 = struct.Struct(">h")
_KEY_PREFIX = _INT16.pack(TRANSACTION)
_VALUE_PREFIX = _INT16.pack(VALUE_VERSION)


class TransactionRecord(NamedTuple):
    """The state of a transactional id, or with None its deletion."""

    transactional_id: str
    metadata: TransactionMetadata | None


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """The key and value of `record`."""
    key = TransactionLogKey(transactional_id=record.transactional_id)
    value = None if record.metadata is None else _value(record.metadata)
    return _KEY_PREFIX + codec.encode_bytes(key, KEY_VERSION), value


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Read what `encode`, or Kafka, wrote; None for a record of another type."""
    if len(key) < _INT16.size or _INT16.unpack_from(key)[0] != TRANSACTION:
        return None
    found, _ = codec.decode(TransactionLogKey, KEY_VERSION, key, _INT16.size)
    return TransactionRecord(found.transactional_id, None if value is None else _read(value))


def _value(metadata: TransactionMetadata) -> bytes:
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=STATES[metadata.state].code,
        transaction_partitions=_by_topic(metadata),
        transaction_last_update_timestamp_ms=metadata.update_timestamp,
        transaction_start_timestamp_ms=metadata.start_timestamp,
        client_transaction_version=metadata.client_version,
    )
    return _VALUE_PREFIX + codec.encode_bytes(value, VALUE_VERSION)


def _by_topic(metadata: TransactionMetadata) -> list[TransactionLogValue.PartitionsSchema] | None:
    if metadata.state is TransactionState.EMPTY:
        return None
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in metadata.partitions:
        indexes[topic].append(index)
    return [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=sorted(indexes[topic]))
        for topic in sorted(indexes)
    ]


def _read(value: bytes) -> TransactionMetadata:
    if len(value) < _INT16.size:
        raise WireError("a value of __transaction_state has no version")
    (version,) = _INT16.unpack_from(value)
    if not TransactionLogValue.__schema__.versions.holds(version):
        raise WireError(f"a value of __transaction_state has the unknown version {version}")
    found, _ = codec.decode(TransactionLogValue, version, value, _INT16.size)
    state = STATE_OF_CODE.get(found.transaction_status)
    if state is None:
        raise WireError(f"no state of a transaction has the code {found.transaction_status}")
    return TransactionMetadata(
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(part.topic, index)
            for part in found.transaction_partitions or ()
            for index in part.partition_ids
        ),
        found.transaction_last_update_timestamp_ms,
        found.transaction_start_timestamp_ms,
        found.previous_producer_id,
        found.next_producer_id,
        found.client_transaction_version,
    )
