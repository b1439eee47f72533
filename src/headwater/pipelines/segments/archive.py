"""Copies the sealed segments of a broker's folder into an archive, beside the running broker.

Runs are repeatable: the archive of a partition has an end offset, and a run adds only what is beyond
it. A file in the archive never changes. Each new file is copied under a temporary name, synced, read
back batch by batch, and then renamed; the manifest, written last, makes it part of the archive. The
next run repairs whatever an interrupted run leaves.

A segment that the broker deletes or compacts during the copy stays readable through the open file. Only
records below the high watermark are copied, since another leader may truncate the rest.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from mmap import ACCESS_READ, mmap
from typing import Final

from headwater.errors import E, KafkaError
from headwater.log.folders import name_of, read_topic_id, write_topic_id
from headwater.log.segment import ABORTED_INDEX, LOG
from headwater.model import ZERO_UUID, TopicPartition, uuid_text
from headwater.pipelines.segments import manifest
from headwater.pipelines.segments.archive_sources import LOCK, ArchiveSource, held
from headwater.pipelines.segments.files import bases, partition_folders
from headwater.pipelines.segments.manifest import ArchivedSegment
from headwater.pipelines.segments.segment_scan import (
    DamagedRange,
    SoundBatch,
    codec_name,
    scan_segment,
)
from headwater.records.checksum import crc32c
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.files import OsFiles

_TEMPORARY: Final = ".tmp"


@dataclass(slots=True)
class ArchiveSummary:
    """The result of a run."""

    added: list[ArchivedSegment] = field(default_factory=list)
    present: int = 0
    """Segments that the archive already had."""
    waiting: int = 0
    """Sealed segments that are not yet below the high watermark."""
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Why segments were not archived."""


def archive(
    sources: Sequence[ArchiveSource],
    to: str,
    *,
    include_active: bool = False,
    link: bool = False,
    clock: Clock | None = None,
) -> ArchiveSummary:
    """Add segments of the sources that the archive in `to` lacks.

    Args:
        sources: The partitions' folders; `archive_sources` finds them.
        to: The archive's folder; created if missing.
        include_active: Copy the active segments too. Only for a stopped broker.
        link: Hard-link the broker's files if both are on one file system. Saves space, but disk
            damage then affects both.
        clock: For the time in the manifest.
    """
    _require_outside_of_data_folders(to, sources)
    with _locked(to):
        run = _Run(os.path.abspath(to), include_active, link, clock or SystemClock())
        for source in sources:
            run.partition(source)
    return run.outcome


def verify(folder: str) -> list[str]:
    """Return differences from the manifest: missing, truncated, changed or unlisted files."""
    known = manifest.load(folder).entries
    if not known:
        raise KafkaError(E.LOG_DIR_NOT_FOUND, f"{folder} is not an archive: it has no manifest")
    problems = [problem for entry in known.values() for problem in _differences(folder, entry)]
    for path in partition_folders(folder).values():
        for base in bases(path):
            file = f"{os.path.basename(path)}/{base:020d}{LOG}"
            if file not in known:
                problems.append(f"{file}: not in the manifest; the next archive run repairs this")
    return problems


