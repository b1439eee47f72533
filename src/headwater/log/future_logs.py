"""Copies of logs that will replace them, in another log dir (AlterReplicaLogDirs, KIP-113).

The folder of a copy is `topic-partition.<id>-future`, as in Kafka. When the copy is complete, it is
flushed and marked, its folder is renamed to the partition's name, and the former folder is renamed
as deleted. A crash can leave these states behind, and each has one meaning:

    a future copy beside the log           the log is served and the copy continues, marked or not
    two folders with the partition's name  the marked one is complete; the other is removed
    a marked copy alone                    only the second rename reached the disk: it is the log
    a marked folder alone                  the mark is removed

Until both renames are on the disk, nothing written to the log after them counts as flushed.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.log import folders
from headwater.log.descriptors import Descriptors
from headwater.log.epochs import EpochCache
from headwater.log.loading import LastKnown, LogLoader
from headwater.log.log_dir import LogDir
from headwater.log.log_segments import LogSegments
from headwater.log.partition_log import PartitionLog
from headwater.log.producers import ProducerStates
from headwater.log.settings import LogSettings
from headwater.log.truncation_note import write_start_note
from headwater.model import TopicPartition, Uuid
from headwater.seams.files import Files, replace_file
from headwater.seams.randomness import Randomness

log = logging.getLogger(__name__)

MARK = "moved.headwater"
"""The file that marks a complete copy: it has everything that the partition's other log has."""
FILES_OPEN = 8
"""Open files per copy: file threads write it, with their own descriptors."""
FLUSH_BYTES = 64 << 20
ANY_EPOCH = (1 << 31) - 1


