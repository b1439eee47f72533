"""What the log tests share: batches, opened folders, and a disk that can lose what was not synced."""

import errno

from headwater.log.log_dirs import BrokerIdentity, LogDirs
from headwater.log.partition_log import PartitionLog
from headwater.log.settings import LogSettings
from headwater.model import TopicPartition
from headwater.records.batch import HEADER, batches
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.seams.files import Files, OsFiles
from headwater.seams.randomness import SystemRandomness

PARTITION = TopicPartition("topic", 0)
TOPIC_ID = bytes(range(16))
SETTINGS = LogSettings()
NOW = 1_700_000_000_000


def opened(path, settings=SETTINGS, files: Files | None = None, now_ms=NOW, limit=64) -> LogDirs:
    dirs = LogDirs(
        files or OsFiles(), SystemRandomness(), [str(path)], BrokerIdentity(1, "cluster"), limit
    )
    dirs.open()
    dirs.load(lambda _: settings, now_ms)
    return dirs


def created(path, settings=SETTINGS, files: Files | None = None) -> tuple[LogDirs, PartitionLog]:
    dirs = opened(path, settings, files)
    return dirs, dirs.create(PARTITION, TOPIC_ID, settings, NOW)


def reopened(dirs: LogDirs, path, settings=SETTINGS, files: Files | None = None, *, clean=False):
    if clean:
        dirs.close({})
    else:
        dirs.abandon()
    again = opened(path, settings, files)
    return again, again.logs[PARTITION]


def batch(
    count=1,
    *,
    value=b"value",
    now=NOW,
    producer=-1,
    epoch=0,
    sequence=-1,
    offset=0,
    leader=-1,
    **more,
) -> memoryview:
    return memoryview(
        build_batch(
            [Record(key=b"key", value=value) for _ in range(count)],
            now=now,
            base_offset=offset,
            leader_epoch=leader,
            producer_id=producer,
            producer_epoch=epoch if producer >= 0 else -1,
            base_sequence=sequence,
            **more,
        )
    )


def stage(log: PartitionLog, data: memoryview, leader=0, now_ms=NOW) -> tuple[int, int]:
    return log.staging.stage(data, HEADER.unpack_from(data), leader, now_ms)


def append(log: PartitionLog, count=1, leader=0, **kind) -> tuple[int, int]:
    offsets = stage(log, batch(count, **kind), leader)
    log.write_staged()
    return offsets


def retired(retirement) -> str:
    """Do what a file thread does for a log that is no longer served; its new path."""
    retirement.rename()
    return retirement.path


def replicate(log: PartitionLog, data, leader=0) -> None:
    """Stage what a leader sent, as a follower does: the epochs are saved first."""
    log.stage_replicated(data, leader, 0)
    if log.epochs.must_be_saved:
        log.epochs.save()
        log.stage_replicated(data, leader, 0)


def flush(log: PartitionLog, dirs: LogDirs) -> None:
    work = log.unflushed()
    if work is not None:
        work.run()
        log.mark_flushed(work)
    dirs.checkpoint({})()


def stored(log: PartitionLog, max_bytes=1 << 20, start=None) -> list[tuple[int, int, bytes]]:
    """(base offset, last offset, bytes) of every batch, read as a consumer would."""
    found = []
    offset = log.log_start_offset if start is None else start
    while True:
        piece = log.read(offset, log.log_end_offset, max_bytes, True)
        if piece is None:
            return found
        data = bytes(piece.load_now() or piece.load())
        for position, header in batches(data):
            found.append(
                (header.base_offset, header.last_offset, data[position : position + header.size])
            )
            offset = header.next_offset


class LossyFiles(OsFiles):
    """The real file system, with faults on demand and a memory of what was never synced."""

    def __init__(self) -> None:
        self.fail_write: OSError | None = None
        self.fail_truncate: OSError | None = None
        self.full = False
        self.short: int | None = None
        # The most bytes that one read returns.
        self.most_read: int | None = None
        self.calls: list[str] = []
        self._paths: dict[int, str] = {}
        self.synced: dict[str, bytes] = {}

    def open(self, path, *, create=False, write=True, exclusive=False):
        fd = super().open(path, create=create, write=write, exclusive=exclusive)
        self._paths[fd] = path
        return fd

    def pwritev(self, fd, buffers, offset):
        self.calls.append(f"write {self._paths[fd].rpartition('/')[2]}")
        if self.full:
            raise OSError(errno.ENOSPC, "no space left")
        if self.fail_write is not None and self._paths[fd].endswith(".log"):
            error, self.fail_write = self.fail_write, None
            super().pwritev(fd, [bytes(buffers[0])[:10]], offset)
            raise error
        if self.short is not None:
            limit, self.short = self.short, None
            return super().pwritev(fd, [b"".join(bytes(part) for part in buffers)[:limit]], offset)
        return super().pwritev(fd, buffers, offset)

    def pread(self, fd, size, offset):
        self.calls.append(f"read {self._paths[fd].rpartition('/')[2]}")
        return super().pread(fd, min(size, self.most_read or size), offset)

    def pread_now(self, fd, size, offset):
        self.calls.append(f"read {self._paths[fd].rpartition('/')[2]}")
        return super().pread_now(fd, min(size, self.most_read or size), offset)

    def truncate(self, fd, size):
        if self.fail_truncate is not None:
            raise self.fail_truncate
        super().truncate(fd, size)

    def fdatasync(self, fd):
        self.calls.append(f"sync {self._paths[fd].rpartition('/')[2]}")
        path = self._paths[fd]
        with open(path, "rb") as file:
            self.synced[path] = file.read()

    def sync_dir(self, path):
        """Names are always safe here."""

    def rename(self, old, new):
        super().rename(old, new)
        if old in self.synced:
            self.synced[new] = self.synced.pop(old)

    def lose_power(self, root, keep) -> None:
        """Put every file back to what was synced plus `keep(unsynced)` bytes of what came after."""
        import pathlib

        for path in pathlib.Path(root).rglob("*"):
            if path.is_file():
                safe = self.synced.get(str(path), b"")
                now = path.read_bytes()
                if now == safe:
                    continue
                kept = keep(max(0, len(now) - len(safe)))
                path.write_bytes(now[: len(safe) + kept] if now.startswith(safe) else safe)
