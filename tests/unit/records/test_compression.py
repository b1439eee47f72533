import gzip
import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest

from headwater.errors import E, KafkaError
from headwater.records.compression import MAX_RATIO, Codec, compress, decompress

MIB = 1 << 20
COMPRESSING = [codec for codec in Codec if codec]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))])
@pytest.mark.parametrize("data", [b"", b"a", b"hello" * 20_000, bytes(range(256)) * 300])
def test_what_is_compressed_comes_back(codec, kind, data):
    assert decompress(codec, kind(compress(codec, kind(data))), MIB) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, 1),
        (Codec.GZIP, 9),
        (Codec.LZ4, 9),
        (Codec.LZ4, 17),
        (Codec.ZSTD, 22),
        (Codec.ZSTD, -5),
    ],
)
def test_levels_of_the_topic_are_taken(codec, level):
    data = b"some compressible text, " * 500
    assert decompress(codec, compress(codec, data, level), MIB) == data


def test_gzip_is_read_by_the_standard_library():
    assert gzip.decompress(compress(Codec.GZIP, b"text" * 100)) == b"text" * 100


def test_snappy_is_written_in_xerial_blocks_of_32_kib():
    data = bytes(range(256)) * 300
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    sizes, pos = [], 16
    while pos < len(packed):
        (length,) = struct.unpack_from(">i", packed, pos)
        sizes.append(len(cramjam.snappy.decompress_raw(packed[pos + 4 : pos + 4 + length])))
        pos += 4 + length
    assert sizes == [32768, 32768, len(data) - 65536]


def test_the_bare_snappy_block_of_librdkafka_is_read():
    packed = bytes(cramjam.snappy.compress_raw(b"librdkafka" * 9))
    assert decompress(Codec.SNAPPY, packed, MIB) == b"librdkafka" * 9


def test_lz4_frames_bear_the_flags_of_java_and_librdkafka():
    assert compress(Codec.LZ4, b"x" * 100)[:6].hex() == "04224d186040"


def test_lz4_frames_with_content_size_as_kafka_python_writes_them_are_read():
    packed = lz4.frame.compress(b"text" * 100, store_size=True)
    assert packed[4] & 0x08
    assert decompress(Codec.LZ4, packed, MIB) == b"text" * 100


@pytest.mark.parametrize("size", [1, 64 << 10, (64 << 10) + 1, MIB, 20 * MIB])
def test_lz4_frames_are_read_however_far_they_expand(size):
    packed = compress(Codec.LZ4, bytes(size))
    assert decompress(Codec.LZ4, packed, size, size) == bytes(size)
    with pytest.raises(KafkaError, match=f"more than {size - 1} bytes"):
        decompress(Codec.LZ4, packed, size - 1, size)


def test_zstd_frames_that_do_not_tell_their_size_are_read_however_far_they_expand():
    stream = cramjam.zstd.Compressor()
    stream.compress(b"ab" * 400_000)
    packed = bytes(stream.finish())
    assert decompress(Codec.ZSTD, packed, MIB) == b"ab" * 400_000


@pytest.mark.parametrize("codec", set(Codec) - {Codec.NONE})
def test_output_may_fill_the_limit_but_not_pass_it(codec):
    packed = compress(codec, b"z" * 50_000)
    assert len(decompress(codec, packed, 50_000)) == 50_000
    with pytest.raises(KafkaError) as refused:
        decompress(codec, packed, 49_999)
    assert refused.value.code is E.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_bomb_is_refused_by_its_ratio_before_the_limit(codec):
    bomb = compress(codec, bytes(20 * MIB))
    allowed = max(MIB, MAX_RATIO * len(bomb))
    with pytest.raises(KafkaError, match=str(min(allowed, 16 * MIB))) as refused:
        decompress(codec, bomb, 16 * MIB)
    assert refused.value.code is E.MESSAGE_TOO_LARGE


def test_a_highly_compressible_megabyte_is_no_bomb():
    packed = compress(Codec.ZSTD, bytes(MIB))
    assert len(packed) * MAX_RATIO < MIB
    assert len(decompress(Codec.ZSTD, packed, 8 * MIB)) == MIB


def test_what_the_topic_would_take_uncompressed_is_no_bomb_either():
    packed = compress(Codec.ZSTD, bytes(9 * MIB))
    assert len(decompress(Codec.ZSTD, packed, 64 * MIB, ratio_free_bytes=10 * MIB)) == 9 * MIB


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("length", [0, 1, 3, 8, 20])
def test_cut_input_is_refused(codec, length):
    packed = compress(codec, b"some text to be cut" * 10)
    with pytest.raises(KafkaError) as refused:
        decompress(codec, packed[:length], MIB)
    assert refused.value.code is E.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_after_the_stream_are_refused(codec):
    with pytest.raises(KafkaError) as refused:
        decompress(codec, compress(codec, b"text") + b"more", MIB)
    assert refused.value.code is E.INVALID_RECORD


@pytest.mark.parametrize("declared", [MIB + 1, 2**31 - 1, 2**32 - 1])
def test_a_snappy_block_that_claims_a_huge_size_is_refused_before_anything_is_allocated(declared):
    claim = bytearray()
    while declared > 0x7F:
        claim.append(declared & 0x7F | 0x80)
        declared >>= 7
    claim.append(declared)
    tracemalloc.start()
    with pytest.raises(KafkaError) as refused:
        decompress(Codec.SNAPPY, bytes(claim) + b"\x00a", MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.code is E.MESSAGE_TOO_LARGE
    assert peak < MIB


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 6, 2**31 - 1])
def test_xerial_blocks_of_senseless_length_are_refused(length):
    framed = compress(Codec.SNAPPY, b"")[:16] + struct.pack(">i", length) + b"\x01\x00a\x00"
    with pytest.raises(KafkaError) as refused:
        decompress(Codec.SNAPPY, framed, MIB)
    assert refused.value.code is E.INVALID_RECORD


def test_a_stream_of_tiny_xerial_blocks_is_refused():
    block = bytes(cramjam.snappy.compress_raw(b"a"))
    framed = compress(Codec.SNAPPY, b"") + (struct.pack(">i", len(block)) + block) * 10_000
    with pytest.raises(KafkaError) as refused:
        decompress(Codec.SNAPPY, framed, MIB)
    assert refused.value.code is E.INVALID_RECORD


def test_several_gzip_members_are_refused():
    with pytest.raises(KafkaError, match="exactly one"):
        decompress(Codec.GZIP, gzip.compress(b"a") * 2, MIB)


def test_a_codec_that_does_not_exist_is_refused():
    with pytest.raises(KafkaError) as refused:
        decompress(5, b"anything", MIB)
    assert refused.value.code is E.UNSUPPORTED_COMPRESSION_TYPE
