"""The four codecs of record batches, with bounded output.

A codec's library is imported when a batch first needs it: a broker that only stores what it gets
never loads one. Undecodable input is INVALID_RECORD (the checksum matched, so it is what the
producer sent and sending it again cannot help), output past the bound MESSAGE_TOO_LARGE.

Compressed data is written as the Java clients write it: gzip; snappy in xerial's framing; LZ4 frames
of independent 64 KiB blocks without checksums or size; one zstd frame. The single bare snappy block
that librdkafka sends is read as well.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Final

from headwater.errors import E, KafkaError
from headwater.records.batch import Buffer

MAX_RATIO: Final = 1000
RATIO_FREE_BYTES: Final = 1 << 20
"""Up to this much output any ratio is allowed: zstd packs a megabyte of zeros into 50 bytes."""

_GZIP_WINDOW = 31
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK = 32 << 10
_FIRST_STEP = 64 << 10
"""The first buffer for output, if the input does not state its uncompressed size."""
_I32 = struct.Struct(">i")


class Codec(IntEnum):
    """Numbers of the codecs in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Return the records area of a batch with this codec; levels as in compression.*.level."""
    return bytes(data) if codec == Codec.NONE else _COMPRESS[codec](data, level)


def decompress(
    codec: int, data: Buffer, limit: int, ratio_free_bytes: int = RATIO_FREE_BYTES
) -> bytes:
    """Return what `compress` was given; at most `limit` bytes, except of what is not compressed.

    Beyond `ratio_free_bytes` the output may be at most a thousand times the input: a decompression
    bomb is refused as soon as it shows, not at the limit.
    """
    bound = min(limit, max(ratio_free_bytes, MAX_RATIO * len(data)))
    if codec == Codec.NONE:
        return bytes(data)
    decode = _DECOMPRESS.get(codec)
    if decode is None:
        raise KafkaError(E.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {codec}")
    return decode(data, bound)


def _gzip(data: Buffer, level: int | None) -> bytes:
    squeeze = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_WINDOW)
    return squeeze.compress(data) + squeeze.flush()


def _gunzip(data: Buffer, bound: int) -> bytes:
    stretch = zlib.decompressobj(wbits=_GZIP_WINDOW)
    try:
        out = stretch.decompress(data, bound + 1)
    except zlib.error as broken:
        raise undecodable("gzip", broken) from None
    if len(out) > bound:
        raise too_large(bound)
    # Several members in a row are legal gzip, but no producer writes them and decoding them is slow.
    if not stretch.eof or stretch.unused_data:
        raise undecodable("gzip", "it is not exactly one whole stream")
    return out


def _snap(data: Buffer, _level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_I32.pack(len(block)), block)
    return b"".join(parts)


def _unsnap(data: Buffer, bound: int) -> bytes:
    from cramjam import DecompressionError, snappy

    parts: list[bytes] = []
    left = bound
    try:
        for block in snappy_blocks(data):
            left -= snappy.decompress_raw_len(block)
            if left < 0:
                raise too_large(bound)
            parts.append(bytes(snappy.decompress_raw(block)))
    except DecompressionError as broken:
        raise undecodable("snappy", broken) from None
    return b"".join(parts)


def snappy_blocks(data: Buffer) -> Iterable[memoryview]:
    """Return the compressed blocks: those in xerial's framing, or the single bare one."""
    view = memoryview(data)
    return _xerial_blocks(view) if view[:8] == _XERIAL_MAGIC else (view,)


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    end = len(view)
    pos = len(_XERIAL_HEADER)
    # Encoders cut every 32 KiB, which snappy packs into 1.5 KiB at best; a stream of tiny blocks
    # is an attack on CPU time.
    blocks_left = 64 + end // 64
    while pos != end:
        start = pos + _I32.size
        stop = start + _I32.unpack_from(view, pos)[0] if start <= end else pos
        blocks_left -= 1
        if not start < stop <= end or not blocks_left:
            raise undecodable("snappy", f"a block at byte {pos} is cut or has an impossible size")
        yield view[start:stop]
        pos = stop


def _lz4(data: Buffer, level: int | None) -> bytes:
    from lz4 import frame  # type: ignore[import-untyped]

    # Kafka's default level 9 means the fast compressor; every other one a high-compression level.
    packed: bytes = frame.compress(
        data,
        compression_level=0 if level in (None, 9) else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


def _unlz4(data: Buffer, bound: int) -> bytes:
    """Decode in steps: the library allocates memory for the largest possible output."""
    from lz4.frame import LZ4FrameDecompressor  # type: ignore[import-untyped]

    stretch = LZ4FrameDecompressor()
    step = min(bound + 1, max(_FIRST_STEP, 4 * len(data)))
    try:
        out: bytes = stretch.decompress(data, max_length=step)
        while not (stretch.eof or stretch.needs_input) and len(out) <= bound:
            step = min(8 * step, bound + 1 - len(out))
            out += stretch.decompress(b"", max_length=step)
    except RuntimeError as broken:
        raise undecodable("lz4", broken) from None
    if len(out) > bound:
        raise too_large(bound)
    if not stretch.eof or stretch.unused_data:
        raise undecodable("lz4", "it is not exactly one whole frame")
    return out


def _zstd(data: Buffer, level: int | None) -> bytes:
    from cramjam import zstd

    return bytes(zstd.compress(data, level=3 if level is None else level))


def _unzstd(data: Buffer, bound: int) -> bytes:
    """Decode into our own buffer: the one of the library grows without a bound.

    Java's frames do not state the size of their content, so the buffer grows until it fits.
    """
    from cramjam import DecompressionError, zstd

    size = min(bound, max(_FIRST_STEP, 8 * len(data)))
    while True:
        out = bytearray(size)
        try:
            length = zstd.decompress_into(data, out)
        except DecompressionError as broken:
            if "whole buffer" not in str(broken):
                raise undecodable("zstd", broken) from None
            if size == bound:
                raise too_large(bound) from None
            size = min(bound, 8 * size)
        else:
            return bytes(memoryview(out)[:length])


def undecodable(codec: str, why: object) -> KafkaError:
    """Return the error for input that is not what its codec writes."""
    return KafkaError(E.INVALID_RECORD, f"the records are no {codec}: {why}")


def too_large(bound: int) -> KafkaError:
    """Return the error for input whose output exceeds `bound`."""
    return KafkaError(
        E.MESSAGE_TOO_LARGE, f"the records need more than {bound} bytes when decompressed"
    )


_COMPRESS: dict[int, Callable[[Buffer, int | None], bytes]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snap,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESS: dict[int, Callable[[Buffer, int], bytes]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnap,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
