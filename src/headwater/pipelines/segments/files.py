"""Finds the segment files of a path, and splits large files into pieces for several readers.

A path may be an archive, a broker's data folder (or a copy of one, of Headwater or of Apache
Kafka), a partition's folder, a segment file, or a glob of any of these. Records are not read here.
"""

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from headwater.errors import E, KafkaError
from headwater.log.aborted_index import AbortedIndex, AbortedTransaction
from headwater.log.file_names import offset_in, offsets_in
from headwater.log.folders import partition_of
from headwater.log.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from headwater.log.segment import ABORTED_INDEX, INDEX, LOG
from headwater.model import TopicPartition
from headwater.pipelines.segments import manifest
from headwater.records.batch import HEADER_SIZE, MAGIC, BatchHeader, read_header
from headwater.seams.files import OsFiles

MAX_OFFSET: Final = (1 << 63) - 1
_SCHEME: Final = "file:"


class SegmentFile(NamedTuple):
    """A `.log` file and its partition."""

    path: str
    topic: str
    partition: int
    base_offset: int
    size: int
    next_offset: int = MAX_OFFSET
    """The base offset of the next file; all offsets in this file are below it."""
    last_timestamp: int | None = None
    """The largest timestamp, if a manifest has it."""

    @property
    def folder(self) -> str:
        """Return the partition's folder."""
        return os.path.dirname(self.path)


class SegmentSlice(NamedTuple):
    """The batches of a file between two positions."""

    segment: SegmentFile
    start: int
    end: int


def find_segments(path: str, named: TopicPartition | None = None) -> list[SegmentFile]:
    """Return the segments of `path`, ordered by topic, partition and offset.

    Args:
        path: A folder, a file or a glob.
        named: The partition of files whose folder is not named TOPIC-PARTITION.
    """
    path = path.removeprefix(_SCHEME).replace("///", "/", 1) if path.startswith(_SCHEME) else path
    matches = sorted(glob.glob(path)) if glob.has_magic(path) else [path]
    found = {
        os.path.realpath(segment.path): segment
        for match in matches
        for segment in _segments_at(match, named)
    }
    if not found:
        raise KafkaError(E.LOG_DIR_NOT_FOUND, f"{path} has no segment files")
    order = sorted(found.values(), key=lambda s: (s.topic, s.partition, s.base_offset, s.path))
    return list(_bounded(order))


def partition_folders(folder: str) -> dict[TopicPartition, str]:
    """Return the folders of partitions with segments in a data folder."""
    found = {}
    for name in sorted(os.listdir(folder)):
        where, path = partition_of(name), os.path.join(folder, name)
        if where is not None and os.path.isdir(path) and bases(path):
            found[where] = path
    return found


def bases(folder: str) -> list[int]:
    """Return the base offsets of the segments in a partition's folder, in order."""
    return offsets_in(os.listdir(folder), LOG)


def aborted_in(folders: Iterable[str]) -> dict[int, list[AbortedTransaction]]:
    """Return the aborted transactions in `.txnindex` files, by producer, ordered by their ends."""
    found = {
        aborted
        for folder in folders
        for name in os.listdir(folder)
        if offset_in(name, ABORTED_INDEX) is not None
        for aborted in AbortedIndex(OsFiles(), os.path.join(folder, name))
    }
    by_producer: dict[int, list[AbortedTransaction]] = {}
    for aborted in sorted(found, key=lambda row: row.last_offset):
        by_producer.setdefault(aborted.producer_id, []).append(aborted)
    return by_producer


def split(segment: SegmentFile, limit: int) -> list[SegmentSlice]:
    """Split the file at batch boundaries into pieces of about `limit` bytes.

    Positions come from the offset index, else from the batch headers. Where neither continues, the
    rest stays one piece, and its reader reports the damage.
    """
    starts = [0]
    if segment.size > limit:
        for position in _places(segment):
            if position - starts[-1] >= limit:
                starts.append(position)
    ends = [*starts[1:], segment.size]
    return [SegmentSlice(segment, start, end) for start, end in zip(starts, ends, strict=True)]


def _segments_at(path: str, named: TopicPartition | None) -> Iterator[SegmentFile]:
    if os.path.isfile(path):
        yield _segment(path, named)
    elif not os.path.isdir(path):
        raise KafkaError(E.LOG_DIR_NOT_FOUND, f"{path} does not exist")
    elif manifest.is_archive(path):
        yield from _archived(path)
    else:
        folders = [path] if bases(path) else partition_folders(path).values()
        for folder in folders:
            for base in bases(folder):
                yield _segment(os.path.join(folder, f"{base:020d}{LOG}"), named)


def _segment(path: str, named: TopicPartition | None) -> SegmentFile:
    base = offset_in(os.path.basename(path), LOG)
    if base is None:
        raise KafkaError(
            E.INVALID_REQUEST,
            f"{path}: the name of a segment is its base offset, such as 00000000000000000000.log",
        )
    where = partition_of(os.path.basename(os.path.dirname(os.path.abspath(path)))) or named
    if where is None:
        raise KafkaError(
            E.INVALID_REQUEST,
            f"{path}: its folder is not named TOPIC-PARTITION; give the options topic and partition",
        )
    return SegmentFile(path, where.topic, where.partition, base, os.path.getsize(path))


def _archived(folder: str) -> Iterator[SegmentFile]:
    for entry in manifest.load(folder).entries.values():
        path = os.path.join(folder, entry.file)
        if not os.path.isfile(path):
            raise KafkaError(
                E.CORRUPT_MESSAGE, f"{path} is in the manifest but missing: restore the file"
            )
        yield SegmentFile(
            path,
            entry.topic,
            entry.partition,
            entry.base_offset,
            os.path.getsize(path),
            last_timestamp=entry.last_timestamp,
        )


def _bounded(segments: list[SegmentFile]) -> Iterator[SegmentFile]:
    """Yield each segment with the base offset of the next file in its folder."""
    for segment, after in zip(segments, [*segments[1:], None], strict=True):
        if after is not None and after.folder == segment.folder:
            yield segment._replace(next_offset=after.base_offset)
        else:
            yield segment


def _places(segment: SegmentFile) -> Iterator[int]:
    """Yield growing positions of batches, from the index if there is one."""
    with open(segment.path, "rb", buffering=0) as file:
        places = list(_indexed(segment))
        if places:
            for relative, position in places:
                header = _header_at(file.fileno(), position, segment)
                if header is None or header.last_offset - segment.base_offset != relative:
                    return
                yield position
            return
        position = 0
        while (header := _header_at(file.fileno(), position, segment)) is not None:
            yield position
            position += header.size


def _indexed(segment: SegmentFile) -> Iterator[tuple[int, int]]:
    path = segment.path.removesuffix(LOG) + INDEX
    if os.path.exists(path):
        yield from OffsetIndex.ENTRY.iter_unpack(OffsetIndex(OsFiles(), path).entries)


def _header_at(fd: int, position: int, segment: SegmentFile) -> BatchHeader | None:
    """Return the header at a position, if it is plausible for this segment."""
    head = os.pread(fd, HEADER_SIZE, position)
    if len(head) < HEADER_SIZE:
        return None
    header = read_header(head)
    fits = (
        header.magic == MAGIC
        and HEADER_SIZE <= header.size <= segment.size - position
        and 0 <= header.base_offset - segment.base_offset <= MAX_RELATIVE_OFFSET
    )
    return header if fits else None
