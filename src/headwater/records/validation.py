"""What a broker demands of a batch before it may enter a log.

`check_batch` looks at the header and the checksum and never at a record: it is run for every batch
that a client sends, so its happy path is one unpack, one CRC and four comparisons; what was wrong
is found out afterwards, by the functions below it. `walk.check_records` goes through the records
of the batches for which `needs_walk` says so.

Codes are those of Kafka's broker, a client tells apart what to retry by them. Where Kafka's answer
is an accident (a codec number that does not exist makes it answer UNKNOWN_SERVER_ERROR) or where it
lets pass what no client sends (LogAppendTime or delete-horizon bits, bytes after the batch), the
batch is refused with the nearest fitting code.
"""

from dataclasses import dataclass, field
from typing import Final

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
    RawHeader,
)
from headwater.records.checksum import crc32c

INT64_MAX: Final = (1 << 63) - 1
WALKED_COUNT: Final = 4
"""Batches of up to so many records are always walked: it costs next to nothing."""
MAX_UNCOMPRESSED_BYTES: Final = 64 << 20

_ZSTD = 4
_CLIENT_ATTRIBUTES = frozenset(
    codec | transactional for codec in range(_ZSTD + 1) for transactional in (0, TRANSACTIONAL)
)
_UNLIMITED_MS = 1 << 64
_unpack = HEADER.unpack_from


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What one topic accepts; made once per change of its settings."""

    max_message_bytes: int = 1048588
    segment_bytes: int = 1 << 30
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    log_append_time: bool = False
    keys_required: bool = False
    """The topic is compacted."""
    validate_records: bool = False
    """Walk every batch (log.validate.records)."""

    largest: int = field(init=False)
    """Bytes of the largest batch that both limits allow."""
    max_uncompressed_bytes: int = field(init=False)
    walk_up_to: int = field(init=False)
    """Batches of at most so many records are walked."""
    before_ms: int = field(init=False)
    after_ms: int = field(init=False)
    """The timestamp limits in force: none where the broker stamps the records itself."""

    def __post_init__(self) -> None:
        walked = INT64_MAX if self.keys_required or self.validate_records else WALKED_COUNT
        uncompressed = min(self.max_message_bytes * 8, MAX_UNCOMPRESSED_BYTES)
        stamped = self.log_append_time
        object.__setattr__(self, "largest", min(self.max_message_bytes, self.segment_bytes))
        object.__setattr__(self, "max_uncompressed_bytes", uncompressed)
        object.__setattr__(self, "walk_up_to", walked)
        object.__setattr__(
            self, "before_ms", _UNLIMITED_MS if stamped else self.timestamp_before_max_ms
        )
        object.__setattr__(
            self, "after_ms", _UNLIMITED_MS if stamped else self.timestamp_after_max_ms
        )


def check_batch(
    batch: memoryview, rules: BatchRules, now_ms: int, zstd_known: bool = True
) -> RawHeader:
    """The header of the one batch in a Produce request's records field, or KafkaError.

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
    if (pid != NO_PRODUCER_ID or attributes & TRANSACTIONAL) and (pid | epoch | sequence) < 0:
        raise _unsequenced(header)
    if max_ms > now_ms + rules.after_ms or first_ms < now_ms - rules.before_ms:
        _check_header_times(first_ms, max_ms, rules, now_ms)
    if not zstd_known and attributes & CODEC_MASK == _ZSTD:
        raise KafkaError(E.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer")
    return header


def needs_walk(header: RawHeader, rules: BatchRules) -> bool:
    """Whether `walk.check_records` must see the batch before it is staged.

    A maximum below the first timestamp is a mistake that Kafka mends rather than refuses, and only
    the records can tell what it should be.
    """
    return header[12] <= rules.walk_up_to or header[8] < header[7]


def _fragment(batch: memoryview) -> KafkaError:
    """Fewer bytes than a header has."""
    if len(batch) >= OVERHEAD and HEADER_SIZE > _declared_size(batch) <= len(batch):
        return KafkaError(
            E.CORRUPT_MESSAGE,
            f"a batch of {_declared_size(batch)} bytes is smaller than its header",
        )
    return KafkaError(E.INVALID_RECORD, f"{len(batch)} bytes hold no whole record batch")


def _declared_size(batch: memoryview) -> int:
    return int.from_bytes(batch[8:OVERHEAD], "big", signed=True) + OVERHEAD


def _misframed(header: RawHeader, size: int, rules: BatchRules) -> KafkaError:
    """Where the batch begins or ends wrongly, or is too large."""
    declared = header[1] + OVERHEAD
    magic = header[3]
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
    if header[0]:
        return KafkaError(
            E.INVALID_RECORD, f"the base offset of a new batch must be 0, not {header[0]}"
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
    """The count or the attributes."""
    attributes, last, count = header[5], header[6], header[12]
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


def _unsequenced(header: RawHeader) -> KafkaError:
    _, _, _, _, _, _, _, _, _, producer_id, epoch, sequence, _ = header
    return KafkaError(
        E.INVALID_RECORD,
        f"producer id {producer_id}, epoch {epoch} and sequence {sequence} do not go together",
    )


def _check_header_times(first_ms: int, max_ms: int, rules: BatchRules, now_ms: int) -> None:
    """Refuse by the header's timestamps; a record without one (-1) has no limits."""
    earliest, latest = now_ms - rules.before_ms, now_ms + rules.after_ms
    if max_ms > latest or (first_ms < earliest and first_ms != NO_TIMESTAMP):
        raise KafkaError(
            E.INVALID_TIMESTAMP,
            f"timestamps {first_ms} to {max_ms} are outside of {earliest} to {latest}",
        )
