"""Changes that a broker makes to a batch before it is staged.

Most batches are stored as received. One is changed if its topic has another codec, if the topic has
LogAppendTime, or if its maximum timestamp or its offset deltas are wrong.
"""

from headwater.errors import E, KafkaError
from headwater.records.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    RawHeader,
)
from headwater.records.compression import compress, decompress
from headwater.records.decompressed_size import require_fits, surely_fits
from headwater.records.header_fields import ATTRIBUTES, BASE_TIMESTAMP, LENGTH, RECORD_COUNT
from headwater.records.header_writing import complete_batch, restamp
from headwater.records.record import decode_area, encode_records
from headwater.records.rules import MAX_UNCOMPRESSED_BYTES, WALKED_COUNT, BatchRules
from headwater.records.validation import (
    UNBOUNDED,
    OffsetsOutOfPlace,
    OutputTooLarge,
    check_records,
    needs_walk,
)

HEAVY_COUNT = 2_000
"""A walk over more records than this would hold the loop too long."""
HEAVY_BYTES = 32 << 10
"""Decompressing more bytes than this would hold the loop too long."""
HEAVY_OUTPUT = 64 << 10
"""The most that a batch may decompress to on the loop; decompressing stops there."""
HEAVY_RECOMPRESSION = 4 << 10
"""The same for compressing, which takes longer, especially at high levels."""


def prepare(
    batch: memoryview, header: RawHeader, rules: BatchRules, now_ms: int, most: int = UNBOUNDED
) -> tuple[memoryview, RawHeader]:
    """Check the records if the rules say so, then make the changes that the topic needs.

    `batch` has passed `check_batch`; it is changed in place, or a new one is returned. With a bound,
    OutputTooLarge if it decompresses to more than `most` bytes, OffsetsOutOfPlace if its offset
    deltas must be rewritten: both take long, and nothing was changed then.
    """
    recompressed = _needs_recompression(header, rules)
    if recompressed or needs_walk(header, rules):
        batch, header = _checked(batch, header, rules, now_ms, most)
    elif not is_surely_readable(batch, header):
        if most < UNBOUNDED:
            raise OutputTooLarge(E.MESSAGE_TOO_LARGE, "its size is not known yet")
        require_fits(header[ATTRIBUTES] & CODEC_MASK, batch[HEADER_SIZE:], MAX_UNCOMPRESSED_BYTES)
    if recompressed:
        batch, header = _recompress(batch, header, rules)
    if rules.log_append_time:
        header = restamp(batch, header, header[ATTRIBUTES] | LOG_APPEND_TIME, now_ms)
    return batch, header


def is_surely_readable(batch: memoryview, header: RawHeader) -> bool:
    """Return whether the records of the batch certainly fit into the memory of readers.

    `prepare` finds it out if that is not certain.
    """
    codec = header[ATTRIBUTES] & CODEC_MASK
    return not codec or surely_fits(codec, batch[HEADER_SIZE:], MAX_UNCOMPRESSED_BYTES)


def _checked(
    batch: memoryview, header: RawHeader, rules: BatchRules, now_ms: int, most: int
) -> tuple[memoryview, RawHeader]:
    """Return the batch after `check_records`, with its offset deltas corrected."""
    try:
        return batch, check_records(batch, header, rules, now_ms, most)
    except OffsetsOutOfPlace:
        if most < UNBOUNDED:
            raise
        codec = header[ATTRIBUTES] & CODEC_MASK
        records = decode_area(_uncompressed(batch, header, rules), BatchHeader._make(header))
        area = encode_records(records, header[BASE_TIMESTAMP])
        level = rules.level if codec == rules.codec else None
        changed = complete_batch(header, compress(codec, area, level))
    _refuse_too_large(len(changed), rules, "with its offset deltas corrected")
    batch, header = memoryview(changed), HEADER.unpack_from(changed)
    return batch, check_records(batch, header, rules, now_ms)


def is_heavy(header: RawHeader, rules: BatchRules) -> bool:
    """Return whether `prepare` takes milliseconds: then it runs in a thread while the inbox waits.

    A compressed batch may take longer than it seems: `prepare` with a bound finds out.
    """
    if header[RECORD_COUNT] <= WALKED_COUNT and header[LENGTH] <= HEAVY_RECOMPRESSION:
        return False
    if _needs_recompression(header, rules):
        return header[RECORD_COUNT] > HEAVY_COUNT or header[LENGTH] > HEAVY_RECOMPRESSION
    if not needs_walk(header, rules):
        return False
    compressed = bool(header[ATTRIBUTES] & CODEC_MASK)
    return header[RECORD_COUNT] > HEAVY_COUNT or (compressed and header[LENGTH] > HEAVY_BYTES)


def _needs_recompression(header: RawHeader, rules: BatchRules) -> bool:
    return rules.codec is not None and rules.codec != header[ATTRIBUTES] & CODEC_MASK


def _recompress(
    batch: memoryview, header: RawHeader, rules: BatchRules
) -> tuple[memoryview, RawHeader]:
    """Return the same records in the topic's codec."""
    area = _uncompressed(batch, header, rules)
    codec = rules.codec or 0
    if codec and len(area) > rules.max_uncompressed_bytes:
        # Readers refuse to decompress so much.
        raise KafkaError(
            E.MESSAGE_TOO_LARGE,
            f"the records have {len(area)} bytes uncompressed; "
            f"{rules.max_uncompressed_bytes} is the most in a compressed batch",
        )
    attributes = header[ATTRIBUTES] & ~CODEC_MASK | codec
    changed = complete_batch(
        (*header[:5], attributes, *header[6:]), compress(codec, area, rules.level)
    )
    _refuse_too_large(len(changed), rules, "in the topic's codec")
    return memoryview(changed), HEADER.unpack_from(changed)


def _uncompressed(batch: memoryview, header: RawHeader, rules: BatchRules) -> bytes:
    return decompress(
        header[ATTRIBUTES] & CODEC_MASK,
        batch[HEADER_SIZE:],
        rules.max_uncompressed_bytes,
        rules.max_message_bytes,
    )


def _refuse_too_large(size: int, rules: BatchRules, how: str) -> None:
    if size > rules.largest:
        raise KafkaError(
            E.MESSAGE_TOO_LARGE, f"the batch has {size} bytes {how}; {rules.largest} is the most"
        )
