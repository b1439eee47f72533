"""Names of the files of a log: an offset in 20 digits and a suffix, as Kafka writes them."""

from collections.abc import Iterable
from typing import Final

DIGITS: Final = 20
END: Final = 1 << 63


def offset_in(name: str, suffix: str) -> int | None:
    """Return the offset in the name of a file with that suffix; None if the log has no such file.

    Other programs may put files with any name into the folder; a log leaves them alone.
    """
    stem = name.removesuffix(suffix)
    if len(stem) != DIGITS or stem + suffix != name or not (stem.isascii() and stem.isdecimal()):
        return None
    offset = int(stem)
    return offset if offset < END else None


def offsets_in(names: Iterable[str], suffix: str) -> list[int]:
    """Return the offsets in the names of the files with that suffix, in order."""
    found = (offset_in(name, suffix) for name in names)
    return sorted(offset for offset in found if offset is not None)
