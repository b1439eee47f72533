"""Flips every bit of a segment and of every other file of a log dir, and shows what happens.

    python -m tools.bit_flips             every bit: minutes
    python -m tools.bit_flips --step 97   every 97th bit

The segment has 1 MiB in 1024 batches. Each flip must be found by the comparison that precedes every
first read of loaded bytes (`SegmentChecksums.damage`); some of the flips are made on the disk, and
the log is opened and read: every read returns what was written, or an error. For the other files,
each flip is made on the disk, a broker's log dirs are opened, and their answers are compared with
those of the sound files: the same, or the log dir is refused. The files of the embedded metadata store
are flipped in the same way, and a broker's mark of its store: it is read right, or ignored with a warning.
"""

import argparse
import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.broker.store_mark import FILE_NAME as MARK
from headwater.broker.store_mark import read_noted_mark
from headwater.controller.store.journal import (
    Journal,
    StoreDamaged,
    encode_snapshot,
    encode_transaction,
)
from headwater.controller.store.metadata_store import OPEN_ACL, Acl
from headwater.controller.store.tree import (
    Edit,
    Made,
    Removed,
    Restricted,
    SessionClosed,
    SessionOpened,
    Wrote,
)
from headwater.errors import E, KafkaError
from headwater.log.checked_json import dump_checked
from headwater.log.log_dirs import BrokerIdentity, LogDirs
from headwater.log.partition_log import PartitionLog
from headwater.log.segment_checksums import CHECKSUMS, CHUNK, SegmentChecksums
from headwater.log.settings import LogSettings
from headwater.log.truncation_note import Note, write_note, write_start_note
from headwater.log.verify import verify_log
from headwater.log.verify_notes import verify_dir
from headwater.model import TopicPartition
from headwater.records.batch import HEADER, batches
from headwater.records.builder import build_batch
from headwater.records.control import Marker, build_marker
from headwater.records.record import Record
from headwater.seams.files import OsFiles
from headwater.seams.randomness import SystemRandomness

PARTITION = TopicPartition("flips", 0)
TOPIC_ID = bytes(range(1, 17))
NOW = 1_700_000_000_000
BATCH = 1024
SEGMENT = 1 << 20
BLIND = 17
"""Bytes at the beginning of a batch that its CRC does not cover; the CRC itself follows."""
READ_ON_DISK = 4099
"""One flip of the segment out of this number is made on the disk and read back."""


class Answers(NamedTuple):
    """What a log dir answers; damage must not change it."""

    rows: list[bytes]
    aborted: list[tuple[int, ...]]
    ends: tuple[int, int]
    epochs: list[tuple[int, int]]
    producers: list[tuple[int, int, int]]


def open_dirs(path: Path, settings: LogSettings) -> LogDirs:
    """Open a log dir as a broker does."""
    dirs = LogDirs(
        OsFiles(), SystemRandomness(), [str(path)], BrokerIdentity(1, "cluster", "boot"), 64
    )
    try:
        dirs.open()
        dirs.load(lambda _: settings, NOW)
    except BaseException:
        dirs.abandon()
        raise
    return dirs


def append(log: PartitionLog, data: bytearray, leader: int) -> None:
    """Append one batch as a leader does."""
    log.staging.stage(memoryview(data), HEADER.unpack_from(data), leader, NOW)
    log.write_staged()


