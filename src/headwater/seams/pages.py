"""Mapped pages of a file: bytes go from the page cache to a socket without a copy.

Touching a page that is not in memory would read it from the disk while the whole loop waits, so
mincore asks the kernel first, and the result is None if a page is missing. The C calls are made
directly: Python's mmap cannot map beyond the end of a file and does not reveal the address.
"""

import ctypes
import mmap
import os
import weakref

_PAGE = mmap.PAGESIZE
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_mincore = _libc.mincore


class MappedPages:
    """A window of a file, which may reach past its end. Unmapped when its last slice is gone."""

    __slots__ = ("_address", "_offset", "_resident", "_resident_address", "_view")

    def __init__(self, fd: int, offset: int, size: int) -> None:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
        if address in (None, _FAILED):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        window = (ctypes.c_ubyte * size).from_address(address)
        weakref.finalize(window, _libc.munmap, address, size).atexit = False
        self._view = memoryview(window).cast("B").toreadonly()
        self._address = address
        self._offset = offset
        self._resident = bytearray(size // _PAGE + 1)
        self._resident_address = ctypes.addressof(ctypes.c_ubyte.from_buffer(self._resident))

    def view_resident(self, start: int, size: int) -> memoryview | None:
        """Return the bytes from `start` of the file on if all are in memory, else None.

        Pass them to a socket only: if the file is truncated, a system call that touches them fails,
        but Python code that touches them would crash the process.
        """
        at = start - self._offset
        first = at // _PAGE * _PAGE
        length = at + size - first
        if _mincore(self._address + first, length, self._resident_address) != 0:
            return None
        if self._resident.count(0, 0, -(-length // _PAGE)):
            return None
        return self._view[at : at + size]
