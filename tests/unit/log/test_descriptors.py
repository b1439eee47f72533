"""Few descriptors: the files used last stay open, and running out closes others."""

import errno

import pytest

from headwater.log.descriptors import Descriptors
from headwater.seams.files import OsFiles


class FewDescriptors(OsFiles):
    """A process that may have `limit` files open."""

    def __init__(self, limit: int, code: int = errno.EMFILE):
        self.limit, self.code = limit, code
        self.opened: set[int] = set()

    def open(self, path, **how):
        if len(self.opened) >= self.limit:
            raise OSError(self.code, "no descriptor is left")
        fd = super().open(path, **how)
        self.opened.add(fd)
        return fd

    def close(self, fd):
        self.opened.remove(fd)
        super().close(fd)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_without_a_descriptor_left_half_of_the_files_are_closed(tmp_path, code):
    files = FewDescriptors(8, code)
    descriptors = Descriptors(files, limit=100)
    paths = [f"{tmp_path}/{number}" for number in range(20)]
    for path in paths:
        descriptors.create(path)
    assert len(files.opened) == len(descriptors) <= 8
    for path in paths:
        assert files.size(descriptors.of(path)) == 0
    descriptors.close()
    assert not files.opened


def test_with_nothing_to_close_the_failure_is_told(tmp_path):
    descriptors = Descriptors(FewDescriptors(0), limit=100)
    with pytest.raises(OSError, match="no descriptor is left"):
        descriptors.create(f"{tmp_path}/file")


def test_another_failure_closes_nothing(tmp_path):
    descriptors = Descriptors(OsFiles(), limit=100)
    descriptors.create(f"{tmp_path}/file")
    with pytest.raises(FileNotFoundError):
        descriptors.of(f"{tmp_path}/absent")
    assert len(descriptors) == 1
    descriptors.close()
