"""Reads the tail of a topic back to find the records of one task.

Other records stay in columns; only those with the task's own header become objects.
"""

from collections.abc import Mapping
from itertools import repeat
from typing import Any, Final

import pyarrow
from pyarrow import compute

from headwater.client.consumer.blocking import Consumer
from headwater.client.errors import TimedOutError
from headwater.model import TopicPartition
from headwater.pipelines.topic_sink.origin import (
    HEADER,
    FoundRecords,
    Pairs,
    RecordOrigin,
    without_origin,
)

STILL_S = 60.0
"""How long to wait for records of the tail before giving up."""
_SETTINGS: Final[dict[str, Any]] = {
    "auto_offset_reset": "earliest",
    "max_partition_fetch_bytes": 8 << 20,
}


def read_back(
    client: Mapping[str, Any],
    topic: str,
    starts: Mapping[TopicPartition, int],
    origin: RecordOrigin,
) -> FoundRecords:
    """Return what `origin` has written from `starts` to the current end of the topic."""
    found = FoundRecords()
    with Consumer(**client, **_SETTINGS) as consumer:
        places = [TopicPartition(topic, row) for row in consumer.partitions_for(topic)]
        consumer.assign(places)
        first, end = consumer.beginning_offsets(places), consumer.end_offsets(places)
        left = set()
        for place in places:
            start = tail_start(starts.get(place), first[place], end[place])
            consumer.seek(place, start)
            if start < end[place]:
                left.add(place)
            else:
                consumer.pause([place])
        while left:
            batch = consumer.poll_arrow(STILL_S, 100_000)
            if batch is None:
                raise TimedOutError(
                    f"timed out after {STILL_S:g} s reading back the tail of topic {topic}"
                )
            _keep_own(batch, origin.stem, found)
            left = {place for place in left if consumer.position(place) < end[place]}
    return found


def tail_start(committed: int | None, first: int, end: int) -> int:
    """Return where to begin; an offset outside the partition is from a topic that was recreated."""
    return committed if committed is not None and first <= committed <= end else first


def _keep_own(batch: Any, stem: bytes, found: FoundRecords) -> None:
    headers = batch.column("headers")
    pairs = headers.flatten()
    own = compute.and_(
        compute.equal(pairs.field("key"), pyarrow.scalar(HEADER.encode(), pyarrow.binary())),
        compute.starts_with(pairs.field("value"), pattern=stem),
    )
    rows = compute.list_parent_indices(headers).filter(own)
    if not len(rows):
        return
    origins = pairs.field("value").filter(own)
    lone = compute.max(compute.list_value_length(headers)).as_py() == 1
    for origin, key, value, others in zip(
        origins.to_pylist(),
        batch.column("key").take(rows).to_pylist(),
        batch.column("value").take(rows).to_pylist(),
        repeat(()) if lone else map(_pairs, headers.take(rows).to_pylist()),
        strict=False,
    ):
        index = origin[len(stem) :]
        if index.isdigit():
            found.add(int(index), key, value, others)


def _pairs(row: list[dict[str, Any]]) -> Pairs:
    return without_origin((pair["key"].decode(), pair["value"]) for pair in row)
