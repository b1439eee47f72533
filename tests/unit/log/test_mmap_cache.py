import pytest

from headwater.log.mmap_cache import WINDOW_BYTES, WINDOWS, MmapCache
from headwater.seams.files import OsFiles


@pytest.fixture
def file(tmp_path):
    files = OsFiles()
    path = str(tmp_path / "00000000000000000000.log")
    fd = files.open(path, create=True)
    yield files, path, fd
    files.close(fd)


def joined(pieces):
    return b"".join(bytes(piece) for piece in pieces)


def test_a_range_over_the_edge_comes_in_two_pieces(file):
    files, path, fd = file
    files.pwritev(fd, [b"left", b"right"], WINDOW_BYTES - 4)
    pieces = MmapCache(files).view(path, lambda _: fd, WINDOW_BYTES - 4, 9)
    assert [bytes(piece) for piece in pieces] == [b"left", b"right"]


def test_only_the_windows_used_last_are_kept(file):
    files, path, fd = file
    mmaps = MmapCache(files)
    for number in range(WINDOWS + 3):
        files.pwritev(fd, [b"%02d" % number], number * WINDOW_BYTES)
        assert joined(mmaps.view(path, lambda _: fd, number * WINDOW_BYTES, 2)) == b"%02d" % number
    with open("/proc/self/maps") as maps:
        assert sum(path in line for line in maps) == WINDOWS


def test_a_forgotten_file_is_mapped_anew(file, tmp_path):
    files, path, fd = file
    files.pwritev(fd, [b"old"], 0)
    mmaps = MmapCache(files)
    mmaps.view(path, lambda _: fd, 0, 3)
    mmaps.evict(path)
    other = files.open(str(tmp_path / "other"), create=True)
    files.pwritev(other, [b"new"], 0)
    assert joined(mmaps.view(path, lambda _: other, 0, 3)) == b"new"
    files.close(other)


def test_files_that_cannot_be_mapped_are_read_otherwise(file):
    class Unmapped(OsFiles):
        def map(self, fd, offset, size):
            return None

    _, path, fd = file
    assert MmapCache(Unmapped()).view(path, lambda _: fd, 0, 1) is None
