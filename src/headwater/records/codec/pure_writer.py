"""Builds the batches of a producer record by record, in plain Python.

The result equals that of `builder.build_batch`, byte for byte. It is designed for speed: a record
costs one list append when it is sent, which callers may do themselves (`room_for`), and is measured
and encoded later, in bulk, by functions that loop in C. No object is made per record.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add
from typing import Final

from headwater.errors import E, KafkaError
from headwater.records.batch import HEADER_SIZE, MAGIC, TRANSACTIONAL
from headwater.records.compression import compress
from headwater.records.header_writing import write_header
from headwater.records.record import Header, encode_headers, wrap
from headwater.records.rules import INT64_MAX, INT64_MIN
from headwater.records.varint import write_varint

_LARGEST: Final = (1 << 31) - 1
_ROOM: Final = bytes(HEADER_SIZE)
"""Room for the header."""
_CHUNK: Final = 1024
"""The number of values that `extend` handles at once."""
_KEPT: Final = 1 << 14
"""The encoded forms of lengths below this are cached."""
_EDGES: Final = (64, 1 << 13, 1 << 20, 1 << 27, 1 << 31)
"""From these numbers on, a record's number needs one byte more."""
_AT_ONCE: Final = b"\x00\x00"
"""Attributes and timestamp of a record in the same millisecond as the batch's first."""
_FEW: Final = 16
"""The number of value sizes for which the heads of records are cached."""


class _Varints(dict[int, bytes]):
    """Encoded nonnegative numbers."""

    def __missing__(self, number: int) -> bytes:
        encoded = write_varint(number)
        if number < _KEPT:
            self[number] = encoded
        return encoded


class _AfterNoHeaders(dict[int, bytes]):
    """Encoded lengths of records, after the header count (0) of the previous record."""

    def __missing__(self, number: int) -> bytes:
        encoded = b"\x00" + write_varint(number)
        if number < _KEPT:
            self[number] = encoded
        return encoded


class _WithLength(dict[int, int]):
    """The size of a field with its encoded length, by its length."""

    def __missing__(self, size: int) -> int:
        whole = len(_VARINTS[size]) + size
        if size < _KEPT:
            self[size] = whole
        return whole


class _Lengths(dict[int, bytes]):
    """The bytes before a value in a record without a key, by the value's length."""

    def __missing__(self, size: int) -> bytes:
        encoded = b"\x01" + write_varint(size)
        if size < _KEPT:
            self[size] = encoded
        return encoded


class _Heads(dict[int, bytes]):
    """The first bytes of a record without key and headers, by the length of its value.

    `inner` is the size of its timestamp and its number. The byte before the length is the header
    count (0) of the previous record, which saves one part to join.
    """

    def __init__(self, inner: int) -> None:
        self.inner = inner

    def __missing__(self, size: int) -> bytes:
        encoded = b"\x00" + write_varint(2 + self.inner + len(_LENGTHS[size]) + size)
        if size < _KEPT:
            self[size] = encoded
        return encoded


class _Sizes(dict[int, int]):
    """The size of a whole record whose head is in `heads`, by the length of its value."""

    def __init__(self, heads: _Heads) -> None:
        self.heads = heads

    def __missing__(self, size: int) -> int:
        whole = 1 + self.heads.inner + len(_LENGTHS[size]) + size + len(self.heads[size])
        if size < _KEPT:
            self[size] = whole
        return whole


_VARINTS: Final = _Varints()
_AFTER_NO_HEADERS: Final = _AfterNoHeaders()
_WITH_LENGTH: Final = _WithLength()
_LENGTHS: Final = _Lengths()
_HEADS: Final = [_Heads(inner) for inner in range(16)]
_SIZES: Final = [_Sizes(heads) for heads in _HEADS]


class _Stretch:
    """Consecutive records with equal timestamps and numbers of equal encoded size."""

    __slots__ = ("inner", "plain", "prefix", "start", "timestamp")

    def __init__(self, start: int, timestamp: int, prefix: bytes, inner: int) -> None:
        self.start = start
        self.timestamp = timestamp
        self.prefix = prefix
        """The encoded attributes and timestamp of each of them."""
        self.inner = inner
        self.plain = True
        """Whether none of them has a key, a header or a null value."""


