"""Whether the records of a compressed batch fit into the memory that its readers give them.

Readers stop to decompress at MAX_UNCOMPRESSED_BYTES, so a broker must not accept a batch that needs
more. `surely_fits` decides nearly every batch without decompressing it: by the greatest ratio that its
codec can reach, or else by the headers of its frames and blocks, of which it reads a bounded number. It
runs on the loop. `require_fits` decides the rest on a thread: it decompresses piece by piece and keeps
nothing.

A size that a frame states is believed where decoders compare it with what they decode.
"""

import mmap
import struct
import zlib
from collections.abc import Callable
from typing import Final

from headwater.errors import KafkaError
from headwater.records.batch import Buffer
from headwater.records.compression import Codec, snappy_blocks, too_large, undecodable

PIECE: Final = 1 << 20
MOST_BLOCKS: Final = 2048
"""The most headers of blocks that are read on the loop: about a millisecond."""

_RATIOS: Final = {Codec.GZIP: 1032, Codec.SNAPPY: 22, Codec.LZ4: 255, Codec.ZSTD: 1 << 15}
"""The greatest ratio of output to input: in zstd, a block of four bytes gives 128 KiB."""
_UNKNOWN = 1 << 62
_GZIP_WINDOW = 31
_GZIP_SIZES = 1 << 32
_LZ4_MAGIC = 0x184D2204
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK = 128 << 10
_ZSTD_RLE = 1
_u32 = struct.Struct("<I").unpack_from


def surely_fits(codec: int, area: Buffer, limit: int) -> bool:
    """Return whether at most `limit` bytes come out of the records area of a batch.

    False if that is not certain: the data may be larger, damaged, or of unusual frames.
    """
    ratio = _RATIOS.get(codec)  # type: ignore[call-overload]
    if ratio is None or len(area) * ratio <= limit:
        return True
    try:
        return _BOUNDS[codec](area, limit) <= limit
    except (struct.error, IndexError, KafkaError):
        return False


def require_fits(codec: int, area: Buffer, limit: int) -> None:
    """Decompress to count; MESSAGE_TOO_LARGE above `limit`, INVALID_RECORD if it cannot be decoded.

    Takes as long as decompressing up to `limit`, so it is for threads.
    """
    _COUNTERS[codec](area, limit)


# -- upper bounds, by headers


def _gzip_bound(area: Buffer, _limit: int) -> int:
    """Return the size in the trailer, which is modulo 2³²."""
    if len(area) * _RATIOS[Codec.GZIP] >= _GZIP_SIZES:
        return _UNKNOWN
    return int(_u32(area, len(area) - 4)[0])


def _snappy_bound(area: Buffer, _limit: int) -> int:
    total = 0
    for rank, block in enumerate(snappy_blocks(area)):
        if rank == MOST_BLOCKS:
            return _UNKNOWN
        for place, byte in enumerate(block[:5]):
            total += (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
    return total


def _lz4_bound(area: Buffer, limit: int) -> int:
    """Return the stated size, or else the number of blocks times their greatest size."""
    flags, kind = area[4], area[5]
    if _u32(area, 0)[0] != _LZ4_MAGIC:
        return _UNKNOWN
    if flags & 0x08:
        return int.from_bytes(area[6:14], "little")
    block = 1 << 8 + 2 * (kind >> 4 & 7)
    checksum = 4 if flags & 0x10 else 0
    at = 7 + (4 if flags & 0x01 else 0)
    for rank in range(min(limit // block, MOST_BLOCKS) + 1):
        size = _u32(area, at)[0]
        if not size:
            return rank * block
        at += 4 + (size & 0x7FFFFFFF) + checksum
    return _UNKNOWN


def _zstd_bound(area: Buffer, limit: int) -> int:
    """Return the sum over the frames: what one states, or else the greatest size of its blocks."""
    at = total = blocks = 0
    while at < len(area):
        flags = area[at + 4]
        if _u32(area, at)[0] != _ZSTD_MAGIC:
            return _UNKNOWN
        single = bool(flags & 0x20)
        at += 5 + (not single) + (0, 1, 2, 4)[flags & 3]
        width = (int(single), 2, 4, 8)[flags >> 6]
        if width:
            total += int.from_bytes(area[at : at + width], "little") + (256 if width == 2 else 0)
        at += width
        last = 0
        while not last:
            head = area[at] | area[at + 1] << 8 | area[at + 2] << 16
            last, kind, size = head & 1, head >> 1 & 3, head >> 3
            at += 3 + (1 if kind == _ZSTD_RLE else size)
            blocks += 1
            if not width:
                total += _ZSTD_BLOCK
            if total > limit or blocks > MOST_BLOCKS:
                return _UNKNOWN
        at += 4 if flags & 0x04 else 0
    return total if at == len(area) else _UNKNOWN


_BOUNDS: dict[int, Callable[[Buffer, int], int]] = {
    Codec.GZIP: _gzip_bound,
    Codec.SNAPPY: _snappy_bound,
    Codec.LZ4: _lz4_bound,
    Codec.ZSTD: _zstd_bound,
}


# -- exact sizes, by decompressing


def _count_gzip(area: Buffer, limit: int) -> None:
    stretch = zlib.decompressobj(wbits=_GZIP_WINDOW)
    size, rest = 0, area
    try:
        while not stretch.eof:
            piece = len(stretch.decompress(rest, PIECE))
            size, rest = size + piece, stretch.unconsumed_tail
            if size > limit:
                raise too_large(limit)
            if not piece and not rest and not stretch.eof:
                raise undecodable("gzip", "it is cut")
    except zlib.error as broken:
        raise undecodable("gzip", broken) from None
    if stretch.unused_data:
        raise undecodable("gzip", "it is not exactly one stream")


def _count_snappy(area: Buffer, limit: int) -> None:
    from cramjam import DecompressionError, snappy

    try:
        size = sum(snappy.decompress_raw_len(block) for block in snappy_blocks(area))
    except DecompressionError as broken:
        raise undecodable("snappy", broken) from None
    if size > limit:
        raise too_large(limit)


def _count_lz4(area: Buffer, limit: int) -> None:
    from lz4.frame import LZ4FrameDecompressor  # type: ignore[import-untyped]

    stretch = LZ4FrameDecompressor()
    rest, size = area, 0
    try:
        while not stretch.eof:
            piece = len(stretch.decompress(rest, max_length=PIECE))
            rest, size = b"", size + piece
            if size > limit:
                raise too_large(limit)
            if stretch.needs_input and not stretch.eof:
                raise undecodable("lz4", "it is cut")
    except RuntimeError as broken:
        raise undecodable("lz4", broken) from None
    if stretch.unused_data:
        raise undecodable("lz4", "it is not exactly one frame")


def _count_zstd(area: Buffer, limit: int) -> None:
    """Decode into pages that are touched only as far as there is output."""
    from cramjam import DecompressionError, zstd

    with mmap.mmap(-1, limit) as out:
        try:
            zstd.decompress_into(area, out)
        except DecompressionError as broken:
            if "whole buffer" in str(broken):
                raise too_large(limit) from None
            raise undecodable("zstd", broken) from None


_COUNTERS: dict[int, Callable[[Buffer, int], None]] = {
    Codec.GZIP: _count_gzip,
    Codec.SNAPPY: _count_snappy,
    Codec.LZ4: _count_lz4,
    Codec.ZSTD: _count_zstd,
}
