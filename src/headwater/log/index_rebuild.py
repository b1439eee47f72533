"""Rebuilds indexes, producer states and a segment's cached state from the batches alone."""

from typing import TYPE_CHECKING, NamedTuple

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
    from headwater.log.log_segments import LogSegments

ROWS = 10_000
"""Batches per step of a rebuild: this bounds its memory for segments of any size."""


class Replayed(NamedTuple):
    """The offset at which a rebuild of producer states began, and the bytes it read."""

    snapshot_offset: int
    read_bytes: int


def rebuild_indexes(segment: Segment, interval: int, below: int | None = None) -> None:
    """Build a segment's offset and time index from its batches; raise DamagedSegment.

    `below` limits this to the batches under that offset: later ones may be damaged.
    """
    size = segment.size
    segment.index.clear()
    segment.time_index.clear()
    rows: list[Staged] = []
    builder = segment.uncached_copy(0)
    for position, header in headers(segment):
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        if last_offset < segment.base_offset or not segment.spans(last_offset):
            raise DamagedSegment(f"offset {last_offset} at {position} of {segment.path}")
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
    """Prepare a loaded segment for appends; raise DamagedSegment unless it ends at `end_offset`."""
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


def replay_producers(
    segments: "LogSegments", producers: ProducerStates, log_end: int, now_ms: int
) -> Replayed:
    """Rebuild the producers' states up to the end of the log.

    Start with the newest intact snapshot at or below the end and read the batch headers from there.
    """
    start = _restore_newest(segments, producers, log_end)
    read_bytes = _replay_from(segments, producers, start, log_end, now_ms)
    producers.commit_staged()
    # The indexes already have their aborted transactions.
    producers.aborted.clear()
    return Replayed(start, read_bytes)


def rebuild_aborted(segments: "LogSegments", segment: Segment) -> None:
    """Build a segment's index of aborted transactions from the batches; raise DamagedSegment.

    The newest snapshot at or below the segment knows which transactions were open.
    """
    producers = ProducerStates()
    start = _restore_newest(segments, producers, segment.base_offset)
    end = segment.base_offset + 1
    _replay_from(segments, producers, start, end, 0)
    segment.aborted.clear()
    for aborted in producers.aborted:
        if aborted.last_offset >= segment.base_offset:
            segment.aborted.append(aborted)


def remove_snapshots(files: Files, directory: str, above: int) -> None:
    """Unlink the snapshots above an offset: they describe batches that are gone."""
    for offset in snapshots.offsets(files, directory):
        if offset > above:
            snapshots.remove(files, snapshots.stem(directory, offset))


def _restore_newest(segments: "LogSegments", producers: ProducerStates, log_end: int) -> int:
    """Restore the newest intact snapshot at or below `log_end`, and return its offset."""
    start = segments.start_offset
    for offset in snapshots.offsets(segments.files, segments.directory):
        if start <= offset <= log_end and _restore(segments, producers, offset):
            return offset
    producers.restore((), start)
    return start


def _restore(segments: "LogSegments", producers: ProducerStates, offset: int) -> bool:
    stem = snapshots.stem(segments.directory, offset)
    try:
        producers.restore(snapshots.read(segments.files, stem), offset)
    except (snapshots.DamagedSnapshot, OSError):
        snapshots.remove(segments.files, stem)
        return False
    return True


def _replay_from(
    segments: "LogSegments", producers: ProducerStates, start: int, log_end: int, now_ms: int
) -> int:
    """Replay the segments that begin below `log_end`, from the batch that holds `start` on."""
    read_bytes = 0
    if start >= log_end:
        return read_bytes
    for segment in segments.from_rank(segments.rank(start)):
        if segment.base_offset >= log_end:
            break
        found = _find(segments, segment, start) if segment.size else None
        if found is None:
            continue
        for position, header in headers(segment, found[0]):
            read_bytes += header[LENGTH] + OVERHEAD
            if header[ATTRIBUTES] & CONTROL:
                producers.replay_batch(header, batch_at(segment, position, header), now_ms)
            elif header[PRODUCER_ID] >= 0:
                producers.replay_batch(header, b"", now_ms)
    return read_bytes


def _find(segments: "LogSegments", segment: Segment, offset: int) -> tuple[int, RawHeader] | None:
    """Find the batch that holds `offset`, even if a power cut damaged the index."""
    try:
        return segment.find(segment.read_blocking, offset)
    except DamagedSegment:
        segments.rebuild(segment)
        return segment.find(segment.read_blocking, offset)
