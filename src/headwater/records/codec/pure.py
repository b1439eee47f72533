"""The record codec of the clients in plain Python, with all names of the compiled one."""

from headwater.records.codec.murmur import murmur2
from headwater.records.codec.pure_columns import (
    ColumnReader,
    decode_columns,
    encode_columns,
    split_rows,
    sum_rows,
)
from headwater.records.codec.pure_reader import decode_batch
from headwater.records.codec.pure_runs import decode_run, read_end, sound_run
from headwater.records.codec.pure_writer import BatchWriter

__all__ = [
    "BatchWriter",
    "ColumnReader",
    "decode_batch",
    "decode_columns",
    "decode_run",
    "encode_columns",
    "murmur2",
    "read_end",
    "sound_run",
    "split_rows",
    "sum_rows",
]