class _Run:
    def __init__(self, to: str, include_active: bool, link: bool, clock: Clock) -> None:
        self.outcome = ArchiveSummary()
        self._to = to
        self._include_active = include_active
        self._link = link
        self._clock = clock
        self._manifest = manifest.load(to)

    def partition(self, source: ArchiveSource) -> None:
        """Archive the segments of one partition's folder."""
        topic_id = read_topic_id(OsFiles(), source.folder)
        known = self._manifest.of(*source.partition)
        text = "" if topic_id == ZERO_UUID else uuid_text(topic_id)
        if known and text and known[-1].topic_id not in ("", text):
            self.outcome.problems.append(
                f"{source.partition}: the archive holds another topic of this name "
                f"(id {known[-1].topic_id}, not {text}); archive this one to another folder"
            )
            return
        folder = os.path.join(self._to, name_of(source.partition))
        OsFiles().mkdir(folder)
        _remove_leftovers(folder)
        if topic_id != ZERO_UUID:
            write_topic_id(OsFiles(), folder, topic_id)
        before = len(self.outcome.added)
        try:
            for entry in self._new_segments(source, folder, known, text):
                self.outcome.added.append(entry)
                self._manifest.add([entry])
        finally:
            if len(self.outcome.added) > before:
                OsFiles().sync_dir(folder)
                manifest.save(self._to, self._manifest, self._now())

    def _new_segments(
        self, source: ArchiveSource, folder: str, known: list[ArchivedSegment], topic_id: str
    ) -> Iterator[ArchivedSegment]:
        """Copy segment by segment, oldest first; stop at the first that cannot be copied."""
        end = known[-1].next_offset if known else -1
        found = bases(source.folder) if os.path.isdir(source.folder) else []
        for base, after in zip(found, [*found[1:], None], strict=True):
            if after is None and not self._include_active:
                return
            if after is not None and after <= end:
                self.outcome.present += 1
                continue
            if after is not None and after > source.limit:
                self.outcome.waiting += 1
                continue
            if 0 <= end < base:
                self.outcome.notes.append(
                    f"{source.partition}: offsets {end} to {base - 1} were deleted before they "
                    "could be archived"
                )
            try:
                entry = self._copy_segment(source, folder, base, after, end, topic_id)
            except (FileNotFoundError, _Damaged) as problem:
                self._stopped(source, base, after, problem)
                return
            if entry is not None:
                yield entry
                end = entry.next_offset

    def _stopped(
        self, source: ArchiveSource, base: int, after: int | None, problem: Exception
    ) -> None:
        """Report why a segment was not archived: it is damaged, or it changed during the copy.

        Compaction may have merged it with adjacent segments. The next run lists the folder again and
        must find the end of the archive before them.
        """
        now = bases(source.folder) if os.path.isdir(source.folder) else []
        if base in now and (after is None or after in now):
            self.outcome.problems.append(str(problem))
        else:
            self.outcome.notes.append(
                f"{source.partition}: segment {base} was deleted or replaced during the copy; the "
                "next run continues from there"
            )

    def _copy_segment(
        self,
        source: ArchiveSource,
        folder: str,
        base: int,
        after: int | None,
        end: int,
        topic_id: str,
    ) -> ArchivedSegment | None:
        """Copy one segment; None if nothing in it is beyond `end`."""
        origin = os.path.join(source.folder, f"{base:020d}{LOG}")
        temporary = os.path.join(folder, f"{base:020d}{LOG}{_TEMPORARY}")
        if after is None or base < end:
            start = _copy_batches(origin, base, temporary, max(end, base), torn=after is None)
            if start is None:
                os.unlink(temporary)
                return None
        else:
            start = base
            _copy_file(origin, temporary, link=self._link)
        _sync(temporary)
        entry = self._described(temporary, source.partition, start, after, topic_id)
        _copy_aborted(origin, os.path.join(self._to, entry.file))
        os.replace(temporary, os.path.join(self._to, entry.file))
        return entry

    def _described(
        self, path: str, partition: TopicPartition, base: int, after: int | None, topic_id: str
    ) -> ArchivedSegment:
        """Read a whole copy; raises `_Damaged` if a batch is not valid."""
        first, last, records, end = -1, -1, 0, base
        codecs: Counter[str] = Counter()
        for found in scan_segment(path, base):
            if isinstance(found, DamagedRange):
                raise _Damaged(f"{partition}: segment {base} is damaged at {_where(found)}")
            header = found.header
            if header.base_offset < end or (after is not None and header.next_offset > after):
                raise _Damaged(
                    f"{partition}: segment {base} has offset {header.base_offset} where {end} "
                    f"must be, at position {found.position}"
                )
            if first < 0 and header.count:
                first = header.max_timestamp if header.log_append_time else header.base_timestamp
            last, end = max(last, header.max_timestamp), header.next_offset
            records += header.count
            codecs[codec_name(header)] += 1
        return ArchivedSegment(
            topic=partition.topic,
            topic_id=topic_id,
            partition=partition.partition,
            base_offset=base,
            next_offset=end if after is None else after,
            size=os.path.getsize(path),
            crc32c=checksum(path),
            batches=codecs.total(),
            records=records,
            first_timestamp=first,
            last_timestamp=last,
            codecs=dict(sorted(codecs.items())),
            archived_at=self._now(),
        )

    def _now(self) -> str:
        moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


