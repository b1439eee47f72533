"""What one topic accepts, as plain numbers for the hot path to compare."""

from dataclasses import dataclass, field
from typing import Final

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
WALKED_COUNT: Final = 4
"""Batches of up to this many records are always walked: it costs next to nothing."""
MAX_UNCOMPRESSED_BYTES: Final = 64 << 20
"""Readers refuse to decompress a batch to more than this, so no such batch may be accepted."""
LEAST_UNCOMPRESSED_BYTES: Final = 8 << 20
"""Any batch may decompress to this much: topics of small messages accept dense batches too."""

_UNLIMITED_MS = 1 << 64


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What one topic accepts; made once per change of its settings."""

    max_message_bytes: int = 1048588
    segment_bytes: int = 1 << 30
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    log_append_time: bool = False
    keys_required: bool = False
    """Whether every record needs a key: the topic is compacted."""
    validate_records: bool = False
    """Walk every batch (log.validate.records)."""
    codec: int | None = None
    """The codec of the topic's batches; None leaves it to producers."""
    level: int | None = None

    largest: int = field(init=False)
    """Bytes of the largest batch that both limits allow."""
    max_uncompressed_bytes: int = field(init=False)
    verbatim: bool = field(init=False)
    """Whether batches are stored as they are received."""
    walk_up_to: int = field(init=False)
    """Batches of at most this many records are walked."""
    before_ms: int = field(init=False)
    after_ms: int = field(init=False)
    """The timestamp limits in force: none if the broker stamps the records itself."""

    def __post_init__(self) -> None:
        walked = INT64_MAX if self.keys_required or self.validate_records else WALKED_COUNT
        uncompressed = max(self.max_message_bytes * 8, LEAST_UNCOMPRESSED_BYTES)
        stamped = self.log_append_time
        object.__setattr__(self, "largest", min(self.max_message_bytes, self.segment_bytes))
        object.__setattr__(
            self, "max_uncompressed_bytes", min(uncompressed, MAX_UNCOMPRESSED_BYTES)
        )
        object.__setattr__(self, "verbatim", self.codec is None and not stamped)
        object.__setattr__(self, "walk_up_to", walked)
        object.__setattr__(
            self, "before_ms", _UNLIMITED_MS if stamped else self.timestamp_before_max_ms
        )
        object.__setattr__(
            self, "after_ms", _UNLIMITED_MS if stamped else self.timestamp_after_max_ms
        )
