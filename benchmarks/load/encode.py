"""Batches and requests, encoded by hand.

A benchmark that used the codec of the broker it measures would share its faults, and the
generator wants frames whose patchable positions are known. So this page knows the few messages
that a load needs and nothing else.
"""

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c

_BATCH = struct.Struct(">qiibIhiqqqhii")  # the 61 bytes in front of the records
_CRC_START = 21
_PRODUCE, _FETCH, _LIST_OFFSETS, _INIT_PRODUCER_ID = 0, 1, 2, 22
_CLIENT_ID = b"\x00\x04load"


@dataclass(frozen=True)
class Producer:
    """Who sends: an idempotent producer, or nobody in particular."""

    producer_id: int = -1
    epoch: int = -1


NOBODY = Producer()


@dataclass(frozen=True)
class Topic:
    """A topic as requests name it: by name in old versions, by id in new ones."""

    name: str
    topic_id: bytes
    partitions: int


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(value: int) -> bytes:
    return _uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def _record(offset_delta: int, value: bytes, key: bytes | None = None) -> bytes:
    named = b"\x01" if key is None else _varint(len(key)) + key
    body = b"\x00\x00" + _varint(offset_delta) + named + _varint(len(value)) + value + b"\x00"
    return _varint(len(body)) + body


def batch(records: int, value_bytes: int, producer: Producer = NOBODY) -> bytes:
    """A batch of `records` equal records without keys, of this moment's time."""
    value = b"x" * value_bytes
    return _batch([_record(i, value) for i in range(records)], producer)


def keyed_batch(keys: Sequence[bytes], value_bytes: int) -> bytes:
    """A batch with a record for each key, of this moment's time."""
    value = b"x" * value_bytes
    return _batch([_record(i, value, key) for i, key in enumerate(keys)], NOBODY)


def _batch(encoded: Sequence[bytes], producer: Producer) -> bytes:
    records, body = len(encoded), b"".join(encoded)
    now_ms = time.time_ns() // 1_000_000
    sequence = -1 if producer.producer_id < 0 else 0
    length = _BATCH.size - 12 + len(body)
    who = (producer.producer_id, producer.epoch, sequence)
    header = bytearray(
        _BATCH.pack(0, length, -1, 2, 0, 0, records - 1, now_ms, now_ms, *who, records)
    )
    checksum = crc32c.crc32c(bytes(header[_CRC_START:]) + body)
    struct.pack_into(">I", header, _CRC_START - 4, checksum)
    return bytes(header) + body


def batch_of(total_bytes: int, value_bytes: int, producer: Producer = NOBODY) -> bytes:
    """The largest batch of such records that fits `total_bytes`."""
    largest_record = _record(total_bytes // value_bytes, b"x" * value_bytes)
    records = (total_bytes - _BATCH.size) // len(largest_record)
    return batch(records, value_bytes, producer)


def record_count(encoded: bytes) -> int:
    """How many records a batch says it has."""
    return int(_BATCH.unpack_from(encoded)[-1])


def log_of(encoded: bytes, copies: int) -> bytearray:
    """A log file: the batch again and again, with the base offset that each place has."""
    log = bytearray(encoded * copies)
    records = record_count(encoded)
    for i in range(copies):
        struct.pack_into(">q", log, i * len(encoded), i * records)
    return log


def _frame(api_key: int, version: int, flexible: bool, body: bytes) -> bytes:
    header = struct.pack(">hhi", api_key, version, 0) + _CLIENT_ID + (b"\x00" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _count(value: int, flexible: bool) -> bytes:
    return _uvarint(value + 1) if flexible else struct.pack(">i", value)


def _topic(topic: Topic, flexible: bool, by_id: bool) -> bytes:
    if by_id:
        return topic.topic_id
    name = topic.name.encode()
    return (_uvarint(len(name) + 1) if flexible else struct.pack(">h", len(name))) + name


def produce_request(
    version: int, acks: int, topic: Topic, partitions: list[int], encoded: bytes
) -> tuple[bytes, list[int]]:
    """A Produce frame (v7-v13) with one batch per partition, and where those batches are."""
    flexible = version >= 9
    tags = b"\x00" if flexible else b""
    no_transaction = b"\x00" if flexible else b"\xff\xff"
    parts = [
        no_transaction + struct.pack(">hi", acks, 30_000) + _count(1, flexible),
        _topic(topic, flexible, version >= 13) + _count(len(partitions), flexible),
    ]
    for index in partitions:
        parts += [struct.pack(">i", index) + _count(len(encoded), flexible), encoded, tags]
    frame = _frame(_PRODUCE, version, flexible, b"".join(parts) + tags + tags)
    positions, at = [], 0
    for _ in partitions:
        positions.append(frame.index(encoded, at))
        at = positions[-1] + len(encoded)
    return frame, positions


def fetch_request(
    version: int, topic: Topic, partition: int, max_bytes: int
) -> tuple[bytes, list[int]]:
    """A sessionless Fetch frame (v11, v13-v18) of one partition, and where its offset is."""
    flexible = version >= 12
    tags = b"\x00" if flexible else b""
    replica = b"" if version >= 15 else struct.pack(">i", -1)
    limits = struct.pack(">iiibii", 500, 1, max_bytes, 0, 0, -1)
    unknown_epoch = struct.pack(">i", -1)
    before_offset = b"".join(
        (
            replica + limits + _count(1, flexible),
            _topic(topic, flexible, version >= 13) + _count(1, flexible),
            struct.pack(">i", partition) + unknown_epoch,
        )
    )
    after_offset = (unknown_epoch if flexible else b"") + struct.pack(">qi", -1, max_bytes)
    forgotten = _count(0, flexible)
    rack = b"\x01" if flexible else b"\x00\x00"
    body = before_offset + bytes(8) + after_offset + tags + tags + forgotten + rack + tags
    frame = _frame(_FETCH, version, flexible, body)
    return frame, [len(frame) - len(body) + len(before_offset)]


def init_producer_id_request() -> bytes:
    """An InitProducerId frame (v1) of a producer without transactions."""
    return _frame(_INIT_PRODUCER_ID, 1, False, struct.pack(">hi", -1, 60_000))


def list_offsets_request(topic: str, partitions: int) -> bytes:
    """A ListOffsets frame (v1) for the end of each partition; 22 bytes of answer each, at its end."""
    name = topic.encode()
    head = struct.pack(">iih", -1, 1, len(name)) + name + struct.pack(">i", partitions)
    latest = b"".join(struct.pack(">iq", index, -1) for index in range(partitions))
    return _frame(_LIST_OFFSETS, 1, False, head + latest)
