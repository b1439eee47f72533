"""Large files are written back in pieces before they are synced."""

import ctypes
import errno

import pytest

from headwater.seams import writeback
from headwater.seams.files import LARGE_FILE, OsFiles
from headwater.seams.writeback import PIECE, write_back


@pytest.fixture
def fd(tmp_path):
    files = OsFiles()
    opened = files.open(str(tmp_path / "file"), create=True)
    yield opened
    files.close(opened)


@pytest.fixture
def pieces(monkeypatch):
    """The pieces that the kernel is asked to write."""
    asked = []
    monkeypatch.setattr(
        writeback, "_sync_file_range", lambda fd, at, size, how: asked.append((at, size)) or 0
    )
    return asked


def test_whole_pieces_are_written_once_and_the_rest_is_left_to_the_sync(fd, pieces):
    OsFiles().truncate(fd, 3 * PIECE + 5)
    OsFiles().write_back(fd)
    assert pieces == [(0, PIECE), (PIECE, PIECE), (2 * PIECE, PIECE)]


def test_small_files_are_left_to_the_sync(fd, pieces):
    OsFiles().truncate(fd, LARGE_FILE - 1)
    OsFiles().write_back(fd)
    assert pieces == []


def test_what_is_added_meanwhile_is_written_too_but_not_for_ever(fd, monkeypatch):
    asked = []

    def grow(fd, at, size, how):
        asked.append(at)
        OsFiles().truncate(fd, at + 2 * PIECE)
        return 0

    monkeypatch.setattr(writeback, "_sync_file_range", grow)
    OsFiles().truncate(fd, PIECE)
    write_back(fd)
    assert asked == [rank * PIECE for rank in range(writeback.ROUNDS)]


def test_an_error_of_the_disk_is_raised_and_a_missing_call_is_not(fd, monkeypatch):
    codes = iter([errno.EIO, errno.EINVAL])

    def fail(*_):
        ctypes.set_errno(next(codes))
        return -1

    monkeypatch.setattr(writeback, "_sync_file_range", fail)
    OsFiles().truncate(fd, PIECE)
    with pytest.raises(OSError, match="Input/output error"):
        OsFiles().write_back(fd)
    OsFiles().write_back(fd)


def test_the_kernel_takes_the_call(fd):
    OsFiles().pwritev(fd, [b"x" * PIECE], 0)
    assert writeback._sync_file_range(fd, 0, PIECE, 7) == 0