def read_all(log: PartitionLog) -> list[bytes]:
    """Return every batch, read as a consumer does."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while True:
        piece = log.read(offset, log.log_end_offset, CHUNK, True)
        if piece is None:
            return found
        data = bytes(piece.load_now() or piece.load())
        for at, header in batches(data):
            found.append(data[at : at + header.size])
            offset = header.next_offset


def batch_of(size: int) -> bytearray:
    """Return a batch of exactly `size` bytes."""
    padding = size - len(build_batch([Record(value=b"")], now=NOW)) - 1
    for more in range(4):
        data = build_batch([Record(value=os.urandom(padding - more))], now=NOW)
        if len(data) == size:
            return bytearray(data)
    raise ValueError(size)


# -- the segment


def make_segment(path: Path, settings: LogSettings) -> list[bytes]:
    """Write a sealed segment of 1 MiB and a short one after it; return all batches."""
    dirs = open_dirs(path, settings)
    log = dirs.create(PARTITION, TOPIC_ID, settings, NOW)
    for _ in range(SEGMENT // BATCH):
        append(log, batch_of(BATCH), 0)
    log.roll(NOW)
    append(log, batch_of(BATCH), 0)
    rows = read_all(log)
    dirs.close({})
    return rows


def flip_segment(step: int, report: Counter[str]) -> None:
    """Flip the bits of a segment in memory, and some of them on the disk."""
    settings = LogSettings(segment_bytes=SEGMENT)
    path = Path(tempfile.mkdtemp(prefix="headwater-flips-"))
    rows = make_segment(path, settings)
    stem = path / "flips-0" / f"{0:020d}"
    content = bytearray(stem.with_suffix(".log").read_bytes())
    assert len(content) == SEGMENT
    sums = SegmentChecksums(OsFiles(), f"{stem}{CHECKSUMS}", SEGMENT)
    sums.load()
    for start in range(0, SEGMENT, CHUNK):
        chunk = content[start : start + CHUNK]
        view = memoryview(chunk)
        for bit in range(-(start * 8) % step, CHUNK * 8, step):
            chunk[bit >> 3] ^= 1 << (bit & 7)
            found = sums.damage(view, start)
            chunk[bit >> 3] ^= 1 << (bit & 7)
            report["bits of the segment"] += 1
            report["detected"] += found is not None
            report["not covered by the CRCs of batches"] += (bit >> 3) % BATCH < BLIND
            if (start * 8 + bit) // step % READ_ON_DISK == 0:
                _read_flipped(path, start * 8 + bit, rows, settings, report)
    shutil.rmtree(path)


def _read_flipped(
    path: Path, bit: int, rows: list[bytes], settings: LogSettings, report: Counter[str]
) -> None:
    """Flip one bit on the disk, open the log, and read every batch."""
    copy = _copied(path)
    _flip(copy / "flips-0" / f"{0:020d}.log", bit)
    dirs = open_dirs(copy, settings)
    log = dirs.logs[PARTITION]
    served = refused = 0
    for offset, row in enumerate(rows):
        try:
            piece = log.read(offset, offset + 1, BATCH, True)
            data = b"" if piece is None else bytes(piece.load_now() or piece.load())
        except KafkaError:
            refused += 1
            continue
        served += 1
        report["wrong reads"] += data != row
    report["flips read back from the disk"] += 1
    report["reads of sound batches"] += served
    report["reads refused"] += refused
    report["flips that no read refused"] += refused == 0
    dirs.abandon()
    shutil.rmtree(copy)


# -- the other files


def make_log_dir(path: Path, settings: LogSettings) -> None:
    """Write a log with producers, an aborted transaction, epochs and several segments."""
    dirs = open_dirs(path, settings)
    dirs.registered(5)()
    log = dirs.create(PARTITION, TOPIC_ID, settings, NOW)
    for number in range(24):
        row = [Record(key=b"k", value=b"%03d" % number)]
        data = build_batch(
            row, now=NOW + number, producer_id=3, producer_epoch=0, base_sequence=number
        )
        append(log, bytearray(data), number // 9)
    data = build_batch(
        [Record(value=b"aborted")], now=NOW + 30, producer_id=9, producer_epoch=0,
        base_sequence=0, transactional=True,
    )  # fmt: skip
    append(log, bytearray(data), 2)
    log.staging.stage_marker(build_marker(Marker(9, 0, False, 0), NOW), 2, NOW)
    log.write_staged()
    for _ in range(12):
        append(log, bytearray(build_batch([Record(value=b"last")], now=NOW + 40)), 2)
    log.advance_start(1)
    dirs.close({PARTITION: log.log_end_offset})
    # Notes that a truncation and a move leave until the next checkpoint.
    folder = f"{path}/flips-0"
    write_note(OsFiles(), folder, Note(log.log_end_offset, 1))
    write_start_note(OsFiles(), folder, 1)


def answers_of(dirs: LogDirs) -> Answers:
    """Return what a broker would answer."""
    log = dirs.logs[PARTITION]
    if log.failure is not None:
        raise KafkaError(E.KAFKA_STORAGE_ERROR, log.failure)
    return Answers(
        read_all(log),
        [tuple(row) for row in log.aborted_transactions(0, log.log_end_offset)],
        (log.log_start_offset, log.log_end_offset),
        list(zip(log.epochs.epochs, log.epochs.starts, strict=True)),
        sorted((row.producer_id, row.epoch, row.last_sequence) for row in log.producers),
    )


def flip_files(step: int, report: Counter[str]) -> dict[str, Counter[str]]:
    """Flip the bits of every file but the segments; return the counts by kind of file."""
    settings = LogSettings(segment_bytes=1_200, index_interval_bytes=200)
    path = Path(tempfile.mkdtemp(prefix="headwater-flips-"))
    make_log_dir(path, settings)
    sound = _answers(_copied(path), settings)
    assert isinstance(sound, Answers)
    counts: dict[str, Counter[str]] = {}
    turn = 0
    for name in _small_files(path):
        kind = name.suffix if name.stem.isdecimal() else name.name
        row = counts.setdefault(kind, Counter())
        for bit in range((path / name).stat().st_size * 8):
            turn += 1
            if turn % step:
                continue
            copy = _copied(path)
            _flip(copy / name, bit)
            row["flips"] += 1
            row["reported by verify"] += bool(_reported(copy))
            found = _answers(copy, settings)
            row["refused"] += found is None
            row["same answers"] += found == sound
            report["wrong answers"] += found is not None and found != sound
            report["bits of other files"] += 1
    shutil.rmtree(path)
    return counts


def _answers(copy: Path, settings: LogSettings) -> Answers | None:
    """Open a log dir and return its answers, or None if it is refused; remove it."""
    try:
        dirs = open_dirs(copy, settings)
        try:
            return answers_of(dirs)
        finally:
            dirs.abandon()
    except KafkaError:
        return None
    finally:
        shutil.rmtree(copy)


def _reported(copy: Path) -> list[str]:
    problems = verify_log(str(copy / "flips-0")).problems
    return problems + verify_dir(OsFiles(), str(copy))


# -- the metadata store


def make_store(path: Path) -> None:
    """Write the store of a broker: a snapshot, and a journal of all kinds of transactions."""
    acl = (Acl(31, "digest", "admin:secret"),)
    groups: list[list[list[Edit]]] = [
        [[Made("/brokers", b"", 0, OPEN_ACL)], [Made("/brokers/topics", b"", 0, OPEN_ACL)]],
        [[Made("/config", b"{}", 0, acl), Wrote("/brokers", b"data")]],
        [[SessionOpened(7, 6000, bytes(range(16)))], [Made("/controller", b"0", 7, OPEN_ACL)]],
        [[Restricted("/config", OPEN_ACL)], [Removed("/controller"), SessionClosed(7)]],
        [[Made("/brokers/topics/t", b"x" * 200, 0, OPEN_ACL)]],
        [[Wrote("/config", b"acknowledged")]],
    ]
    journal = Journal(OsFiles(), str(path))
    tree = journal.load()
    for number, group in enumerate(groups):
        frame = []
        for edits in group:
            zxid = tree.zxid + 1
            tree.replay(zxid, NOW, edits)
            frame.append(encode_transaction(zxid, NOW, edits))
        journal.append(frame)
        if number == 1:
            # The journal stays, as after a crash before its truncation.
            (path / "snapshot").write_bytes(encode_snapshot(tree))
    journal.close()


def flip_store(step: int, report: Counter[str]) -> dict[str, Counter[str]]:
    """Flip the bits of the store's files; return the counts by file."""
    path = Path(tempfile.mkdtemp(prefix="headwater-flips-"))
    make_store(path)
    sound = _tree_of(_copied(path))
    assert sound is not None
    counts: dict[str, Counter[str]] = {}
    for name in ("journal", "snapshot"):
        row = counts.setdefault(f"store's {name}", Counter())
        for bit in range(0, (path / name).stat().st_size * 8, step):
            copy = _copied(path)
            _flip(copy / name, bit)
            found = _tree_of(copy)
            row["flips"] += 1
            row["refused"] += found is None
            row["same answers"] += found == sound
            report["wrong answers"] += found is not None and found != sound
            report["bits of other files"] += 1
    shutil.rmtree(path)
    return counts