@dataclass(slots=True, eq=False)
class FutureLog:
    """A copy in progress. The mover owns it: one file thread at a time, or the loop."""

    log: PartitionLog
    log_dir: LogDir
    descriptors: Descriptors
    unflushed: int = 0

    def append(self, batches: bytes, now_ms: int) -> None:
        """Append batches of the log to the copy, and flush from time to time.

        Stop before a batch that begins an epoch: the next call starts there, once it is saved.
        """
        self.log.stage_replicated(batches, ANY_EPOCH, now_ms, gaps=True)
        self.log.write_staged()
        if self.log.epochs.must_be_saved:
            self.log.epochs.save()
        self.unflushed += len(batches)
        if self.unflushed >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Flush everything. Blocks."""
        work = self.log.unflushed()
        if work is not None:
            work.run()
            self.log.mark_flushed(work)
        self.unflushed = 0

    def mark(self, files: Files, log_start: int) -> None:
        """Flush and mark the copy as complete: it may now take the partition's name. Blocks.

        The checkpoint of its log dir does not have the log's start yet.
        """
        self.flush()
        if log_start:
            write_start_note(files, self.log.directory, log_start)
            self.log.noted_start = log_start
        replace_file(files, f"{self.log.directory}/{MARK}", b"")

    def close(self) -> None:
        self.descriptors.close()


def take_over(copy: PartitionLog, former: PartitionLog) -> None:
    """Take over the state of a log with the same batches that the batches do not contain."""
    for epoch, start in zip(former.epochs.epochs, former.epochs.starts, strict=True):
        copy.epochs.assign(epoch, start)
    if copy.epochs.must_be_saved:
        copy.epochs.save()
    copy.producers.restore(former.producers, copy.log_end_offset)
    copy.advance_start(former.log_start_offset)
    copy.configure(former.settings)


def common_end(current: PartitionLog, future: PartitionLog) -> int:
    """Return the end of the part that both logs share: where they diverge, their epochs differ."""
    end = min(current.log_end_offset, future.log_end_offset)
    for epoch, start in zip(future.epochs.epochs, future.epochs.starts, strict=True):
        if start >= end:
            break
        at = max(start, current.segments.start_offset)
        if current.epochs.epoch_at(at) != epoch:
            return min(end, at)
        _, theirs = current.epochs.end_offset(epoch, current.log_end_offset)
        _, ours = future.epochs.end_offset(epoch, future.log_end_offset)
        if theirs < ours:
            return min(end, theirs)
    return end


def is_marked(files: Files, directory: str) -> bool:
    return files.exists(f"{directory}/{MARK}")


def remove_mark(files: Files, directory: str) -> None:
    """Remove the mark, if there is one. Blocks."""
    if is_marked(files, directory):
        files.unlink(f"{directory}/{MARK}")
        files.sync_dir(directory)


class FutureLogs:
    """The copies of all partitions that move between log dirs."""

    def __init__(self, files: Files, randomness: Randomness) -> None:
        self._files = files
        self._randomness = randomness
        self._by_partition: dict[TopicPartition, FutureLog] = {}

    def __iter__(self) -> Iterator[FutureLog]:
        return iter(self._by_partition.values())

    def get(self, partition: TopicPartition) -> FutureLog | None:
        return self._by_partition.get(partition)

    def create(self, current: PartitionLog, log_dir: LogDir, now_ms: int) -> FutureLog:
        """Begin an empty copy of a log in another folder."""
        remove_mark(self._files, current.directory)
        partition = current.topic_partition
        name = folders.future_name(partition, self._randomness.uuid())
        directory = log_dir.join(name)
        state = log_dir.begin_log(name, partition, current.topic_id)
        own = Descriptors(self._files, FILES_OPEN)
        segments = self._segments(directory, partition, current.settings, own)
        start = current.segments.start_offset
        segments.add(start, start, now_ms)
        epochs = EpochCache(self._files, directory)
        state.log_start_offset = state.log_end_offset = start
        copy = PartitionLog(current.topic_id, segments, epochs, ProducerStates(), state)
        return self._add(FutureLog(copy, log_dir, own))

    def load(
        self,
        log_dir: LogDir,
        name: str,
        partition: TopicPartition,
        topic_id: Uuid,
        known: LastKnown,
        settings: LogSettings,
        now_ms: int,
    ) -> None:
        """Load a copy that the broker began before a restart."""
        own = Descriptors(self._files, FILES_OPEN)
        segments = self._segments(log_dir.join(name), partition, settings, own)
        copy = LogLoader(segments, own, topic_id, known, now_ms).load()
        if partition in self._by_partition or copy.failure is not None:
            log.warning("%s, a copy of %s, cannot be continued and is removed", name, partition)
            own.close()
            self._files.rename(log_dir.join(name), self._deleted(partition, log_dir))
            log_dir.note_rename()
            return
        self._add(FutureLog(copy, log_dir, own))

    def discard(self, partition: TopicPartition) -> str:
        """Abandon a copy: rename its folder and return the path for `LogDirs.remove`."""
        future = self._by_partition.pop(partition)
        future.log.presence.end()
        path = self._deleted(partition, future.log_dir)
        future.close()
        self._files.rename(future.log.directory, path)
        future.log_dir.note_rename()
        return path

    def promote(self, partition: TopicPartition, descriptors: Descriptors) -> FutureLog:
        """Rename a marked copy to the partition's name; from then on it is the log."""
        future = self._by_partition[partition]
        directory = future.log_dir.join(folders.name_of(partition))
        for fd in future.log.segments.pop_files():
            self._files.close(fd)
        self._files.rename(future.log.directory, directory)
        future.log_dir.note_rename()
        del self._by_partition[partition]
        future.log.relocate(directory)
        future.log.segments.use_descriptors(descriptors)
        future.close()
        return future

    def _deleted(self, partition: TopicPartition, log_dir: LogDir) -> str:
        return log_dir.join(folders.deleted_name(partition, self._randomness.uuid()))

    def _add(self, future: FutureLog) -> FutureLog:
        self._by_partition[future.log.topic_partition] = future
        return future

    def _segments(
        self,
        directory: str,
        partition: TopicPartition,
        settings: LogSettings,
        descriptors: Descriptors,
    ) -> LogSegments:
        segments = LogSegments(self._files, descriptors, directory, partition, settings)
        segments.draw = self._randomness.below
        return segments
