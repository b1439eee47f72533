import os

import pytest

from headwater.seams.files import OsFiles

WINDOW = 1 << 20


@pytest.fixture
def file(tmp_path):
    files = OsFiles()
    fd = files.open(str(tmp_path / "file"), create=True)
    yield files, fd
    files.close(fd)


def mapped(path):
    with open("/proc/self/maps") as maps:
        return sum(str(path) in line for line in maps)


def test_a_window_shows_the_bytes_of_the_file(file):
    files, fd = file
    files.pwritev(fd, [b"ab" * 10_000], 0)
    pages = files.map(fd, 0, WINDOW)
    assert bytes(pages.view_resident(4_097, 8_195)) == (b"ab" * 10_000)[4_097:12_292]


def test_a_window_grows_with_the_file(file):
    files, fd = file
    files.pwritev(fd, [b"a" * 100], 0)
    pages = files.map(fd, 0, WINDOW)
    files.pwritev(fd, [b"b" * 50_000], 100)
    assert bytes(pages.view_resident(90, 20)) == b"a" * 10 + b"b" * 10
    assert bytes(pages.view_resident(40_000, 10_100)) == b"b" * 10_100


def test_a_window_further_in_counts_from_its_place(file):
    files, fd = file
    files.pwritev(fd, [bytes(WINDOW), b"second"], 0)
    assert bytes(files.map(fd, WINDOW, WINDOW).view_resident(WINDOW + 1, 5)) == b"econd"


def test_what_the_page_cache_lacks_is_not_given(file):
    files, fd = file
    files.pwritev(fd, [b"x" * WINDOW], 0)
    files.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert files.map(fd, 0, WINDOW).view_resident(0, WINDOW) is None
    files.pread(fd, WINDOW, 0)
    assert files.map(fd, 0, WINDOW).view_resident(0, WINDOW) is not None


def test_a_window_is_unmapped_with_its_last_slice(file, tmp_path):
    files, fd = file
    files.pwritev(fd, [b"x" * 100], 0)
    pages = files.map(fd, 0, WINDOW)
    piece = pages.view_resident(10, 10)
    del pages
    assert mapped(tmp_path) == 1
    assert bytes(piece) == b"x" * 10
    del piece
    assert mapped(tmp_path) == 0


def test_nobody_can_write_through_a_window(file):
    files, fd = file
    files.pwritev(fd, [b"x" * 100], 0)
    assert files.map(fd, 0, WINDOW).view_resident(0, 10).readonly


def test_what_cannot_be_mapped_is_not(file):
    files, fd = file
    assert files.map(fd, 1, WINDOW) is None
