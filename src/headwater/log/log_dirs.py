"""The folders of `log.dirs`: their owner, their partitions, and what is flushed.

A folder belongs to one node of one cluster (`meta.properties`) and to one process at a time
(`.lock`). If one fails, only that one goes offline. Every path is built from a checked topic name
below one of the folders; nothing else is ever touched.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from headwater.errors import E, KafkaError
from headwater.log import checkpoints, folders
from headwater.log.descriptors import Descriptors
from headwater.log.epochs import EpochCache
from headwater.log.future_logs import FutureLogs, is_marked, remove_mark, take_over
from headwater.log.loading import FULL, LastKnown, LogLoader, Recovered
from headwater.log.log_dir import (
    META,
    LogDir,
    LogDirError,
    how_to_find,
    missing_text,
    sync_renames,
    warn_of_shared_disks,
)
from headwater.log.log_dir_checkpoints import Checkpoint, mark_clean, write_last
from headwater.log.log_segments import LogSegments
from headwater.log.partition_log import PartitionLog
from headwater.log.producers import ProducerStates
from headwater.log.retirement import Retirement
from headwater.log.run_notes import UNKNOWN, RunNotes
from headwater.log.settings import LogSettings
from headwater.model import ZERO_UUID, TopicPartition, Uuid, uuid_text
from headwater.seams.files import Files, RunAll, run_in_turn
from headwater.seams.randomness import Randomness

log = logging.getLogger(__name__)

SettingsOf = Callable[[str], LogSettings]
"""The settings of a topic by its name."""


@dataclass(slots=True)
class BrokerIdentity:
    """The broker that owns the log dirs."""

    node_id: int
    cluster_id: str
    boot_id: str = ""


@dataclass(slots=True, eq=False)
class _Loaded:
    """A log that was found in one of the log dirs."""

    log: PartitionLog
    log_dir: LogDir
    high_watermark: int
    # Whether a checksum confirms its topic id.
    verified: bool


class LogDirs:
    """Every partition log of a broker, by partition."""

    def __init__(
        self,
        files: Files,
        randomness: Randomness,
        paths: Iterable[str],
        identity: BrokerIdentity,
        descriptor_limit: int = 4096,
    ) -> None:
        self._files = files
        self._randomness = randomness
        self._descriptors = Descriptors(files, descriptor_limit)
        self.identity = identity
        self.dirs = [LogDir(files, path) for path in paths]
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.recovered: dict[TopicPartition, Recovered] = {}
        # High watermarks of the last checkpoint: where a replica begins after a restart.
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        # Their names stay taken until their renames are synced.
        self.retiring: dict[TopicPartition, Retirement] = {}
        # Directory ids of earlier starts that are missing now, with their paths.
        self.missing: dict[str, str] = {}
        # Logs whose topic id has no valid checksum: written by Kafka, or damaged.
        self.unverified: set[TopicPartition] = set()
        # All logs of each partition found in several folders; `logs` has the first.
        self._rivals: dict[TopicPartition, list[_Loaded]] = {}
        # Copies that will replace logs, and the chosen dirs of logs that do not exist yet.
        self.futures = FutureLogs(files, randomness)
        self.preferred: dict[TopicPartition, LogDir] = {}
        self.run_notes = RunNotes(files, self.dirs, identity.boot_id)

    def open(self, known: Mapping[str, str] | None = None) -> None:
        """Lock and check each folder; raise LogDirError if one belongs to another node or cluster.

        A folder that cannot be read or written goes offline; LogDirError if none is left.
        `known` has the directory ids of earlier starts with their paths. If one of them is
        missing, an empty folder may be a mount point without its disk and goes offline too.
        """
        for log_dir in self.dirs:
            self._try(log_dir, log_dir.open)
        offline = {log_dir.path for log_dir in self.dirs if log_dir.offline}
        self.missing = {at: path for at, path in (known or {}).items() if path not in offline}
        for log_dir in self.dirs:
            self.missing.pop(log_dir.directory_id, None)
            self._restore_identity(log_dir)
        for directory_id, path in self.missing.items():
            log.error("a disk may not be mounted: %s", how_to_find(directory_id, path))
        for log_dir in filter(lambda log_dir: log_dir.is_new, self.dirs):
            if self.missing:
                log_dir.fail(f"it has no {META}, and {missing_text(self.missing)}")
            else:
                directory_id = uuid_text(self._randomness.uuid())
                self._try(log_dir, partial(log_dir.mark, directory_id=directory_id))
        self._refuse_if_all_are_offline()
        warn_of_shared_disks(self._files, self.dirs)

    def _restore_identity(self, log_dir: LogDir) -> None:
        """Rewrite a lost meta.properties, if the other files identify the missing folder."""
        ids = [at for at, path in self.missing.items() if path == log_dir.path]
        if ids and log_dir.is_new and log_dir.has_data:
            log.warning("%s is missing and is written again", log_dir.join(META))
            self._try(log_dir, partial(log_dir.mark, directory_id=ids[0]))
            del self.missing[ids[0]]

    def _try(self, log_dir: LogDir, step: Callable[[int, str], None]) -> None:
        try:
            step(self.identity.node_id, self.identity.cluster_id)
        except OSError as error:
            log_dir.fail(str(error))

    @property
    def directory_ids(self) -> dict[str, str]:
        """Return the ids of the usable folders with their paths."""
        usable = [row for row in self.dirs if row.directory_id and not row.offline]
        return {row.directory_id: row.path for row in usable}

    def refuse_to_replace(self) -> None:
        """Raise if a log without a folder may be in a folder that is offline or missing."""
        offline = [log_dir.path for log_dir in self.dirs if log_dir.offline]
        if offline or self.missing:
            text = f"log dir {', '.join(offline)} is offline" if offline else ""
            why = "; ".join(filter(None, (text, missing_text(self.missing))))
            raise KafkaError(E.KAFKA_STORAGE_ERROR, f"its log may be on another disk: {why}")

    def load(self, settings_of: SettingsOf, now_ms: int) -> None:
        """Load every partition of every folder, with recovery after a crash."""
        for log_dir in self.dirs:
            if not log_dir.offline:
                try:
                    self._load_dir(log_dir, settings_of, now_ms)
                except OSError as error:
                    self._give_up(log_dir, error)
        self._refuse_if_all_are_offline()
        self._finish_moves()

    def _finish_moves(self) -> None:
        """Finish moves between log dirs that a crash interrupted in their last steps."""
        for partition, rivals in list(self._rivals.items()):
            moved = [rival for rival in rivals if is_marked(self._files, rival.log.directory)]
            ids = {rival.log.topic_id for rival in rivals}
            if len(moved) != 1 or len(ids - {ZERO_UUID}) > 1:  # a power cut may take an id
                continue
            del self._rivals[partition]
            self._forget(partition)
            self._serve(moved[0])
            for rival in rivals:
                if rival is not moved[0]:
                    former = self._end_deleted(rival.log, rival.log_dir)
                    former.rename()
                    self._finish_removal(former.path)
        complete = not self.missing and not any(log_dir.offline for log_dir in self.dirs)
        for future in list(self.futures):
            partition = future.log.topic_partition
            if partition not in self.logs and complete:
                if is_marked(self._files, future.log.directory):
                    self.futures.promote(partition, self._descriptors)
                    self._adopt(future.log, future.log_dir)
                else:
                    self._finish_removal(self.futures.discard(partition))
        # A copy that got its old name back without its mark would be removed.
        sync_renames(self.dirs, self._give_up)
        for partition_log in (*self.logs.values(), *(future.log for future in self.futures)):
            if partition_log.topic_partition not in self._rivals:
                remove_mark(self._files, partition_log.directory)

    def _end_deleted(self, former: PartitionLog, log_dir: LogDir) -> Retirement:
        name = folders.deleted_name(former.topic_partition, self._randomness.uuid())
        return self._end(former, log_dir, name)

    def _give_up(self, log_dir: LogDir, error: OSError) -> None:
        """Take an unreadable folder offline and drop what was loaded from it."""
        for partition in self.fail(log_dir, str(error)):
            del self.logs[partition], self._dir_of[partition]

    def _refuse_if_all_are_offline(self) -> None:
        if all(log_dir.offline for log_dir in self.dirs):
            reasons = "; ".join(f"{log_dir.path}: {log_dir.offline}" for log_dir in self.dirs)
            remedies = map(how_to_find, self.missing, self.missing.values())
            raise LogDirError("; ".join([f"none of log.dirs can be used: {reasons}", *remedies]))

    def create(
        self, partition: TopicPartition, topic_id: Uuid, settings: LogSettings, now_ms: int
    ) -> PartitionLog:
        """Create an empty log in the folder with the fewest partitions; its name must be free."""
        usable = [log_dir for log_dir in self.dirs if not log_dir.offline]
        if not usable:
            raise KafkaError(E.KAFKA_STORAGE_ERROR, "every log dir is offline")
        log_dir = min(usable, key=lambda log_dir: log_dir.partitions)
        wanted = self.preferred.get(partition, log_dir)
        log_dir = self.preferred[partition] = log_dir if wanted.offline else wanted
        name = folders.name_of(partition)
        directory = log_dir.join(name)
        state = log_dir.begin_log(name, partition, topic_id)
        segments = self._segments(directory, partition, settings)
        segments.add(0, 0, now_ms)
        del self.preferred[partition]  # after a failure, the next attempt uses the same folder
        epochs = EpochCache(self._files, directory)
        partition_log = PartitionLog(topic_id, segments, epochs, ProducerStates(), state)
        self._adopt(partition_log, log_dir)
        return partition_log

    def dir_of(self, partition: TopicPartition) -> LogDir:
        return self._dir_of[partition]

    def replace_by_future(self, partition: TopicPartition) -> tuple[PartitionLog, Retirement]:
        """Replace the log by its marked copy, which has the same batches; nothing may be staged.

        Return the copy and the former log, which may be removed once the rename is synced.
        """
        future = self.futures.promote(partition, self._descriptors)
        former, former_dir = self._forget(partition)
        take_over(future.log, former)
        self._adopt(future.log, future.log_dir)
        self.retiring[partition] = self._end_deleted(former, former_dir)
        return future.log, self.retiring[partition]

    def delete(self, partition: TopicPartition) -> Retirement:
        """Drop a log; a file thread renames its folder, then `remove` unlinks it."""
        return self._retire(partition, folders.deleted_name(partition, self._randomness.uuid()))

    def set_aside(self, partition: TopicPartition) -> Retirement:
        """Drop a log whose topic id the cluster does not know; its folder is kept."""
        return self._retire(partition, folders.stray_name(partition, self._randomness.uuid()))

    def name_freed(self, partition: TopicPartition, retirement: Retirement) -> None:
        """Allow a new log of this name: the rename of the old folder is synced."""
        if self.retiring.get(partition) is retirement:
            del self.retiring[partition]

    def choose(self, partition: TopicPartition, topic_id: Uuid) -> None:
        """If several folders have the partition, keep this topic's log and set the others aside.

        A dir that was missing at a start comes back with logs that were created again elsewhere. If
        the ids do not decide, no log is served: each of them may have acknowledged records.
        """
        rivals = self._rivals.get(partition)
        if rivals is None:
            return
        ours = [rival for rival in rivals if rival.log.topic_id == topic_id]
        certain = all(rival.verified and rival.log.topic_id != ZERO_UUID for rival in rivals)
        if len(ours) > 1 or not certain:
            paths = " and ".join(rival.log.directory for rival in rivals)
            raise KafkaError(
                E.KAFKA_STORAGE_ERROR,
                f"its log is in {paths}: keep the one with the records that are wanted, move the "
                "other out of the log dir, then restart the broker",
            )
        for rival in [rival for rival in rivals if rival not in ours]:
            self._set_rival_aside(rival)
            rivals.remove(rival)
        del self._rivals[partition]
        self._forget(partition)
        for rival in ours:
            self._serve(rival)

    def name(self, partition: TopicPartition, topic_id: Uuid) -> None:
        """Write the topic id of a log that has lost it."""
        partition_log = self.logs[partition]
        folders.write_topic_id(self._files, partition_log.directory, topic_id)
        partition_log.topic_id = topic_id

    def remove(self, path: str) -> None:
        """Unlink a folder renamed by `delete`, with its content. Safe on any thread."""
        holders = [log_dir for log_dir in self.dirs if log_dir.holds(path)]
        if not folders.is_deleted(path.rpartition("/")[2]) or not holders:
            raise ValueError(f"{path} is not the folder of a deleted partition")
        holders[0].sync_renames()
        for name in self._files.listdir(path):
            self._files.unlink(f"{path}/{name}")
        self._files.rmdir(path)

    @property
    def kept_since(self) -> int:
        """The first broker epoch since which no log has lost anything; -1 if one may have."""
        complete = not self.missing and not any(log_dir.offline for log_dir in self.dirs)
        return (self.run_notes.epochs if complete else UNKNOWN).kept_since

    def registered(self, broker_epoch: int) -> Callable[[], None]:
        """Return a callable that notes the epoch of this broker, for a file thread."""
        return self.run_notes.registered(broker_epoch, self.kept_since)

    def free_descriptors(self) -> int:
        """Close half of the open files, to free descriptors, and return how many."""
        return self._descriptors.close_half()

    def fail(self, log_dir: LogDir, reason: str) -> list[TopicPartition]:
        """Take a folder offline until the next start, and return its partitions."""
        log.error("log dir %s is offline: %s", log_dir.path, reason)
        log_dir.fail(reason)
        self.run_notes.forget()
        lost = [partition for partition, owner in self._dir_of.items() if owner is log_dir]
        for partition in lost:
            self.logs[partition].fail(reason)
        for future in self.futures:
            if future.log_dir is log_dir:
                future.log.fail(reason)
        return lost

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """Return a callable that writes the checkpoint files, for a file thread."""
        return self.next_checkpoint(high_watermarks.get).collect_all()

    def next_checkpoint(self, mark_of: Callable[[TopicPartition], int | None]) -> Checkpoint:
        """Return the checkpoint of all logs, to be collected in steps."""
        logs = [(self._dir_of[at], partition_log) for at, partition_log in self.logs.items()]
        logs += [(future.log_dir, future.log) for future in self.futures]
        return Checkpoint(self._files, logs, mark_of, [one for one in self.dirs if not one.offline])

    def close(
        self, high_watermarks: Mapping[TopicPartition, int], run_all: RunAll = run_in_turn
    ) -> None:
        """Stop cleanly: flush all logs, write the checkpoints and the marker, unlock.

        `run_all` may run the flushes in parallel: the disk then commits many at once.
        """
        run_all([partial(self._close_log, partition) for partition in self.logs])
        unwritten = write_last(self.checkpoint(high_watermarks))
        for partition_log in self.logs.values():
            partition_log.remove_stale_note()
        for log_dir in self.dirs:
            if log_dir not in unwritten and not log_dir.offline and not log_dir.stopped_full:
                logs = [row for at, row in self.logs.items() if self._dir_of[at] is log_dir]
                mark_clean(log_dir, logs, self.run_notes.current)
            log_dir.unlock()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for descriptors in (self._descriptors, *(future.descriptors for future in self.futures)):
            descriptors.close()

    def _close_log(self, partition: TopicPartition) -> None:
        try:
            self.logs[partition].close()
        except OSError as error:
            if error.errno in FULL:
                self._dir_of[partition].stopped_full = True
            else:
                self.fail(self._dir_of[partition], str(error))

    def abandon(self) -> None:
        """Release all descriptors and locks as a crash would, without writing anything."""
        for log_dir in self.dirs:
            log_dir.unlock()
        self._close_descriptors()

    def _load_dir(self, log_dir: LogDir, settings_of: SettingsOf, now_ms: int) -> None:
        log_dir.sync_renames()
        rows = log_dir.rows = checkpoints.read_folder(self._files, log_dir.path)
        marker = log_dir.consume_clean_marker()
        self.run_notes.loaded(log_dir, marker)
        rebooted = self.run_notes.has_rebooted(log_dir)
        for name in log_dir.folders():
            if folders.is_deleted(name):
                self._finish_removal(log_dir.join(name))
                continue
            future_of = folders.partition_of_future(name)
            partition = future_of or folders.partition_of(name)
            if partition is None:
                continue
            topic_id, verified = folders.read_checked_topic_id(self._files, log_dir.join(name))
            row = rows.of(partition, topic_id)
            known = LastKnown(
                recovery_point=row.recovery_point,
                certain=row.topic_id == topic_id,
                log_start=row.log_start,
                cleaned_end=row.cleaned_end,
                note=row.note,
                clean=marker is not None and (name in marker.ends or not marker.complete),
                clean_end=marker.ends.get(name) if marker else None,
                pages_certain=rebooted,
            )
            if verified and not known.clean and not rebooted and known.recovery_point == 0:
                folders.write_topic_id_again(self._files, log_dir.join(name))
            if future_of is not None:
                settings = settings_of(partition.topic)
                self.futures.load(log_dir, name, partition, topic_id, known, settings, now_ms)
                continue
            if marker is not None and not known.clean:
                self.run_notes.found_unclean()
            partition_log = self._load_log(
                log_dir, partition, topic_id, known, settings_of(partition.topic), now_ms
            )
            self._take(_Loaded(partition_log, log_dir, row.high_watermark, verified))

    def _take(self, found: _Loaded) -> None:
        """Serve a loaded log, unless another folder has the same partition."""
        partition = found.log.topic_partition
        if partition not in self.logs:
            self._serve(found)
            return
        first = _Loaded(
            self.logs[partition],
            self._dir_of[partition],
            self.high_watermarks[partition],
            partition not in self.unverified,
        )
        self._rivals.setdefault(partition, [first]).append(found)

    def _serve(self, found: _Loaded) -> None:
        partition = found.log.topic_partition
        self.high_watermarks[partition] = found.high_watermark
        if found.verified:
            self.unverified.discard(partition)
        else:
            self.unverified.add(partition)
        self._adopt(found.log, found.log_dir)

    def _finish_removal(self, path: str) -> None:
        try:
            self.remove(path)
        except OSError as failure:
            log.warning("%s, of a deleted topic, cannot be removed: %s", path, failure)

    def _load_log(
        self,
        log_dir: LogDir,
        partition: TopicPartition,
        topic_id: Uuid,
        known: LastKnown,
        settings: LogSettings,
        now_ms: int,
    ) -> PartitionLog:
        directory = log_dir.join(folders.name_of(partition))
        segments = self._segments(directory, partition, settings)
        loader = LogLoader(segments, self._descriptors, topic_id, known, now_ms)
        partition_log = loader.load()
        if loader.report != Recovered():
            self.recovered[partition] = loader.report
        return partition_log

    def _segments(
        self, directory: str, partition: TopicPartition, settings: LogSettings
    ) -> LogSegments:
        segments = LogSegments(self._files, self._descriptors, directory, partition, settings)
        segments.draw = self._randomness.below
        return segments

    def _adopt(self, partition_log: PartitionLog, log_dir: LogDir) -> None:
        self.logs[partition_log.topic_partition] = partition_log
        self._dir_of[partition_log.topic_partition] = log_dir
        log_dir.partitions += 1

    def _retire(self, partition: TopicPartition, new_name: str) -> Retirement:
        for rival in self._rivals.pop(partition, []):
            if rival.log is not self.logs[partition]:
                self._set_rival_aside(rival)
        partition_log, log_dir = self._forget(partition)
        self.retiring[partition] = self._end(partition_log, log_dir, new_name)
        return self.retiring[partition]

    def _forget(self, partition: TopicPartition) -> tuple[PartitionLog, LogDir]:
        log_dir = self._dir_of.pop(partition)
        self.high_watermarks.pop(partition, None)
        log_dir.partitions -= 1
        return self.logs.pop(partition), log_dir

    def _set_rival_aside(self, rival: _Loaded) -> None:
        partition = rival.log.topic_partition
        name = folders.stray_name(partition, self._randomness.uuid())
        aside = self._end(rival.log, rival.log_dir, name)
        aside.free_name()
        text = "%s is in two log dirs: another topic's is set aside as %s"
        log.warning(text, partition, aside.path)

    def _end(self, partition_log: PartitionLog, log_dir: LogDir, new_name: str) -> Retirement:
        """End a log's reads and writes; its folder is renamed later."""
        descriptors = partition_log.segments.pop_files()
        partition_log.drop_staged()
        partition_log.fail("the partition was deleted")
        partition_log.presence.end()
        earlier = self.retiring.get(partition_log.topic_partition)
        return Retirement(self._files, log_dir, partition_log, new_name, descriptors, earlier)
