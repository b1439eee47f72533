"""The checks that a batch must pass before it enters a log.

`check_batch` checks the header and the checksum, never a record. It runs for every batch that a
client sends, so its fast path is one unpack, one CRC and a few comparisons; the functions below it
find out what is wrong. `check_records` walks the records if `needs_walk` says so, and corrects what
Kafka corrects: a wrong maximum timestamp.

Error codes are those of Kafka's broker: clients decide by them what to retry. Where Kafka's answer
is an accident (UNKNOWN_SERVER_ERROR for an unknown codec) or where it accepts what no client sends
(LogAppendTime or delete-horizon bits, bytes after the batch), the batch is refused with the nearest
fitting code.
"""

from contextlib import suppress

from headwater.errors import E, KafkaError
from headwater.model import NO_PRODUCER_ID, NO_TIMESTAMP
from headwater.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    RawHeader,
)
from headwater.records.checksum import crc32c
from headwater.records.compression import decompress
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAGIC_BYTE,
    MAX_TIMESTAMP,
    RECORD_COUNT,
)
from headwater.records.header_writing import restamp
from headwater.records.record import decode_area
from headwater.records.record_scan import scan_records
from headwater.records.rules import INT64_MAX, INT64_MIN, BatchRules

NAMED_FAULTS_BYTES = 1 << 16
"""Up to this size a batch with wrong times is walked on the loop, to name the records."""
NAMED_FAULTS_OUTPUT = 1 << 16
UNBOUNDED = 1 << 62
LEAST_RECORD_BYTES = 7
"""A record without key, value and headers."""
_ZSTD = 4
_CLIENT_ATTRIBUTES = frozenset(
    codec | transactional for codec in range(_ZSTD + 1) for transactional in (0, TRANSACTIONAL)
)
_unpack = HEADER.unpack_from


def check_batch(
    batch: memoryview, rules: BatchRules, now_ms: int, zstd_known: bool = True
) -> RawHeader:
    """Return the header of the one batch in a Produce request's records field, or raise KafkaError.

    `zstd_known` is false for Produce requests below version 7, whose senders cannot know the codec.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise _fragment(batch)
    header: RawHeader = _unpack(batch)
    (base, length, _, magic, crc, attributes, last, first_ms, max_ms, pid, epoch, sequence, n) = (
        header
    )
    if magic != MAGIC or length + OVERHEAD != size or base or size > rules.largest:
        raise _misframed(header, size, rules)
    if crc32c(batch[CRC_START:]) != crc:
        raise KafkaError(E.CORRUPT_MESSAGE, f"the batch does not match its checksum {crc:#010x}")
    if n != last + 1 or n < 1 or attributes not in _CLIENT_ATTRIBUTES:
        raise _inconsistent(header)
    if n > rules.walk_up_to and n * LEAST_RECORD_BYTES > size - HEADER_SIZE:
        _check_count(header, size, rules)
    if (pid != NO_PRODUCER_ID or attributes & TRANSACTIONAL) and (pid | epoch | sequence) < 0:
        raise _unsequenced(header)
    if max_ms > now_ms + rules.after_ms or first_ms < now_ms - rules.before_ms:
        _check_header_times(batch, header, rules, now_ms)
    if not zstd_known and attributes & CODEC_MASK == _ZSTD:
        raise KafkaError(E.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer")
    return header


def needs_walk(header: RawHeader, rules: BatchRules) -> bool:
    """Return whether `check_records` must check the batch before it is staged.

    A maximum below the first timestamp is a mistake that Kafka corrects rather than refuses, and
    only the records say what it should be.
    """
    return (
        header[RECORD_COUNT] <= rules.walk_up_to or header[MAX_TIMESTAMP] < header[BASE_TIMESTAMP]
    )


def check_records(
    batch: memoryview, header: RawHeader, rules: BatchRules, now_ms: int, most: int = UNBOUNDED
) -> RawHeader:
    """Check every record of a batch that passed `check_batch`, and return its (corrected) header.

    INVALID_RECORD if the records are malformed; RecordsRefused if single ones break a rule of the
    topic; OffsetsOutOfPlace if the batch is sound but its offset deltas are not 0, 1, 2, ...;
    OutputTooLarge if the batch decompresses to more than `most` bytes, which would take too long
    for this caller.
    """
    codec = header[ATTRIBUTES] & CODEC_MASK
    if codec:
        area: Buffer = _decompress(codec, batch, rules, most)
        pos = 0
    else:
        area, pos = batch, HEADER_SIZE
    earliest, latest, keyless, in_place = scan_records(area, pos, len(area), header[RECORD_COUNT])
    first_ms = header[BASE_TIMESTAMP] + earliest
    last_ms = header[BASE_TIMESTAMP] + latest
    if last_ms > INT64_MAX or first_ms < INT64_MIN:
        raise KafkaError(E.INVALID_TIMESTAMP, f"{first_ms} to {last_ms} do not fit into 64 bits")
    if (
        (keyless and rules.keys_required)
        or last_ms > now_ms + rules.after_ms
        or first_ms < now_ms - rules.before_ms
    ):
        _judge_records(area[pos:], header, rules, now_ms)
    if not in_place:
        raise OffsetsOutOfPlace
    if last_ms == header[MAX_TIMESTAMP] or rules.log_append_time:
        return header
    return restamp(batch, header, header[ATTRIBUTES], last_ms)


def _decompress(codec: int, batch: memoryview, rules: BatchRules, most: int) -> bytes:
    limit, free = rules.max_uncompressed_bytes, rules.max_message_bytes
    try:
        return decompress(codec, batch[HEADER_SIZE:], min(limit, most), free)
    except KafkaError as refused:
        if refused.code is E.MESSAGE_TOO_LARGE and most < limit:
            raise OutputTooLarge(refused.code, refused.message) from None
        raise


class OutputTooLarge(KafkaError):
    """A compressed batch decompresses to more than the caller's limit."""


