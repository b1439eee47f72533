"""The key map of compaction in plain Python: the offset of the last record of each key.

The map never holds more than `capacity` keys. A long key is represented by a digest of 16 bytes with a
secret: nobody can choose two keys with the same digest, and by chance they do not occur.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from headwater.errors import E, KafkaError
from headwater.records.record import wrap
from headwater.records.varint import INT64_BYTES, read_varint
from headwater.seams.files import Buffer

BYTES_PER_KEY: Final = 200
"""What a key takes in a dict, with its objects."""
_DIGEST: Final = 16

_LEAST_TIMESTAMP: Final = -(1 << 63)


class KeptRecords(NamedTuple):
    """What compaction keeps of the records of a batch."""

    area: bytes | None
    """The records, uncompressed; None if all are kept."""
    kept: int
    tombstones: int
    """How many of the kept records have no value."""
    max_timestamp: int


class KeyMap:
    """The last offset of each key, for one pass over a log."""

    __slots__ = ("_offsets", "_secret", "capacity")

    def __init__(self, slots: int, load_factor: float, secret: bytes) -> None:
        self.capacity = max(1, int(slots * load_factor))
        self._secret = secret
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def add_records(self, area: Buffer, count: int, base_offset: int, start: int) -> int:
        """Note the keys of the records at and above `start`.

        Return -1, or the offset of the first record for which the map has no room.
        """
        offsets, capacity = self._offsets, self.capacity
        pos = 0
        try:
            for _ in range(count):
                size, pos = read_varint(area, pos)
                stop = pos + size
                _, at = read_varint(area, pos + 1, INT64_BYTES)
                place, at = read_varint(area, at)
                key_size, at = read_varint(area, at)
                if key_size >= 0 and base_offset + place >= start:
                    key = self._known_as(area, at, key_size, stop)
                    if len(offsets) >= capacity and key not in offsets:
                        return base_offset + place
                    offsets[key] = base_offset + place
                pos = _after(pos, stop, len(area))
        except IndexError:
            raise _malformed() from None
        return -1

    def keep_records(
        self,
        area: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        last_mapped: int,
        keep_tombstones: bool,
    ) -> KeptRecords:
        """Return the records that remain: the last one of each key, and all above `last_mapped`."""
        parts: list[Buffer] = []
        kept = tombstones = pos = start = 0
        newest = _LEAST_TIMESTAMP
        try:
            for _ in range(count):
                begin = pos
                size, pos = read_varint(area, pos)
                stop = pos + size
                delta, at = read_varint(area, pos + 1, INT64_BYTES)
                place, at = read_varint(area, at)
                key_size, at = read_varint(area, at)
                value_size, _ = read_varint(area, at + max(key_size, 0))
                keeps = base_offset + place > last_mapped or (
                    key_size >= 0
                    and base_offset + place
                    >= self._offsets.get(self._known_as(area, at, key_size, stop), -1)
                    and (value_size >= 0 or keep_tombstones)
                )
                pos = _after(pos, stop, len(area))
                if keeps:
                    kept += 1
                    tombstones += value_size < 0
                    newest = max(newest, wrap(base_timestamp + delta))
                else:
                    parts.append(area[start:begin])
                    start = pos
        except IndexError:
            raise _malformed() from None
        if kept == count:
            return KeptRecords(None, kept, tombstones, newest)
        parts.append(area[start:pos])
        return KeptRecords(b"".join(parts), kept, tombstones, newest)

    def _known_as(self, area: Buffer, start: int, size: int, stop: int) -> bytes:
        if start + size > stop:
            raise _malformed()
        key = bytes(area[start : start + size])
        if size < _DIGEST:
            return key
        return blake2b(key, digest_size=_DIGEST, key=self._secret).digest()


def _after(pos: int, stop: int, end: int) -> int:
    """Return where the next record begins."""
    if not pos < stop <= end:
        raise _malformed()
    return stop


def _malformed() -> KafkaError:
    return KafkaError(E.INVALID_RECORD, "a record does not end where its length says")
