"""Repairs that need only the log itself: indexes, producer states, and what a segment remembers."""

from typing import TYPE_CHECKING

from headwater.log import snapshots
from headwater.log.batch_scan import batch_at, headers
from headwater.log.producers import ProducerStates
from headwater.log.segment import DamagedSegment, Segment, Staged
from headwater.records.batch import CONTROL, HEADER_SIZE, OVERHEAD, RawHeader
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAX_TIMESTAMP,
    PRODUCER_ID,
)
from headwater.seams.files import Files

if TYPE_CHECKING:
    from headwater.log.partition_log import PartitionLog

ROWS = 10_000
"""Batches taken at once when an index is rebuilt: memory stays small however large the segment."""


def rebuild_indexes(segment: Segment, interval: int, below: int | None = None) -> None:
    """Build offset and time index of a segment from its batches; DamagedSegment if they are none.

    With `below` only the batches under that offset count: what follows is not known to be sound.
    """
    size = segment.size
    segment.index.clear()
    segment.time_index.clear()
    rows: list[Staged] = []
    builder = segment.uncached_copy(0)
    for _, header in headers(segment):
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        rows.append((last_offset, header[LENGTH] + OVERHEAD, header[MAX_TIMESTAMP]))
        if len(rows) == ROWS:
            builder.index_batches(rows, interval)
            rows.clear()
        if below is not None and last_offset + 1 >= below:
            break
    builder.index_batches(rows, interval)
    builder.ready = True
    builder.seal()
    segment.reset(size)


def walk_tail(segment: Segment, end_offset: int) -> None:
    """Make a loaded segment ready for appends; DamagedSegment if it does not end at `end_offset`."""
    newest, relative = segment.time_index.last()
    _, position = segment.index.last()
    segment.reset(segment.size)
    segment.max_timestamp = newest
    segment.max_timestamp_offset = segment.base_offset + max(relative, 0)
    segment.first_timestamp = next(headers(segment, piece=HEADER_SIZE))[1][8]
    segment.since_index = segment.size - position
    next_offset = segment.base_offset
    for place, header in headers(segment, position):
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        next_offset = last_offset + 1
        segment.remember(last_offset, place)
        if header[MAX_TIMESTAMP] > segment.max_timestamp:
            segment.max_timestamp, segment.max_timestamp_offset = header[MAX_TIMESTAMP], last_offset
    if next_offset != end_offset:
        segment.reset(segment.size)
        raise DamagedSegment(f"{segment.path} ends at offset {next_offset}, not at {end_offset}")
    segment.ready = True


def replay_producers(log: "PartitionLog", files: Files, now_ms: int) -> int:
    """Rebuild the producers of a log up to its end; the number of bytes read for it.

    The newest sound snapshot at or below the end is the beginning; the headers from there on are
    the rest.
    """
    log.producers = ProducerStates()
    start = log.segments[0].base_offset
    for offset in snapshots.offsets(files, log.directory):
        if start <= offset <= log.log_end_offset and _restored(
            log, files, log.snapshot_stem(offset)
        ):
            start = log.snapshot_offset = offset
            break
    else:
        log.snapshot_offset = start
    walked = _replay_from(log, start, now_ms)
    log.producers.commit_staged()
    # Their aborts are in the indexes already.
    log.aborted.clear()
    return walked


def remove_snapshots(files: Files, directory: str, above: int) -> None:
    """Unlink the snapshots above an offset: they speak of batches that are gone."""
    for offset in snapshots.offsets(files, directory):
        if offset > above:
            snapshots.remove(files, f"{directory}/{offset:020d}")


def _restored(log: "PartitionLog", files: Files, stem: str) -> bool:
    try:
        log.producers.restore(snapshots.read(files, stem))
    except (snapshots.DamagedSnapshot, OSError):
        snapshots.remove(files, stem)
        return False
    return True


def _replay_from(log: "PartitionLog", start: int, now_ms: int) -> int:
    walked = 0
    if start >= log.log_end_offset:
        return walked
    for segment in log.segments[log.rank(start) :]:
        found = _found(log, segment, start) if segment.size else None
        if found is None:
            continue
        for position, header in headers(segment, found[0]):
            walked += header[LENGTH] + OVERHEAD
            if header[ATTRIBUTES] & CONTROL:
                log.replay_batch(header, batch_at(segment, position, header), now_ms)
            elif header[PRODUCER_ID] >= 0:
                log.replay_batch(header, b"", now_ms)
    return walked


def _found(log: "PartitionLog", segment: Segment, offset: int) -> tuple[int, RawHeader] | None:
    """Where `offset` is, also by an index that a power cut left damaged."""
    try:
        return segment.find(segment.read_blocking, offset)
    except DamagedSegment:
        log.rebuild(segment)
        return segment.find(segment.read_blocking, offset)
