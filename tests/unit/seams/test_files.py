"""The doors to the disk: short counts, locks, replacement, the page cache."""

import errno

import pytest

from headwater.seams.files import (
    IOV_MAX,
    OsFiles,
    read_file,
    read_fully,
    replace_file,
    run_side_by_side,
    write_fully,
)


class Stingy(OsFiles):
    """Takes and gives a few bytes at a time."""

    def pwritev(self, fd, buffers, offset):
        assert len(buffers) <= IOV_MAX
        return super().pwritev(fd, [bytes(buffers[0])[:3]], offset)

    def pread(self, fd, size, offset):
        return super().pread(fd, min(size, 3), offset)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "file")


def test_short_writes_and_reads_are_completed(path):
    files = Stingy()
    fd = files.open(path, create=True)
    parts = [b"hello ", b"", bytearray(b"large "), memoryview(b"world")]
    assert write_fully(files, fd, parts, 0) == 17
    assert read_fully(files, fd, 17, 0) == b"hello large world"
    assert read_fully(files, fd, 100, 6) == b"large world", "short only at the end"
    files.close(fd)


def test_more_buffers_than_one_call_takes(path):
    files = OsFiles()
    fd = files.open(path, create=True)
    count = 2 * IOV_MAX + 5
    assert write_fully(files, fd, [b"ab"] * count, 0) == 2 * count
    assert files.size(fd) == 2 * count
    files.close(fd)


def test_a_write_without_progress_is_an_error_not_an_endless_loop(path):
    class Stuck(OsFiles):
        def pwritev(self, fd, buffers, offset):
            return 0

    files = Stuck()
    fd = files.open(path, create=True)
    with pytest.raises(OSError, match="no progress"):
        write_fully(files, fd, [b"x"], 0)
    files.close(fd)


def test_one_process_at_a_time_holds_a_lock(path):
    files = OsFiles()
    held = files.lock(path)
    with pytest.raises(BlockingIOError):
        files.lock(path)
    files.close(held)
    files.close(files.lock(path))


def test_a_file_is_replaced_whole_or_not_at_all(path):
    replace_file(OsFiles(), path, b"old")

    class Full(OsFiles):
        def pwritev(self, fd, buffers, offset):
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        replace_file(Full(), path, b"new")
    assert read_file(OsFiles(), path) == b"old"
    replace_file(OsFiles(), path, b"new")
    assert read_file(OsFiles(), path) == b"new"


def test_the_page_cache_gives_what_was_just_written(path):
    files = OsFiles()
    fd = files.open(path, create=True)
    write_fully(files, fd, [b"x" * 10_000], 0)
    now = files.pread_now(fd, 10_000, 0)
    assert now is None or bytes(now) == b"x" * 10_000
    short = files.pread_now(fd, 100, 9_990)
    assert short is None or bytes(short) == b"x" * 10
    files.close(fd)


def test_calls_side_by_side_are_all_done_and_a_failure_is_heard():
    done = []
    run_side_by_side([lambda n=n: done.append(n) for n in range(50)])
    assert sorted(done) == list(range(50))

    def fail():
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        run_side_by_side([fail])


def test_names(tmp_path):
    files = OsFiles()
    folder = f"{tmp_path}/a/b"
    files.mkdir(folder)
    files.mkdir(folder)
    fd = files.open(f"{folder}/x", create=True)
    files.truncate(fd, 100)
    files.fdatasync(fd)
    files.close(fd)
    files.sync_dir(folder)
    assert files.path_size(f"{folder}/x") == 100
    assert files.listdir(folder) == ["x"]
    with pytest.raises(FileExistsError):
        files.open(f"{folder}/x", create=True, exclusive=True)
    files.rename(f"{folder}/x", f"{folder}/y")
    assert (files.exists(f"{folder}/x"), files.is_dir(folder)) == (False, True)
    files.unlink(f"{folder}/y")
    files.rmdir(folder)
    assert not files.exists(folder)
    total, usable = files.space(str(tmp_path))
    assert total >= usable > 0
