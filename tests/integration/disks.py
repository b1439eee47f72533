"""Disks that fail on demand: small real ones, and the real file system with errors put in."""

import errno
import gc
import os
import pathlib
import subprocess
from contextlib import suppress

import pytest

from headwater.seams.files import OsFiles
from tests.integration.waiting import until


class SmallDisk:
    """A folder on a file system of a few MiB; without the right to mount one, a pretended one."""

    def __init__(self, path: pathlib.Path, size: int) -> None:
        self.path = path
        self.files = None
        self._size = size
        path.mkdir()
        mount = f"mount -t tmpfs -o size={size} tmpfs '{path}'"
        tried = subprocess.run(["sh", "-c", mount], check=False, capture_output=True)
        self._mounted = tried.returncode == 0
        if not self._mounted:
            self.files = _Pretended(path, size)

    def load_ballast(self, size: int) -> None:
        """Take up room that can be given back."""
        (self.path / "ballast").write_bytes(bytes(size))

    def fill(self) -> None:
        """Take up all room that is left."""
        with suppress(OSError), (self.path / "rest").open("wb", buffering=0) as rest:
            for _ in range(self._size // 512):
                rest.write(bytes(512))

    def make_room(self) -> None:
        """Undo `load_ballast` and `fill`."""
        for name in ("ballast", "rest"):
            (self.path / name).unlink(missing_ok=True)

    def close(self) -> None:
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=True)


class RealDisk:
    """An ext4 disk in a file, which can be made read-only and unmounted while it is used."""

    def __init__(self, image: pathlib.Path, path: pathlib.Path) -> None:
        self._image, self.path = image, path
        path.mkdir()
        with image.open("wb") as file:
            file.truncate(16 << 20)
        _run("mkfs.ext4", "-q", str(image))
        self.mount()

    def mount(self) -> None:
        """Mount it; the test is skipped where that is not allowed.

        Linux takes an unmounted disk away a little later, and gives the next one its state until then.
        """
        until(self._is_free, "the disk to be free")
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def _is_free(self) -> bool:
        gc.collect()  # a mapped file keeps the disk
        return not _run("losetup", "-j", str(self._image))

    def make_read_only(self) -> None:
        """Do what an error of the file system does with `errors=remount-ro`."""
        _run("mount", "-o", "remount,abort", str(self.path))

    def unmount(self) -> None:
        """Take it away from under its users."""
        subprocess.run(["umount", "-l", str(self.path)], check=True)

    def close(self) -> None:
        if self.path.is_mount():
            self.unmount()


def _run(*command: str) -> bytes:
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as refused:
        pytest.skip(f"no disks can be mounted here: {refused}")


class _Pretended(OsFiles):
    """Counts what a folder holds and refuses more."""

    def __init__(self, path: pathlib.Path, size: int) -> None:
        self._path, self._size = path, size

    def _left(self) -> int:
        used = sum(item.stat().st_size for item in self._path.rglob("*") if item.is_file())
        return max(0, self._size - used)

    def space(self, path):
        return self._size, self._left()

    def pwritev(self, fd, buffers, offset):
        grows = offset + sum(map(len, buffers)) - self.size(fd)
        if grows > self._left():
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwritev(fd, buffers, offset)


class FaultyFiles(OsFiles):
    """The real file system, where calls on some files fail with an errno."""

    def __init__(self) -> None:
        self._faults: list[tuple[str, str, int]] = []
        self._paths: dict[int, str] = {}
        self.failed = 0

    def break_(self, call: str, path: str | pathlib.Path, code: int) -> None:
        """From now on `call` fails for every file below `path`."""
        self._faults.append((call, str(path), code))

    def repair(self) -> None:
        """Every call works again."""
        self._faults.clear()

    def _check(self, call: str, path: str) -> None:
        for broken, prefix, code in self._faults:
            if broken == call and path.startswith(prefix):
                self.failed += 1
                raise OSError(code, os.strerror(code), path)

    def open(self, path, **how):
        self._check("open", path)
        fd = super().open(path, **how)
        self._paths[fd] = path
        return fd

    def pwritev(self, fd, buffers, offset):
        self._check("pwritev", self._paths.get(fd, ""))
        return super().pwritev(fd, buffers, offset)

    def pread(self, fd, size, offset):
        self._check("pread", self._paths.get(fd, ""))
        return super().pread(fd, size, offset)

    def pread_now(self, fd, size, offset):
        self._check("pread_now", self._paths.get(fd, ""))
        return super().pread_now(fd, size, offset)

    def fdatasync(self, fd):
        self._check("fdatasync", self._paths.get(fd, ""))
        super().fdatasync(fd)
