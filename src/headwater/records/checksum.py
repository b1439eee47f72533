"""CRC-32C, the checksum of record batches and of producer snapshots.

The `crc32c` package computes it in hardware, but importing the package also imports
importlib.metadata (for its own version number) and argparse (for its command line): 45-80 ms here,
a tenth of a broker's budget until its first acknowledged record. So its extension module is loaded
directly, without the package's `__init__` (0.8 ms); if a release has another file layout, the
ordinary import is used.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


def _load() -> Callable[[Buffer], int]:
    package = PathFinder.find_spec("crc32c")
    folders = package.submodule_search_locations if package else None
    extension = PathFinder.find_spec("_crc32c", folders) if folders else None
    if extension is None or extension.loader is None:
        from crc32c import crc32c as packaged

        return packaged
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    function: Callable[[Buffer], int] = module.crc32c
    return function


crc32c: Callable[[Buffer], int] = _load()
"""`crc32c(buffer) -> int`: unsigned 32 bits; takes writable memoryviews without a copy."""
