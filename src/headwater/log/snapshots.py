"""Producer states on disk: Kafka's `.snapshot`, and a `.window` beside it for what that leaves out.

Snapshot N has the states of all producers when the log ended at offset N. Kafka's format keeps only
the last batch of each producer; the other four go to our own file, which names the snapshot's
checksum. Both are optional: if a snapshot is damaged, an older one is used and the log is read from
there; if a window is damaged, the four older batches are lost.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping

from headwater.log import file_names
from headwater.log.producers import WINDOW, Batch, ProducerStateEntry, State
from headwater.model import NO_SEQUENCE
from headwater.records.checksum import crc32c
from headwater.seams.files import Files, read_file, replace_file

SNAPSHOT = ".snapshot"
WINDOWS = ".window"

_SEQUENCES = 1 << 31
_HEAD = struct.Struct(">hIi")
_CRC_END = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_WINDOW_HEAD = struct.Struct(">hII")
_WINDOW_ENTRY = struct.Struct(">qb")
_BATCH = struct.Struct(">iqi")


class DamagedSnapshot(Exception):
    """The file fails its version, checksum or size check."""


def stem(directory: str, offset: int) -> str:
    """Return the path of the snapshot at `offset`, without its suffix."""
    return f"{directory}/{offset:020d}"


def encode_states(states: Mapping[int, State]) -> tuple[bytes, bytes]:
    """Return the content of the two files for a copy of a log's states. Safe on any thread."""
    return encode(ProducerStateEntry(producer_id, *state) for producer_id, state in states.items())


def encode(producers: Iterable[ProducerStateEntry]) -> tuple[bytes, bytes]:
    """The content of the two files."""
    entries, windows = [], []
    for producer in producers:
        entries.append(_encode_entry(producer))
        if len(producer.window) > 1:
            windows.append(_encode_window(producer.producer_id, producer.window[:-1]))
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    snapshot = struct.pack(">hI", 1, crc32c(body)) + body
    older = b"".join(windows)
    head = _WINDOW_HEAD.pack(1, crc32c(snapshot), crc32c(older))
    return snapshot, (head + older if windows else b"")


def decode(snapshot: bytes, windows: bytes = b"") -> Iterator[ProducerStateEntry]:
    """Return the producers of a snapshot; raise DamagedSnapshot."""
    if len(snapshot) < _HEAD.size:
        raise DamagedSnapshot(f"{len(snapshot)} bytes")
    version, crc, count = _HEAD.unpack_from(snapshot)
    if version != 1 or crc != crc32c(snapshot[_CRC_END:]):
        raise DamagedSnapshot(f"version {version}, checksum {crc:#010x} does not match")
    if len(snapshot) != _HEAD.size + count * _ENTRY.size:
        raise DamagedSnapshot(f"{count} entries in {len(snapshot)} bytes")
    older = _decode_windows(snapshot, windows)
    return (_decode_entry(entry, older) for entry in _ENTRY.iter_unpack(snapshot[_HEAD.size :]))


def belongs_to(windows: bytes, snapshot: bytes) -> bool:
    """Return whether the content of a `.window` is intact and of this snapshot."""
    if len(windows) < _WINDOW_HEAD.size:
        return False
    version, snapshot_crc, crc = _WINDOW_HEAD.unpack_from(windows)
    body = windows[_WINDOW_HEAD.size :]
    return bool(version == 1 and snapshot_crc == crc32c(snapshot) and crc == crc32c(body))


def write(files: Files, stem: str, content: tuple[bytes, bytes]) -> None:
    """Write both files without a sync: readers can do without them. Safe on any thread."""
    snapshot, windows = content
    if windows:
        replace_file(files, stem + WINDOWS, windows, sync=False)
    replace_file(files, stem + SNAPSHOT, snapshot, sync=False)


def read(files: Files, stem: str) -> list[ProducerStateEntry]:
    """Return the producers of the snapshot at `stem`; raise DamagedSnapshot or OSError."""
    windows = b""
    if files.exists(stem + WINDOWS):
        windows = read_file(files, stem + WINDOWS)
    return list(decode(read_file(files, stem + SNAPSHOT), windows))


def offsets(files: Files, directory: str) -> list[int]:
    """Offsets of the snapshots in a folder, newest first."""
    return offsets_in(files.listdir(directory))


def offsets_in(names: Iterable[str]) -> list[int]:
    """Offsets of the snapshots among the names of a folder, newest first."""
    return file_names.offsets_in(names, SNAPSHOT)[::-1]


def flushed_before(offsets: list[int]) -> int:
    """Return the offset up to which snapshots show that the log was flushed.

    A flush writes its snapshots last; Kafka may write the newest one before its flush is done.
    """
    return offsets[1] if len(offsets) > 1 else 0


def remove(files: Files, stem: str) -> None:
    """Unlink the files of the snapshot at `stem` that exist."""
    for suffix in (SNAPSHOT, WINDOWS):
        if files.exists(stem + suffix):
            files.unlink(stem + suffix)


def _encode_entry(producer: ProducerStateEntry) -> bytes:
    last_offset, delta = -1, 0
    if producer.window:
        _, _, base, last_offset = producer.window[-1]
        delta = last_offset - base
    return _ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        producer.last_sequence,
        last_offset,
        delta,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.transaction_start,
    )


def _decode_entry(
    entry: tuple[int, ...], older: dict[int, tuple[Batch, ...]]
) -> ProducerStateEntry:
    producer_id, epoch, last, last_offset, delta, timestamp, coordinator, transaction = entry
    window: tuple[Batch, ...] = ()
    if last != NO_SEQUENCE:
        newest = ((last - delta) % _SEQUENCES, last, last_offset - delta, last_offset)
        window = (*older.get(producer_id, ()), newest)
    return ProducerStateEntry(producer_id, epoch, last, window, timestamp, coordinator, transaction)


def _encode_window(producer_id: int, batches: tuple[Batch, ...]) -> bytes:
    rows = [_BATCH.pack(first, base, last_offset - base) for first, _, base, last_offset in batches]
    return _WINDOW_ENTRY.pack(producer_id, len(rows)) + b"".join(rows)


def _decode_windows(snapshot: bytes, content: bytes) -> dict[int, tuple[Batch, ...]]:
    """Return the older batches by producer; none if the file does not belong to the snapshot."""
    if not belongs_to(content, snapshot):
        return {}
    body = content[_WINDOW_HEAD.size :]
    windows, at = {}, 0
    while at < len(body):
        producer_id, count = _WINDOW_ENTRY.unpack_from(body, at)
        at += _WINDOW_ENTRY.size
        rows = _BATCH.iter_unpack(body[at : at + count * _BATCH.size])
        at += count * _BATCH.size
        windows[producer_id] = tuple(
            (first, (first + delta) % _SEQUENCES, base, base + delta) for first, base, delta in rows
        )[-WINDOW:]
    return windows
