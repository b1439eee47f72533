"""What must hold for a batch that is already in a log, or comes from another replica's.

The CRC covers a batch from its attributes on. Base offset and leader epoch stand before it, so one
flipped bit in a hundred of a small batch would pass. They are checked by their surroundings: a
batch begins where the one before it ended, and its epoch is one that the log can have there.
"""

from headwater.errors import E, KafkaError
from headwater.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    Buffer,
    RawHeader,
)
from headwater.records.checksum import crc32c

_unpack = HEADER.unpack_from


def check_stored(
    buf: Buffer,
    pos: int,
    next_offset: int,
    epoch_floor: int,
    epoch_ceiling: int,
    *,
    gaps: bool = False,
) -> RawHeader:
    """The header of the whole and undamaged batch at `pos`, or CORRUPT_MESSAGE that says why not.

    `next_offset` is where the log ends before it; `gaps` allows it to begin later, as it may after
    compaction. The floor is the epoch of the batch before it. The ceiling is the newest epoch
    known; where the epoch cache knows the one of `next_offset`, it is both floor and ceiling, and
    then no single flipped bit goes unseen.
    """
    end = len(buf)
    if pos + HEADER_SIZE > end:
        raise _damaged(f"{end - pos} bytes are less than a header")
    header: RawHeader = _unpack(buf, pos)
    base_offset, length, epoch, magic, crc, *_ = header
    stop = pos + length + OVERHEAD
    if not pos + HEADER_SIZE <= stop <= end:
        raise _damaged(f"a batch of {stop - pos} bytes does not fit into {end - pos}")
    if magic != MAGIC:
        raise _damaged(f"message format {magic} is not {MAGIC}")
    if base_offset != next_offset and not (gaps and base_offset > next_offset):
        raise _damaged(f"base offset {base_offset} does not follow {next_offset}")
    if not epoch_floor <= epoch <= epoch_ceiling:
        raise _damaged(f"leader epoch {epoch} is outside of {epoch_floor} to {epoch_ceiling}")
    if crc32c(memoryview(buf)[pos + CRC_START : stop]) != crc:
        raise _damaged(f"bytes do not match the checksum {crc:#010x}")
    return header


def _damaged(why: str) -> KafkaError:
    return KafkaError(E.CORRUPT_MESSAGE, f"damaged batch: {why}")
