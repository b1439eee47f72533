"""The simulated files answer like the real ones, and die on command."""

import errno
import os

import pytest

from headwater.seams.files import OsFiles, read_file, replace_file, write_fully
from simulator.clock import SimClock
from simulator.disk import Disk
from simulator.files import FileFaults, SimFiles
from simulator.loop import Crashed, Scheduler
from simulator.randomness import stream
from simulator.trace import Trace


def _files(disk: Disk | None = None, **faults) -> SimFiles:
    trace = Trace()
    return SimFiles(
        disk or Disk(), SimClock(Scheduler(trace)), stream(1, "files"), trace, FileFaults(**faults)
    )


def _outcome(call):
    try:
        return call()
    except OSError as failure:
        return failure.errno


def _story(files, root: str) -> list[object]:
    """A walk through everything the seam offers, as a list of what it answered."""
    told: list[object] = []

    def tell(call) -> None:
        told.append(_outcome(call))

    files.mkdir(f"{root}/d")
    tell(lambda: files.open(f"{root}/d/absent"))
    fd = files.open(f"{root}/d/a", create=True)
    tell(lambda: files.open(f"{root}/d/a", create=True, exclusive=True))
    tell(lambda: files.pwritev(fd, [b"hello", b" ", b"world"], 0))
    tell(lambda: files.pwritev(fd, [b"!"], 20))
    tell(lambda: bytes(files.pread(fd, 100, 0)))
    tell(lambda: bytes(files.pread(fd, 5, 6)))
    tell(lambda: files.size(fd))
    tell(lambda: files.truncate(fd, 5))
    tell(lambda: files.path_size(f"{root}/d/a"))
    tell(lambda: files.truncate(fd, 8))
    tell(lambda: read_file(files, f"{root}/d/a"))
    tell(lambda: files.fdatasync(fd))
    tell(lambda: files.rename(f"{root}/d/a", f"{root}/d/b"))
    tell(lambda: files.rename(f"{root}/d/a", f"{root}/d/c"))
    tell(lambda: files.pwritev(fd, [b"X"], 0))
    tell(lambda: read_file(files, f"{root}/d/b"))
    tell(lambda: files.rmdir(f"{root}/d"))
    tell(lambda: files.listdir(f"{root}/d"))
    tell(lambda: files.listdir(f"{root}/nowhere"))
    tell(lambda: files.is_dir(f"{root}/d"))
    tell(lambda: files.is_dir(f"{root}/d/b"))
    tell(lambda: files.exists(f"{root}/d/a"))
    tell(lambda: files.unlink(f"{root}/d/a"))
    tell(lambda: files.sync_dir(f"{root}/d"))
    tell(lambda: replace_file(files, f"{root}/d/b", b"new"))
    tell(lambda: read_file(files, f"{root}/d/b"))
    files.close(fd)
    tell(lambda: files.unlink(f"{root}/d/b"))
    tell(lambda: files.rmdir(f"{root}/d"))
    tell(lambda: files.listdir(root))
    return told


def test_they_answer_like_the_operating_system(tmp_path):
    files = _files()
    files.mkdir("/root")
    assert _story(files, "/root") == _story(OsFiles(), str(tmp_path))


def test_a_process_dies_before_the_operation_of_the_plan_and_does_nothing_afterwards():
    disk = Disk()
    died = []
    files = _files(disk, crash_before=1)
    files.on_crash = lambda: (died.append(True), files.die())
    fd = files.open("/a", create=True)
    with pytest.raises(Crashed):
        files.truncate(fd, 10)
    assert died == [True]
    with pytest.raises(Crashed):
        files.exists("/a")
    files.close(fd)
    assert len(disk.find("/a").data) == 0


def test_a_process_that_dies_in_a_write_leaves_a_part_of_it():
    sizes = set()
    for seed in range(30):
        disk = Disk()
        files = _files(disk, crash_before=1)
        files._chance = stream(seed, "files")
        fd = files.open("/a", create=True)
        with pytest.raises(Crashed):
            files.pwritev(fd, [bytes(10)], 0)
        sizes.add(len(disk.find("/a").data))
    assert len(sizes) > 3
    assert max(sizes) < 10


def test_short_counts_are_survived_by_those_who_look_at_them():
    files = _files(short=0.5)
    fd = files.open("/a", create=True)
    content = os.urandom(500)
    assert write_fully(files, fd, [content[:100], content[100:]], 0) == 500
    assert read_file(files, "/a") == content
    assert any(len(files.pread(fd, 500, 0)) < 500 for _ in range(20))


def test_cold_bytes_must_be_read_the_slow_way():
    files = _files(cold=0.5)
    fd = files.open("/a", create=True)
    files.pwritev(fd, [b"abc"], 0)
    assert {files.pread_now(fd, 3, 0) for _ in range(30)} == {None, b"abc"}


def test_a_full_disk_has_no_room_for_bytes_or_names_and_says_so():
    files = _files()
    fd = files.open("/a", create=True)
    files.faults.full = True
    assert _outcome(lambda: files.pwritev(fd, [b"x"], 0)) == errno.ENOSPC
    assert _outcome(lambda: files.open("/b", create=True)) == errno.ENOSPC
    assert files.space("/")[1] == 0
    files.faults.full = False
    assert files.pwritev(fd, [b"x"], 0) == 1


def test_a_broken_disk_fails_the_operations_of_the_plan():
    files = _files(broken="fdatasync read")
    fd = files.open("/a", create=True)
    assert files.pwritev(fd, [b"x"], 0) == 1
    assert _outcome(lambda: files.fdatasync(fd)) == errno.EIO
    assert _outcome(lambda: files.pread(fd, 1, 0)) == errno.EIO


def test_a_lock_is_held_by_one_process_and_dies_with_it():
    disk = Disk()
    first, second = _files(disk), _files(disk)
    first.lock("/lock")
    with pytest.raises(BlockingIOError):
        second.lock("/lock")
    first.die()
    fd = second.lock("/lock")
    second.close(fd)
    assert _files(disk).lock("/lock")
