"""The record codec of the clients: one contract, two implementations.

The compiled one (`_codec.pyx`) is used if it was built, otherwise the one in plain Python; both
pass the same tests and write the same bytes. HEADWATER_CODEC=pure or =compiled requires one of
them; the import fails if it is not available. The broker needs neither: it does not decode
records.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headwater.records.codec import pure as chosen

_MODULES: Final = {
    "compiled": "headwater.records._codec",
    "pure": "headwater.records.codec.pure",
}


def _choose() -> str:
    wanted = os.environ.get("HEADWATER_CODEC", "")
    if wanted in _MODULES:
        return wanted
    if wanted:
        raise ImportError(f"HEADWATER_CODEC is 'pure' or 'compiled', not {wanted!r}")
    try:
        import_module(_MODULES["compiled"])
    except ImportError:
        return "pure"
    return "compiled"


NAME: Final = _choose()
"""The codec in use: "compiled" or "pure"."""

if not TYPE_CHECKING:
    chosen = import_module(_MODULES[NAME])

BatchWriter = chosen.BatchWriter
ColumnReader = chosen.ColumnReader
decode_batch = chosen.decode_batch
decode_columns = chosen.decode_columns
decode_run = chosen.decode_run
encode_columns = chosen.encode_columns
murmur2 = chosen.murmur2
read_end = chosen.read_end
split_rows = chosen.split_rows
sum_rows = chosen.sum_rows
