"""Segment files made by hand, and damage to them."""

from pathlib import Path

from headwater.records.builder import build_batch
from headwater.records.record import Record

NOW = 1_700_000_000_000


def batch(offset: int, count: int = 3, *, now: int = NOW, value: bytes = b"v", **more) -> bytes:
    records = [
        Record(offset=place, timestamp=now + place, key=b"k%d" % (place % 2), value=value)
        for place in range(count)
    ]
    return bytes(build_batch(records, now=now, base_offset=offset, leader_epoch=0, **more))


def segment(folder: Path, base: int, batches: list[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)