class BatchWriter:
    """A batch under construction, for one thread at a time.

    `size` is the exact uncompressed size of the batch with its header. After `finish` the batch is
    full; `finish` itself may be called again, for the same records under another identity.
    """

    __slots__ = (
        "_edge", "_headers", "_inner", "_keyed", "_keys", "_limit", "_measured", "_size", "_sizes",
        "_stretches", "_timestamp", "values",
    )  # fmt: skip

    def __init__(self, size_limit: int) -> None:
        self.values: list[bytes | None] = []
        """The values of all records. Callers may append as many as `room_for` allows."""
        self._measured = 0
        """The number of values that `_size` includes."""
        self._size = HEADER_SIZE
        self._limit = min(size_limit, _LARGEST)
        self._timestamp: int | None = None
        self._edge = 0
        self._inner = 0
        """The bytes of every record of the stretch besides key and value."""
        self._keyed = False
        """Whether the last record has a key, so that its stretch is not plain."""
        self._sizes: dict[int, int] = _SIZES[0]
        self._keys: list[bytes | None] = []
        """Keys of the first records; the other keys are null."""
        self._headers: dict[int, bytes] = {}
        """Encoded headers by the number of their record."""
        self._stretches: list[_Stretch] = []

    @property
    def count(self) -> int:
        """Records so far."""
        return len(self.values)

    @property
    def size(self) -> int:
        """Bytes so far, with the header."""
        if self._measured != len(self.values):
            self._measure()
        return self._size

    def room_for(self, timestamp: int, widest: int) -> int:
        """Return how many values of up to `widest` bytes the caller may append to `values`.

        They become records of `timestamp` without key and headers. 0 if the next record must go
        through `append`, or if the batch is full.
        """
        if timestamp != self._timestamp:
            return 0
        room = (self._limit - self.size) // self._sizes[widest]
        return max(min(room, self._edge - len(self.values)), 0)

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
    ) -> int:
        """Return the record's number in the batch, or -1 if it does not fit; the first always fits."""
        number = len(self.values)
        if self._measured != number:
            self._measure()
        if (
            timestamp == self._timestamp
            and number != self._edge
            and type(value) is bytes
            and not headers
        ):
            if key is None:
                size = self._size + self._sizes[len(value)]
            elif type(key) is bytes and self._keyed:
                body = self._inner + _WITH_LENGTH[len(key)] + _WITH_LENGTH[len(value)]
                size = self._size + _WITH_LENGTH[body]
            else:
                return self._append(timestamp, key, value, headers)
            if size > self._limit:
                return -1
            if key is not None:
                self._keys.append(key)
            elif self._keyed:
                self._keyed = False
            self.values.append(value)
            self._measured = number + 1
            self._size = size
            return number
        return self._append(timestamp, key, value, headers)

    def _measure(self) -> None:
        """Count the bytes of values that callers appended."""
        late = self.values[self._measured :]
        self._keyed = False
        self._size += sum(map(self._sizes.__getitem__, map(len, late)))  # type: ignore[arg-type]
        self._measured += len(late)

    def extend(self, timestamp: int, values: Sequence[bytes | None], start: int) -> int:
        """Append values without keys from `values[start]` on, and return how many fitted.

        An invalid item ends the call like a full batch; TypeError if it is the first item.
        """
        if start < 0:
            raise ValueError("start is negative")
        before = self.count
        while start < len(values):
            taken = 0
            if timestamp == self._timestamp and self.count != self._edge:
                taken = self._extend(values[start : start + min(_CHUNK, self._edge - self.count)])
            if not taken:
                try:
                    if self.append(timestamp, None, values[start]) < 0:
                        break
                except TypeError:
                    if self.count > before:
                        break
                    raise
            start += taken or 1
        return self.count - before

    def finish(
        self,
        codec: int,
        level: int | None,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool = False,
    ) -> bytearray:
        """Return the whole batch with its checksum."""
        if not self.count:
            raise ValueError("a batch holds at least one record")
        self._limit = 0
        # Uncompressed, the records are copied once, from the caller's objects into the batch.
        batch = bytearray().join([_ROOM, *self._encode()])
        if codec:
            batch = bytearray().join(
                [_ROOM, compress(codec, memoryview(batch)[HEADER_SIZE:], level)]
            )
        timestamps = [stretch.timestamp for stretch in self._stretches]
        write_header(
            batch,
            (
                0,
                0,
                -1,
                MAGIC,
                0,
                codec | (TRANSACTIONAL if transactional else 0),
                self.count - 1,
                timestamps[0],
                max(timestamps),
                producer_id,
                producer_epoch,
                base_sequence,
                self.count,
            ),
        )
        return batch

    def _append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> int:
        """Append a record that the fast path does not handle."""
        number = self.count
        if timestamp == self._timestamp and number != self._edge:
            stretch = self._stretches[-1]
        else:
            stretch = self._next_stretch(timestamp)
        encoded_headers = encode_headers(headers) if headers else b"\x00"
        # The usual kinds are looked up inline: a call for each would double the time.
        body = 1 + stretch.inner + len(encoded_headers)
        body += _WITH_LENGTH[len(key)] if type(key) is bytes else _space(key)
        body += _WITH_LENGTH[len(value)] if type(value) is bytes else _space(value)
        size = self._size + _WITH_LENGTH[body]
        if size > self._limit and (number or size > _LARGEST):
            return self._refuse(size)
        if stretch.start == number:
            self._begin(stretch)
        if key is not None:
            self._keys += [None] * (number - len(self._keys))
            self._keys.append(key)
            stretch.plain = False
        if headers:
            self._headers[number] = encoded_headers
            stretch.plain = False
        if value is None:
            stretch.plain = False
        self._keyed = key is not None
        self.values.append(value)
        self._measured = number + 1
        self._size = size
        return number

    def repair(self) -> None:
        """Undo an append that Ctrl-C interrupted before its record was in `values`."""
        count = len(self.values)
        while self._stretches and self._stretches[-1].start >= count:
            self._stretches.pop()
        del self._keys[count:]
        self._headers = {number: row for number, row in self._headers.items() if number < count}
        self._timestamp = None  # the next record begins a new stretch
        self._keyed = False

    def _refuse(self, size: int) -> int:
        if self.count:
            return -1
        raise KafkaError(E.MESSAGE_TOO_LARGE, f"no batch can hold a record of {size} bytes")

    def _next_stretch(self, timestamp: int) -> _Stretch:
        if not isinstance(timestamp, int):
            raise TypeError(f"a timestamp is an int of milliseconds, not {timestamp!r}")
        if not INT64_MIN <= timestamp <= INT64_MAX:
            raise OverflowError(f"the timestamp {timestamp} needs more than 64 bits")
        first = self._stretches[0].timestamp if self.count else timestamp
        stamp = write_varint(wrap(timestamp - first))
        inner = len(stamp) + len(write_varint(self.count))
        return _Stretch(self.count, timestamp, b"\x00" + stamp, inner)

    def _begin(self, stretch: _Stretch) -> None:
        self._stretches.append(stretch)
        self._timestamp = stretch.timestamp
        self._edge = _EDGES[bisect_right(_EDGES, stretch.start)]
        self._sizes = _SIZES[stretch.inner]
        self._inner = 2 + stretch.inner

    def _extend(self, values: Sequence[bytes | None]) -> int:
        """Append as many values as fit; none if one of them is not plain bytes."""
        if list(map(type, values)).count(bytes) != len(values):
            return 0
        sizes = map(self._sizes.__getitem__, map(len, values))  # type: ignore[arg-type]
        totals = list(accumulate(sizes, initial=self.size))
        taken = bisect_right(totals, self._limit) - 1
        if taken <= 0:
            return 0
        self.values += values[:taken]
        self._keyed = False
        self._measured += taken
        self._size = totals[taken]
        return taken

    def _encode(self) -> list[bytes]:
        parts: list[bytes] = []
        ends = [stretch.start for stretch in self._stretches[1:]]
        for stretch, end in zip(self._stretches, [*ends, self.count], strict=True):
            if stretch.plain:
                parts += self._encode_plain(stretch, end)
            elif keyed := self._encode_keyed(stretch, end):
                parts += keyed
            else:
                self._encode_any(stretch, end, parts)
        return parts

    def _encode_plain(self, stretch: _Stretch, end: int) -> list[bytes]:
        """Encode records that differ only in number and value, column by column."""
        start = stretch.start
        values: list[bytes] = self.values[start:end]  # type: ignore[assignment]
        lengths = list(map(len, values))
        if stretch.prefix == _AT_ONCE and lengths.count(lengths[0]) == len(lengths):
            heads = _heads_alike(lengths[0], end)
            if heads:
                return _encode_alike(heads[start:end], values)
        parts = [b""] * (4 * len(values))
        parts[0::4] = map(_HEADS[stretch.inner].__getitem__, lengths)
        parts[1::4] = _places(stretch.prefix, start, end)
        parts[2::4] = map(_LENGTHS.__getitem__, lengths)
        parts[3::4] = values
        parts[0] = parts[0][1:]
        parts.append(b"\x00")
        return parts

    def _encode_keyed(self, stretch: _Stretch, end: int) -> list[bytes] | None:
        """Encode records with keys and values and no headers, column by column; None for others."""
        start, count = stretch.start, end - stretch.start
        keys, values = self._keys[start:end], self.values[start:end]
        if self._headers or len(keys) < count or None in keys or None in values:
            return None
        key_sizes: list[int] = list(map(len, keys))  # type: ignore[arg-type]
        value_sizes: list[int] = list(map(len, values))  # type: ignore[arg-type]
        whole = _WITH_LENGTH.__getitem__
        inner = repeat(2 + stretch.inner, count)
        parts: list[bytes] = [b""] * (6 * count)
        bodies = map(add, map(add, map(whole, key_sizes), map(whole, value_sizes)), inner)
        parts[0::6] = map(_AFTER_NO_HEADERS.__getitem__, bodies)
        parts[1::6] = _places(stretch.prefix, start, end)
        parts[2::6] = map(_VARINTS.__getitem__, key_sizes)
        parts[3::6] = keys  # type: ignore[assignment]
        parts[4::6] = map(_VARINTS.__getitem__, value_sizes)
        parts[5::6] = values  # type: ignore[assignment]
        parts[0] = parts[0][1:]
        parts.append(b"\x00")
        return parts

    def _encode_any(self, stretch: _Stretch, end: int, parts: list[bytes]) -> None:
        start, inner = stretch.start, 1 + stretch.inner
        keys = self._keys[start:end]
        keys += [None] * (end - start - len(keys))
        headers_of = self._headers.get
        places = _places(stretch.prefix, start, end)
        rows = zip(keys, self.values[start:end], places, strict=True)
        for number, (key, value, place) in enumerate(rows, start):
            headers = headers_of(number, b"\x00")
            key_part = b"\x01" if key is None else _VARINTS[len(key)] + key
            size = b"\x01" if value is None else _VARINTS[len(value)]
            bare = value or b""
            body = inner + len(key_part) + len(size) + len(bare) + len(headers)
            parts += (_VARINTS[body], place, key_part, size, bare, headers)