class OffsetsOutOfPlace(Exception):
    """The offset deltas of a valid batch are not 0, 1, 2 …: `rewrite` corrects them.

    Kafka stores such deltas unchanged if the batch is not compressed; if it is, Kafka tries to
    correct them, but fails with UNKNOWN_SERVER_ERROR. A batch that is not walked is stored
    unchanged.
    """


class RecordsRefused(KafkaError):
    """Records of a batch break the topic's rules, so the whole batch is refused."""

    def __init__(self, code: E, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
        """Place in the batch and reason, for Produce version 8 and newer."""


def _fragment(batch: memoryview) -> KafkaError:
    """Return the error for fewer bytes than a header has."""
    if len(batch) >= OVERHEAD and HEADER_SIZE > _declared_size(batch) <= len(batch):
        return KafkaError(
            E.CORRUPT_MESSAGE,
            f"a batch of {_declared_size(batch)} bytes is smaller than its header",
        )
    return KafkaError(E.INVALID_RECORD, f"{len(batch)} bytes hold no whole record batch")


def _declared_size(batch: memoryview) -> int:
    return int.from_bytes(batch[8:OVERHEAD], "big", signed=True) + OVERHEAD


def _misframed(header: RawHeader, size: int, rules: BatchRules) -> KafkaError:
    """Return the error for a batch that begins or ends wrongly, or is too large."""
    declared = header[LENGTH] + OVERHEAD
    magic = header[MAGIC_BYTE]
    if declared < HEADER_SIZE and magic == MAGIC:
        return KafkaError(
            E.CORRUPT_MESSAGE, f"a batch of {declared} bytes is smaller than its header"
        )
    if not 0 <= magic <= MAGIC:
        return KafkaError(E.CORRUPT_MESSAGE, f"there is no message format {magic}")
    if magic != MAGIC:
        return KafkaError(
            E.INVALID_RECORD, f"message format {magic} is too old: send record batches (format 2)"
        )
    if declared > size:
        return KafkaError(
            E.INVALID_RECORD, f"the batch is cut: {size} of its {declared} bytes came"
        )
    if declared < size:
        return KafkaError(
            E.INVALID_RECORD,
            f"{size - declared} bytes follow the batch: send exactly one for each partition",
        )
    if header[BASE_OFFSET]:
        return KafkaError(
            E.INVALID_RECORD, f"the base offset of a new batch must be 0, not {header[BASE_OFFSET]}"
        )
    if size > rules.max_message_bytes:
        return KafkaError(
            E.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, max.message.bytes is {rules.max_message_bytes}",
        )
    return KafkaError(
        E.RECORD_LIST_TOO_LARGE,
        f"the batch has {size} bytes, segment.bytes is {rules.segment_bytes}",
    )


def _inconsistent(header: RawHeader) -> KafkaError:
    """Return the error for an inconsistent count or invalid attributes."""
    attributes, last, count = header[ATTRIBUTES], header[LAST_OFFSET_DELTA], header[RECORD_COUNT]
    if count != last + 1 or count < 1:
        return KafkaError(E.INVALID_RECORD, f"{count} records cannot end at offset delta {last}")
    if attributes & CONTROL:
        return KafkaError(E.INVALID_RECORD, "clients may not write control records")
    if attributes & LOG_APPEND_TIME:
        return KafkaError(E.INVALID_TIMESTAMP, "only the broker may set LogAppendTime")
    if attributes & CODEC_MASK > _ZSTD:
        return KafkaError(
            E.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {attributes & CODEC_MASK}"
        )
    return KafkaError(E.INVALID_RECORD, f"clients may not set the attributes {attributes:#06x}")


def _check_count(header: RawHeader, size: int, rules: BatchRules) -> None:
    """Refuse a batch that is not walked if its bytes cannot hold the records that it claims."""
    count = header[RECORD_COUNT]
    compressed = header[ATTRIBUTES] & CODEC_MASK
    room = rules.max_uncompressed_bytes if compressed else size - HEADER_SIZE
    if count * LEAST_RECORD_BYTES > room:
        raise KafkaError(E.INVALID_RECORD, f"{count} records do not fit into {room} bytes")


def _unsequenced(header: RawHeader) -> KafkaError:
    _, _, _, _, _, _, _, _, _, producer_id, epoch, sequence, _ = header
    return KafkaError(
        E.INVALID_RECORD,
        f"producer id {producer_id}, epoch {epoch} and sequence {sequence} do not go together",
    )


def _check_header_times(
    batch: memoryview, header: RawHeader, rules: BatchRules, now_ms: int
) -> None:
    """Refuse by the header's timestamps; a record without one (-1) has no limits."""
    first_ms, max_ms = header[BASE_TIMESTAMP], header[MAX_TIMESTAMP]
    earliest, latest = now_ms - rules.before_ms, now_ms + rules.after_ms
    if max_ms > latest or (first_ms < earliest and first_ms != NO_TIMESTAMP):
        if len(batch) <= NAMED_FAULTS_BYTES:
            # Names the offending records.
            with suppress(OffsetsOutOfPlace, OutputTooLarge):
                check_records(batch, header, rules, now_ms, NAMED_FAULTS_OUTPUT)
        raise KafkaError(
            E.INVALID_TIMESTAMP,
            f"timestamps {first_ms} to {max_ms} are outside of {earliest} to {latest}",
        )


def _judge_records(area: Buffer, header: RawHeader, rules: BatchRules, now_ms: int) -> None:
    """Refuse the batch if records break a rule; a timestamp of -1 does not."""
    earliest, latest = now_ms - rules.before_ms, now_ms + rules.after_ms
    faults: list[tuple[int, str]] = []
    code = E.INVALID_RECORD
    for index, record in enumerate(decode_area(bytes(area), BatchHeader._make(header))):
        if rules.keys_required and record.key is None:
            faults.append((index, "a compacted topic takes no record without a key"))
        elif not earliest <= record.timestamp <= latest and record.timestamp != NO_TIMESTAMP:
            faults.append((index, f"timestamp {record.timestamp} is not in {earliest}..{latest}"))
            code = E.INVALID_TIMESTAMP
    if faults:
        first = f"record {faults[0][0]}: {faults[0][1]}"
        raise RecordsRefused(code, f"{len(faults)} records are refused; {first}", faults)
