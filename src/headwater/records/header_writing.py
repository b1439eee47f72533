"""Batches that get a new header and checksum: built ones, and received ones that the broker changes."""

from headwater.records.batch import CRC_START, HEADER, HEADER_SIZE, OVERHEAD, Buffer, RawHeader
from headwater.records.checksum import crc32c


def complete_batch(header: RawHeader, body: Buffer) -> bytearray:
    """Return the batch of a records area, with length and checksum computed."""
    batch = bytearray(HEADER_SIZE + len(body))
    batch[HEADER_SIZE:] = body
    write_header(batch, header)
    return batch


def write_header(batch: bytearray, header: RawHeader) -> None:
    """Write a header before the records in `batch`, with length and checksum computed."""
    base_offset, _, leader_epoch, magic, _, *rest = header
    length = len(batch) - OVERHEAD
    HEADER.pack_into(batch, 0, base_offset, length, leader_epoch, magic, 0, *rest)
    _write_checksum(batch)


def restamp(batch: memoryview, header: RawHeader, attributes: int, max_timestamp: int) -> RawHeader:
    """Change attributes and maximum timestamp of `batch` in place, and return its new header."""
    HEADER.pack_into(batch, 0, *header[:5], attributes, *header[6:8], max_timestamp, *header[9:])
    _write_checksum(batch)
    changed: RawHeader = HEADER.unpack_from(batch)
    return changed


def _write_checksum(batch: bytearray | memoryview) -> None:
    batch[CRC_START - 4 : CRC_START] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
