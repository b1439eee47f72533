"""Which compressed batches readers have the memory for, found out from headers or by counting."""

import gzip
import random
import struct

import pytest
from cramjam import snappy, zstd

from headwater.errors import E, KafkaError
from headwater.records.compression import Codec, compress, decompress
from headwater.records.decompressed_size import MOST_BLOCKS, require_fits, surely_fits

MIB = 1 << 20
CODECS = [codec for codec in Codec if codec]


def words(size: int) -> bytes:
    """Text that compresses as text does."""
    rng = random.Random(size)
    vocabulary = [bytes(rng.choices(b"abcdefgh", k=rng.randint(2, 9))) for _ in range(999)]
    return b" ".join(rng.choices(vocabulary, k=size // 5))[:size]


def as_java(codec: int, data: bytes) -> bytes:
    """Compressed as the Java client does: its frames of zstd do not state their size."""
    if codec != Codec.ZSTD:
        return compress(codec, data)
    stream = zstd.Compressor()
    stream.compress(data)
    return bytes(stream.finish())


class Counting(bytes):
    """Compressed data that counts the looks at it."""

    looks = 0

    def __getitem__(self, place):
        self.looks += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("pack", [compress, as_java])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [bytes(3 * MIB), words(3 * MIB), random.Random(1).randbytes(MIB)])
def test_both_ways_agree_with_a_reader(codec, data, pack):
    packed = pack(codec, data)
    for limit in (len(data) - 1, len(data), len(data) + 1, 4 * len(data)):
        fits = limit >= len(data)
        assert fits or not surely_fits(codec, packed, limit)
        if fits:
            require_fits(codec, packed, limit)
            assert len(decompress(codec, packed, limit, limit)) == len(data)
        else:
            with pytest.raises(KafkaError) as refused:
                require_fits(codec, packed, limit)
            assert refused.value.code is E.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_usual_batches_are_decided_by_their_headers(codec):
    """What a codec reserves for its last block is all that the bound may exceed the size by."""
    for size in (1000, 40_000, 3 * MIB, 10 * MIB):
        packed = as_java(codec, words(MIB) * (size // MIB) + words(size % MIB))
        assert surely_fits(codec, packed, 2 * size + (128 << 10))


def test_nothing_is_read_of_what_is_small_enough():
    for codec, ratio in ((1, 1032), (2, 22), (3, 255), (4, 1 << 15)):
        area = Counting(1000)
        assert surely_fits(codec, area, 1000 * ratio)
        assert area.looks == 0


@pytest.mark.parametrize(
    ("codec", "area"),
    [
        (Codec.ZSTD, struct.pack("<IBB", 0xFD2FB528, 0, 0x58) + bytes(3) * 100_000),
        (Codec.ZSTD, struct.pack("<IBBI", 0xFD2FB528, 0xA0, 5, 0) + bytes(3) * 100_000),
        (Codec.LZ4, struct.pack("<IBBB", 0x184D2204, 0x60, 0x40, 0) + b"\1\0\0\x80a" * 100_000),
    ],
    ids=["zstd", "zstd with a size", "lz4"],
)
def test_a_stream_of_tiny_blocks_is_not_walked_to_its_end(codec, area):
    """A header costs a fraction of a microsecond, on the loop."""
    counted = Counting(area)
    assert not surely_fits(codec, counted, 4 * MIB)
    assert counted.looks < 4 * MOST_BLOCKS + 20


def test_tiny_blocks_of_snappy_are_not_walked_to_their_end():
    block = bytes(snappy.compress_raw(bytes(5000)))
    framed = compress(Codec.SNAPPY, b"")[:16] + (struct.pack(">i", len(block)) + block) * (
        MOST_BLOCKS + 1
    )
    assert not surely_fits(Codec.SNAPPY, framed, 5000 * (MOST_BLOCKS + 1))
    require_fits(Codec.SNAPPY, framed, 5000 * (MOST_BLOCKS + 1))


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_damaged_is_never_surely_small_and_not_counted(codec):
    packed = compress(codec, words(MIB))
    for broken in (packed[: len(packed) // 2], b"\xff" * len(packed)):
        if codec != Codec.GZIP:  # its last bytes are its size, and decoders compare it
            assert not surely_fits(codec, broken, 2 * MIB)
        with pytest.raises(KafkaError) as refused:
            require_fits(codec, broken, 2 * MIB)
        assert refused.value.code is E.INVALID_RECORD


def test_a_size_that_gzip_states_modulo_4_gib_is_believed_only_of_small_data():
    area = bytes(5 * MIB) + struct.pack("<I", 10)
    assert not surely_fits(Codec.GZIP, area, MIB)
    assert surely_fits(Codec.GZIP, area[-3 * MIB :], MIB)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_more_than_one_stream_is_refused_as_readers_do(codec):
    with pytest.raises(KafkaError, match="exactly one"):
        require_fits(codec, compress(codec, b"a") * 2, MIB)


def test_several_frames_of_zstd_are_summed_up():
    packed = as_java(Codec.ZSTD, words(MIB)) + compress(Codec.ZSTD, words(MIB))
    assert surely_fits(Codec.ZSTD, packed, 3 * MIB)
    packed += compress(Codec.ZSTD, words(MIB))
    assert not surely_fits(Codec.ZSTD, packed, 3 * MIB - 1)
    with pytest.raises(KafkaError, match="more than"):
        require_fits(Codec.ZSTD, packed, 3 * MIB - 1)


def test_stated_sizes_count():
    from lz4 import frame

    packed = frame.compress(words(100_000), store_size=True, block_size=frame.BLOCKSIZE_MAX4MB)
    assert surely_fits(Codec.LZ4, packed, 100_000)
    assert not surely_fits(Codec.LZ4, packed, 99_999)
    packed = gzip.compress(words(100_000))
    assert surely_fits(Codec.GZIP, packed, 100_000)
    assert not surely_fits(Codec.GZIP, packed, 99_999)
