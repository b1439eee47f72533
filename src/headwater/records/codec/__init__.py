"""The record codec of the clients: one contract, two implementations.

The compiled one (`_codec.pyx`) is used if it was built, otherwise the one in plain Python; both
pass the same tests and write the same bytes. HEADWATER_CODEC=pure or =compiled requires one of
them; the import fails if it is not available. The broker needs neither: it does not decode
records.
"""

from typing import TYPE_CHECKING

from headwater.records.compiled import choose

if TYPE_CHECKING:
    from headwater.records.codec import pure as chosen

NAME, _chosen = choose("headwater.records._codec", "headwater.records.codec.pure")
"""The codec in use: "compiled" or "pure"."""

if not TYPE_CHECKING:
    chosen = _chosen

BatchWriter = chosen.BatchWriter
ColumnReader = chosen.ColumnReader
decode_batch = chosen.decode_batch
decode_columns = chosen.decode_columns
decode_run = chosen.decode_run
encode_columns = chosen.encode_columns
murmur2 = chosen.murmur2
read_end = chosen.read_end
sound_run = chosen.sound_run
split_rows = chosen.split_rows
sum_rows = chosen.sum_rows