def _tree_of(copy: Path) -> bytes | None:
    """Open the store twice, as after another start, and return all that it knows; None if it is refused."""
    trees = []
    try:
        for _ in range(2):
            journal = Journal(OsFiles(), str(copy))
            try:
                trees.append(encode_snapshot(journal.load()))
            finally:
                journal.close()
    except StoreDamaged:
        return None
    finally:
        shutil.rmtree(copy)
    return trees[0] if trees[0] == trees[1] else b"another tree at the second start"


def flip_mark(step: int, report: Counter[str]) -> dict[str, Counter[str]]:
    """Flip the bits of a broker's mark of its store."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-flips-"))
    sound = dump_checked({"version": 0, "zxid": 0x1234567890})
    row: Counter[str] = Counter()
    for bit in range(0, len(sound) * 8, step):
        (folder / MARK).write_bytes(sound)
        _flip(folder / MARK, bit)
        found = read_noted_mark(OsFiles(), [str(folder)])
        row["flips"] += 1
        row["ignored with a warning"] += found == 0
        row["same answers"] += found == 0x1234567890
        report["wrong answers"] += found not in (0, 0x1234567890)
        report["bits of other files"] += 1
    shutil.rmtree(folder)
    return {MARK: row}


def _small_files(path: Path) -> Iterator[Path]:
    for file in sorted(path.rglob("*")):
        if file.is_file() and file.suffix != ".log" and file.stat().st_size:
            yield file.relative_to(path)


def _copied(path: Path) -> Path:
    copy = Path(tempfile.mkdtemp(prefix="headwater-flips-"))
    return Path(shutil.copytree(path, copy, dirs_exist_ok=True))


def _flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit >> 3] ^= 1 << (bit & 7)
    path.write_bytes(content)


def problems_of(report: Counter[str]) -> list[str]:
    """Return what must not happen and did."""
    missed = report["bits of the segment"] - report["detected"]
    rows = {"undetected flips of the segment": missed}
    rows |= {name: report[name] for name in ("wrong reads", "wrong answers")}
    rows["flips that no read refused"] = report["flips that no read refused"]
    return [f"{count} {name}" for name, count in rows.items() if count]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--step", type=int, default=1, help="flip every Nth bit")
    parser.add_argument("--file-step", type=int, help="every Nth bit of the other files")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    report: Counter[str] = Counter()
    flip_segment(chosen.step, report)
    step = chosen.file_step or chosen.step
    rows = flip_files(step, report) | flip_store(step, report) | flip_mark(step, report)
    for kind, row in rows.items():
        print(f"{kind:34}", ", ".join(f"{count:,} {name}" for name, count in row.items()))
    for name, count in report.items():
        print(f"{count:12,} {name}")
    problems = problems_of(report)
    print("; ".join(problems) or "every flip was detected or harmless; no wrong byte was served")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