class _Damaged(Exception):
    """A segment of the source is damaged."""


def checksum(path: str) -> str:
    """Return the CRC-32C of a whole file in the manifest's form."""
    with open(path, "rb") as file:
        if not os.path.getsize(path):
            return f"{crc32c(b''):08x}"
        with mmap(file.fileno(), 0, access=ACCESS_READ) as pages, memoryview(pages) as view:
            return f"{crc32c(view):08x}"


def _differences(folder: str, entry: ArchivedSegment) -> Iterator[str]:
    path = os.path.join(folder, entry.file)
    if not os.path.exists(path):
        yield f"{entry.file}: missing"
    elif os.path.getsize(path) != entry.size:
        yield f"{entry.file}: {os.path.getsize(path)} bytes instead of {entry.size}"
    elif checksum(path) != entry.crc32c:
        damage = next(
            (f for f in scan_segment(path, entry.base_offset) if isinstance(f, DamagedRange)), None
        )
        where = f", damaged at {_where(damage)}" if damage else ""
        yield f"{entry.file}: changed since it was archived{where}"


def _where(damage: DamagedRange) -> str:
    return f"position {damage.position}: {damage.reason}"


def _copy_file(origin: str, temporary: str, *, link: bool) -> None:
    if link:
        with suppress(OSError):  # another file system, or one without hard links: copy
            os.link(origin, temporary)
            return
    shutil.copyfile(origin, temporary)


def _copy_batches(origin: str, base: int, temporary: str, start: int, *, torn: bool) -> int | None:
    """Copy the batches from offset `start`; return the offset of the first, if there is one.

    For a segment whose beginning is archived, and for a segment that may end in an incomplete
    batch: with `torn`, that batch is left out.
    """
    first: int | None = None
    damage: DamagedRange | None = None
    with open(temporary, "wb") as copy:
        for found in scan_segment(origin, base):
            if isinstance(found, DamagedRange):
                damage = found
            if damage is not None and not (torn and found is damage):
                raise _Damaged(f"{origin}: damaged at {_where(damage)}")
            if isinstance(found, SoundBatch) and found.header.base_offset >= start:
                first = found.header.base_offset if first is None else first
                copy.write(found.data)
    return first


def _copy_aborted(origin: str, target: str) -> None:
    """Copy the segment's aborted transactions, which readers of committed records need."""
    source, copy = (path.removesuffix(LOG) + ABORTED_INDEX for path in (origin, target))
    if os.path.exists(source):
        shutil.copyfile(source, copy + _TEMPORARY)
        _sync(copy + _TEMPORARY)
        os.replace(copy + _TEMPORARY, copy)


def _sync(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _remove_leftovers(folder: str) -> None:
    for name in os.listdir(folder):
        if name.endswith(_TEMPORARY):
            os.unlink(os.path.join(folder, name))


def _require_outside_of_data_folders(to: str, sources: Sequence[ArchiveSource]) -> None:
    """Refuse an archive among a broker's own folders: it sets aside folders that no topic has."""
    target = os.path.realpath(to)
    for log_dir in {os.path.dirname(os.path.realpath(source.folder)) for source in sources}:
        if os.path.commonpath([target, log_dir]) == log_dir:
            raise KafkaError(
                E.INVALID_REQUEST,
                f"{to} is in the data folder {log_dir} of the broker: archive to a folder outside "
                "of it",
            )


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    OsFiles().mkdir(folder)
    with held(
        os.path.join(folder, LOCK), f"another run is archiving to {folder}: wait until it ends"
    ):
        yield
