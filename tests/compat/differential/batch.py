"""Record batches for scenes: good ones, and ones that are wrong in exactly one way."""

from collections.abc import Sequence

from headwater.records.batch import HEADER, HEADER_SIZE, BatchHeader
from headwater.records.builder import build_batch
from headwater.records.compression import Codec, compress, decompress
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record
from headwater.records.varint import read_varint, write_varint

TIME = 1_750_000_000_000
"""A time in the past, for records."""


def record(value: bytes | None = b"v", key: bytes | None = b"k", time: int = TIME) -> Record:
    """One record."""
    return Record(0, time, key, value, ())


def batch(
    *records: Record,
    count: int = 1,
    codec: int = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """A good batch, of `count` plain records unless they are given."""
    producer_id, epoch, sequence = producer
    made = build_batch(
        list(records) or [record(b"value %d" % number) for number in range(count)],
        now=TIME,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return bytes(made)


def changed(original: bytes, **fields: int) -> bytes:
    """The batch with other numbers in its header, and length and checksum to match."""
    header = BatchHeader(*HEADER.unpack_from(original))._replace(**fields)
    return bytes(complete_batch(tuple(header), original[HEADER_SIZE:]))


def with_body(original: bytes, body: bytes) -> bytes:
    """The batch with other bytes where its records were."""
    return bytes(complete_batch(HEADER.unpack_from(original), body))


def with_deltas(original: bytes, deltas: Sequence[int]) -> bytes:
    """The batch with other offset deltas in its records; the header stays as it is."""
    header = BatchHeader(*HEADER.unpack_from(original))
    area = decompress(header.codec, original[HEADER_SIZE:], 1 << 24)
    rewritten = bytearray()
    pos = 0
    for delta in deltas:
        size, start = read_varint(area, pos)
        pos = start + size
        _, place = read_varint(area, start + 1)
        _, rest = read_varint(area, place)
        record = area[start:place] + write_varint(delta) + area[rest:pos]
        rewritten += write_varint(len(record)) + record
    assert pos == len(area), "one delta is given for each record"
    return with_body(original, compress(header.codec, rewritten))


def spoiled(original: bytes, at: int, value: int) -> bytes:
    """The batch with one byte changed and nothing to match."""
    return original[:at] + bytes([value]) + original[at + 1 :]