def _encode_alike(heads: list[bytes], values: list[bytes]) -> list[bytes]:
    """Encode plain records of the batch's first millisecond with values of one size."""
    parts = [b""] * (2 * len(values))
    parts[0::2] = heads
    parts[1::2] = values
    parts[0] = parts[0][1:]
    parts.append(b"\x00")
    return parts


_heads: dict[int, list[bytes]] = {}
"""The bytes between two values for each number of the second record, by the size of values."""
_places_known: list[bytes] = []
"""`_AT_ONCE` with each record number, as far as batches have needed it (to the second edge)."""


def _heads_alike(size: int, end: int) -> list[bytes]:
    """Return the heads for numbers up to `end`; none if making them does not pay."""
    known = _heads.get(size)
    if known is None:
        if len(_heads) >= _FEW:
            _heads.clear()
        _heads[size] = []  # built when values of this size occur again
        return []
    if end > _EDGES[1]:
        return []
    if len(known) >= end:
        return known
    # Replaced as a whole: loops of other threads may read the old one.
    places = _places(_AT_ONCE, 0, min(2 * end, _EDGES[1]))
    length = _LENGTHS[size]
    made = _heads[size] = [_HEADS[len(place) - 1][size] + place + length for place in places]
    return made


def _places(prefix: bytes, start: int, end: int) -> list[bytes]:
    """Return `prefix` with each of the encoded numbers from `start` to `end`, exclusive."""
    global _places_known  # noqa: PLW0603 - replaced as a whole: other threads may read the old one
    if prefix != _AT_ONCE or end > _EDGES[1]:
        return [prefix + _VARINTS[number] for number in range(start, end)]
    known = _places_known
    if len(known) < end:
        known = [_AT_ONCE + _VARINTS[number] for number in range(min(2 * end, _EDGES[1]))]
        _places_known = known
    return known[start:end]


def _space(field: bytes | None) -> int:
    """Return the bytes of a key or value with its length."""
    if field is None:
        return 1
    if not isinstance(field, bytes):
        raise TypeError(f"keys and values are bytes or None, not {type(field).__name__}")
    return _WITH_LENGTH[len(field)]
