"""Reads a segment file batch by batch, for `headwater log dump`."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import BinaryIO, NamedTuple

from headwater.cli.internal_records import Describer, describe_control_record, describer_for
from headwater.errors import KafkaError
from headwater.observe.logs import printable
from headwater.records.batch import (
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    BatchHeader,
    read_header,
)
from headwater.records.checksum import crc32c
from headwater.records.compression import Codec
from headwater.records.record import Record, decode_records

MAX_BATCH = 1 << 30
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DumpedBatch(NamedTuple):
    """An undamaged batch."""

    position: int
    header: BatchHeader
    records: list[Record]
    meaning: Describer

    def meaning_of(self, record: Record) -> str | None:
        """Describe the record if it is a control record or belongs to an internal topic."""
        return describe_control_record(record) if self.header.control else self.meaning(record)


class DamagedBatch(NamedTuple):
    """A damaged batch; nothing after it can be read."""

    position: int
    reason: str


def batches_of(path: str) -> Iterator[DumpedBatch | DamagedBatch]:
    """Yield the batches of a segment up to its end or the first damaged one."""
    meaning = describer_for(path)
    with open(path, "rb") as file:
        position = 0
        while True:
            batch = _next_batch(file, position, meaning)
            if batch is None:
                return
            yield batch
            if isinstance(batch, DamagedBatch):
                return
            position += batch.header.size


def _next_batch(
    file: BinaryIO, position: int, meaning: Describer
) -> DumpedBatch | DamagedBatch | None:
    head = file.read(HEADER_SIZE)
    if not head:
        return None
    if len(head) < HEADER_SIZE:
        return DamagedBatch(position, f"the file ends with {len(head)} bytes of a batch header")
    header = read_header(head)
    if header.magic != MAGIC or not HEADER_SIZE - OVERHEAD <= header.length < MAX_BATCH:
        return DamagedBatch(position, "not a record batch of format 2")
    batch = head + file.read(header.size - HEADER_SIZE)
    if len(batch) < header.size:
        return DamagedBatch(position, f"{header.size - len(batch)} bytes of the batch are missing")
    if crc32c(memoryview(batch)[CRC_START:]) != header.crc:
        return DamagedBatch(
            position, f"the checksum of the batch at offset {header.base_offset} is wrong"
        )
    try:
        return DumpedBatch(position, header, decode_records(batch), meaning)
    except KafkaError as malformed:
        return DamagedBatch(position, malformed.message)


def batch_text(batch: DumpedBatch, *, with_records: bool) -> str:
    """Return one line for the batch and one indented line for each record."""
    header = batch.header
    parts = [
        f"offsets {header.base_offset}-{header.last_offset}",
        f"records {header.count}",
        f"position {batch.position}",
        f"size {header.size}",
        f"epoch {header.leader_epoch}",
        f"codec {_codec(header)}",
        f"time {time_text(header.max_timestamp)}",
    ]
    if header.producer_id >= 0:
        parts.append(f"producer {header.producer_id}/{header.producer_epoch}")
        parts.append(f"sequence {header.base_sequence}-{header.last_sequence}")
    parts += _flags(header)
    lines = ["  ".join(parts)]
    if with_records:
        lines += [_record_text(record, batch.meaning_of(record)) for record in batch.records]
    return "".join(f"{line}\n" for line in lines)


def json_line(batch: DumpedBatch, *, with_records: bool) -> str:
    """Return the batch as one JSON object; bytes that are not text become hexadecimal digits."""
    header = batch.header
    shown: dict[str, object] = {
        "position": batch.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "size": header.size,
        "leader_epoch": header.leader_epoch,
        "codec": _codec(header),
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "flags": _flags(header),
    }
    if with_records:
        shown["records"] = [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _json_bytes(record.key),
                "value": _json_bytes(record.value),
                "headers": [[name, _json_bytes(value)] for name, value in record.headers],
                "meaning": batch.meaning_of(record),
            }
            for record in batch.records
        ]
    return json.dumps(shown, ensure_ascii=False)


def time_text(milliseconds: int) -> str:
    """Format a timestamp in UTC; a number outside of the calendar stays a number."""
    if milliseconds < 0:
        return "none"
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def bytes_text(data: bytes | None) -> str:
    """Return text in quotes, other bytes as hexadecimal digits, None as null."""
    if data is None:
        return "null"
    try:
        return f'"{printable(data.decode(), limit=len(data) + 64)}"'
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _record_text(record: Record, meaning: str | None) -> str:
    parts = [f"  {record.offset}", time_text(record.timestamp)]
    if meaning:
        parts.append(meaning)
    else:
        parts += [f"key {bytes_text(record.key)}", f"value {bytes_text(record.value)}"]
    if record.headers:
        pairs = (f"{printable(name)}={bytes_text(value)}" for name, value in record.headers)
        parts.append(f"headers {', '.join(pairs)}")
    return "  ".join(parts)


def _codec(header: BatchHeader) -> str:
    known = header.codec in set(Codec)
    return Codec(header.codec).name.lower() if known else f"unknown-{header.codec}"


def _flags(header: BatchHeader) -> list[str]:
    named = {
        "transactional": header.transactional,
        "control": header.control,
        "log-append-time": header.log_append_time,
    }
    return [name for name, there in named.items() if there]


def _json_bytes(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}
