"""Splits the records of a coordinator into batches that their topic allows."""

from collections.abc import Sequence

from headwater.errors import E, KafkaError
from headwater.records.batch import HEADER_SIZE

RECORDS_PER_BATCH = 500
RECORD_EXTRA_BYTES = 24
"""The most that a record in a batch takes besides its key and value."""


class RecordTooLarge(KafkaError):
    """A record is above the limit of its topic."""


def split(
    records: Sequence[tuple[bytes, bytes | None]], largest: int, *, limited: bool
) -> list[tuple[int, int]]:
    """Return where batches of at most `largest` bytes begin and end.

    A record that needs more is alone; if `limited`, RecordTooLarge.
    """
    parts: list[tuple[int, int]] = []
    start = 0
    taken = HEADER_SIZE
    for at, (key, value) in enumerate(records):
        size = RECORD_EXTRA_BYTES + len(key) + (0 if value is None else len(value))
        if limited and HEADER_SIZE + size > largest:
            raise RecordTooLarge(
                E.MESSAGE_TOO_LARGE,
                f"a record needs a batch of {HEADER_SIZE + size} bytes, max.message.bytes and "
                f"segment.bytes of the topic allow {largest}",
            )
        if at > start and (taken + size > largest or at - start == RECORDS_PER_BATCH):
            parts.append((start, at))
            start, taken = at, HEADER_SIZE
        taken += size
    parts.append((start, len(records)))
    return parts
