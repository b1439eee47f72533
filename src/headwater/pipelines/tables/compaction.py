"""Merges small files, for table formats without a compaction in their library.

Rows are copied from Parquet to Parquet in order; the table updates its log.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.pipelines.tables.shaping import shaped
from headwater.pipelines.tables.table import DataFile, Partition, StagedFile

_ROWS_AT_ONCE: Final = 65_536


def merge_plan(files: Iterable[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Group small files of one partition into merges of about the target size."""
    by_partition: dict[Partition, list[DataFile]] = {}
    for file in files:
        if file.size < target_bytes // 2:
            by_partition.setdefault(file.partition, []).append(file)
    bins = [one for small in by_partition.values() for one in _bins(small, target_bytes)]
    return [one for one in bins if len(one) > 1]


def _bins(files: Sequence[DataFile], target_bytes: int) -> list[list[DataFile]]:
    found: list[list[DataFile]] = []
    room = 0
    for file in files:
        if file.size > room:
            found.append([])
            room = target_bytes
        found[-1].append(file)
        room -= file.size
    return found


def merge(files: Sequence[DataFile], schema: pa.Schema, path: str) -> StagedFile:
    """Write the rows of the files into one new file with the columns of the schema."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    partition = files[0].partition
    with pq.ParquetWriter(path, schema, compression="snappy", store_schema=False) as writer:
        for file in files:
            with pq.ParquetFile(file.path) as source:
                held = [name for name in schema.names if name in source.schema_arrow.names]
                for batch in source.iter_batches(_ROWS_AT_ONCE, columns=held):
                    writer.write_batch(shaped(batch, schema, dict(partition)))
    return StagedFile(path, os.path.getsize(path), partition, pq.read_metadata(path))
