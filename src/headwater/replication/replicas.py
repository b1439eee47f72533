"""All replicas of this broker: looks them up, applies their roles, settings and deletion."""

import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias, cast

from headwater.config.topic import TopicSettings
from headwater.errors import E, KafkaError
from headwater.log.folders import METADATA
from headwater.log.log_dir import LogDir
from headwater.log.log_dirs import LogDirs
from headwater.log.partition_log import PartitionLog
from headwater.log.retirement import Retirement
from headwater.model import NO_EPOCH, ZERO_UUID, TopicPartition, uuid_text
from headwater.replication.leader_and_isr import LeaderAndIsr
from headwater.replication.partition import Partition
from headwater.replication.replica import Replica
from headwater.replication.replica_host import ReplicaHost
from headwater.replication.topic_policy import TopicPolicy
from headwater.seams.tasks import Lane

log = logging.getLogger("headwater.state-change")

PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}
"""Errors that may go away by themselves; after others the disk is not tried again."""

MOST_FAILURES = 10
"""How many partitions of a log dir are tried at a time while none can be opened."""


OnStopped: TypeAlias = Callable[[Mapping[TopicPartition, OSError]], None]
"""Called with the partitions whose folders could not be renamed, and why."""

IsCurrent: TypeAlias = Callable[[], bool]
"""Returns whether a decision is still meant for this broker: not for an earlier registration of it."""


def _always() -> bool:
    return True


class _OfflinePartition(NamedTuple):
    """A partition that should be on this broker but could not be opened."""

    decided: LeaderAndIsr
    is_current: IsCurrent
    why: KafkaError
    may_come_back: bool


class Replicas:
    """The replicas of this broker."""

    def __init__(
        self,
        node_id: int,
        log_dirs: LogDirs,
        settings_of: Callable[[str], TopicSettings],
        policy_of: Callable[[str], TopicPolicy],
        exists: Callable[[str, int], bool],
        host: ReplicaHost,
        lag_limit_ms: int,
    ) -> None:
        self.node_id = node_id
        self.log_dirs = log_dirs
        self.lag_limit_ms = lag_limit_ms
        self._settings_of = settings_of
        self._policy_of = policy_of
        self._exists = exists
        self._host = host
        self._topics: dict[str, dict[int, Replica]] = {}
        self._offline: dict[TopicPartition, _OfflinePartition] = {}
        """Partitions that could not be opened, and why."""
        self._waiting: dict[TopicPartition, list[Callable[[], None]]] = {}
        """What waits for a folder to give its name free."""

    def __iter__(self) -> Iterator[Replica]:
        for partitions in self._topics.values():
            yield from partitions.values()

    # -- finding

    def get(self, topic: str, partition: int) -> Replica | None:
        """Return the replica, if this broker has one."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def of_topic(self, topic: str) -> list[Replica]:
        """Return all replicas of a topic on this broker."""
        return list(self._topics.get(topic, {}).values())

    def leader(self, topic: str, partition: int, current_leader_epoch: int = NO_EPOCH) -> Replica:
        """Return the replica if it leads; KafkaError otherwise."""
        replica = self.get(topic, partition)
        if replica is None:
            raise self.absence(topic, partition)
        replica.require_leader(current_leader_epoch)
        return replica

    def absence(self, topic: str, partition: int) -> KafkaError:
        """Return the error for a replica that `get` does not find.

        A partition that other brokers have is not unknown: its client is to look for the leader.
        """
        offline = self._offline.get(TopicPartition(topic, partition))
        if offline is not None:
            return offline.why
        elsewhere = self._exists(topic, partition)
        return KafkaError(E.NOT_LEADER_OR_FOLLOWER if elsewhere else E.UNKNOWN_TOPIC_OR_PARTITION)

    @property
    def unopened(self) -> int:
        """Return how many partitions should be served here but have no replica."""
        return sum(self.get(*at) is None for at in self._offline)

    def is_offline(self, topic: str, partition: int) -> bool:
        """Return whether the partition should be served here but could not be opened."""
        replica = self.get(topic, partition)
        if replica is None:
            return TopicPartition(topic, partition) in self._offline
        return replica.offline is not None

    # -- applying decisions of the controller

    def apply(self, decided: LeaderAndIsr, is_current: IsCurrent = _always) -> E:
        """Lead or follow as the controller says; the code for its answer.

        While the log is being truncated, or the name belongs to a folder that is being renamed, this
        waits, and the answer is that of any other delay. A decision that is not current once the wait
        ends, or when an offline partition is tried again, is dropped: the controller has sent, or is
        about to send, every partition to the registration of now.
        """
        late = partial(self._apply_late, decided, is_current)
        if decided.topic_partition in self.log_dirs.retiring:
            self._when_free(decided.topic_partition, late)
            return E.NONE
        known = self.get(*decided.topic_partition)
        if known is not None and known.following.cutting:
            known.following.when_cut(late)
            return E.NONE
        if known is not None and known.topic_id != decided.topic_id:
            self._stop(decided.topic_partition, False)  # `_identify` sets its log aside
            known = None
        if known is not None and decided.leader_epoch < known.leader_epoch:
            return E.STALE_CONTROLLER_EPOCH
        if known is not None and self._knows(known, decided):
            return E.NONE
        try:
            replica = known or self._open(decided)
            if replica is None:
                self._when_free(decided.topic_partition, late)
                return E.NONE
            if decided.leader == self.node_id:
                replica.become_leader(decided)
            else:
                replica.become_follower(decided)
        except OSError as failure:
            why = KafkaError(E.KAFKA_STORAGE_ERROR, str(failure))
            comes_back = failure.errno in PASSING
            return self._mark_offline(_OfflinePartition(decided, is_current, why, comes_back))
        except KafkaError as refused:
            return self._mark_offline(_OfflinePartition(decided, is_current, refused, False))
        offline = self._offline.pop(decided.topic_partition, None)
        if offline is not None:
            replica.mark_online(offline.why)
        return E.NONE

    def _apply_late(self, decided: LeaderAndIsr, is_current: IsCurrent) -> None:
        if is_current():
            self.apply(decided, is_current)

    def _knows(self, replica: Replica, decided: LeaderAndIsr) -> bool:
        """Whether the replica already is as decided, or as decided after that.

        A controller repeats what it decided; a leader may have changed the in-sync set since.
        """
        return (
            decided.leader_epoch == replica.leader_epoch
            and decided.partition_epoch <= replica.partition.partition_epoch
            and decided.topic_partition not in self._offline
        )

    def _mark_offline(self, offline: "_OfflinePartition") -> E:
        at = offline.decided.topic_partition
        if at not in self._offline:
            log.error("%s cannot be opened: %s", at, offline.why.message)
        self._offline[at] = offline
        replica = self.get(*at)
        if replica is not None:
            replica.mark_offline(offline.why)
        return offline.why.code

    def retry_offline(self) -> Iterator[bool]:
        """Try again to open offline partitions, such as those of a full disk; yield whether each opened.

        Of a log dir without room only some are tried: there may be thousands, and others come next time.
        """
        failures: Counter[LogDir | None] = Counter()
        for at, offline in list(self._offline.items()):
            log_dir = self.log_dirs.preferred.get(at)
            if (
                offline.may_come_back
                and offline.is_current()
                and failures[log_dir] < MOST_FAILURES
                and self._offline.get(at) is offline
            ):
                self._offline[at] = self._offline.pop(at)
                opened = self.apply(offline.decided, offline.is_current) is E.NONE
                failures[log_dir] += not opened
                yield opened

    def _open(self, decided: LeaderAndIsr) -> Replica | None:
        """Open or create the log; None if the name must be freed first."""
        settings = self._settings_of(decided.topic_partition.topic)
        policy = self._policy_of(decided.topic_partition.topic)
        self.log_dirs.choose(decided.topic_partition, decided.topic_id)
        partition_log = self.log_dirs.logs.get(decided.topic_partition)
        if partition_log is not None and partition_log.topic_id != decided.topic_id:
            partition_log = self._identify(partition_log, decided)
            if partition_log is None:
                return None
        if partition_log is None:
            if not decided.is_new:
                self.log_dirs.refuse_to_replace()
            partition_log = self.log_dirs.create(
                decided.topic_partition,
                decided.topic_id,
                policy.log_settings,
                self._host.wall_ms(),
            )
        replica = self._make(partition_log, settings, policy)
        topic, index = decided.topic_partition
        self._topics.setdefault(topic, {})[index] = replica
        return replica

    def _identify(self, found: PartitionLog, decided: LeaderAndIsr) -> PartitionLog | None:
        """Return the log if it belongs to this topic; None if another topic's log moves aside."""
        at = decided.topic_partition
        if found.topic_id == ZERO_UUID:
            self.log_dirs.name(at, decided.topic_id)
            return found
        if at in self.log_dirs.unverified:
            raise KafkaError(
                E.KAFKA_STORAGE_ERROR,
                f"{found.directory}/{METADATA} has topic id {uuid_text(found.topic_id)}, not "
                f"{uuid_text(decided.topic_id)}, and no checksum: correct topic_id if the records "
                "are this topic's, or move the folder away, then restart the broker",
            )
        log.warning("%s: the log on disk belongs to an older topic of this name; moved aside", at)
        self.log_dirs.set_aside(at)
        return None

    def _make(
        self, partition_log: PartitionLog, settings: TopicSettings, policy: TopicPolicy
    ) -> Replica:
        partition = Partition(self.node_id, self.lag_limit_ms, settings.min_insync_replicas)
        partition.log_end = partition_log.log_end_offset
        stored = self.log_dirs.high_watermarks.get(partition_log.topic_partition, 0)
        partition.high_watermark = min(
            max(stored, partition_log.log_start_offset), partition_log.log_end_offset
        )
        return Replica(partition_log, partition, policy, self._host)

    def stop(
        self, partitions: Sequence[tuple[TopicPartition, bool]], done: OnStopped = lambda _: None
    ) -> None:
        """Stop serving partitions; those marked True are deleted, too.

        `done` gets the errors by partition, once the folders of the deleted ones are renamed. Their
        files are unlinked after that.
        """
        retired = {at: found for at, delete in partitions if (found := self._stop(at, delete))}
        if not retired:
            done({})
            return

        def rename() -> dict[TopicPartition, OSError]:
            return {at: why for at, one in retired.items() if (why := _renaming_problem(one))}

        def renamed(result: object, failure: Exception | None) -> None:
            failures = cast("dict[TopicPartition, OSError]", result) if failure is None else {}
            done(failures)
            self._remove({at: one for at, one in retired.items() if at not in failures})

        self._host.off_loop(rename, renamed, Lane.FILES)

    def set_aside(self, at: TopicPartition) -> None:
        """Stop serving a partition that other brokers have now; its folder is kept under another name."""
        replica = self.get(*at)
        if replica is not None and replica.following.cutting:
            replica.following.when_cut(lambda: self.set_aside(at))
            return
        self._stop(at, False)
        if at in self.log_dirs.logs:
            stray = self.log_dirs.set_aside(at)
            log.warning(
                "%s moved to other brokers while this one was not registered: its folder is now %s",
                at,
                stray.path,
            )
            self._when_free(at, lambda: None)

    def _remove(self, retired: Mapping[TopicPartition, Retirement]) -> None:
        """Unlink what was renamed, a folder at a time."""
        for at, retirement in retired.items():
            self._host.off_loop(
                partial(self.log_dirs.remove, retirement.path),
                partial(self._removed, at, retirement),
                Lane.REMOVAL,
            )

    def _removed(
        self, at: TopicPartition, retirement: Retirement, _: object, failure: Exception | None
    ) -> None:
        if failure is None:
            self.log_dirs.name_freed(at, retirement)
        else:
            log.error(
                "%s could not be removed, the next start tries again: %s", retirement.path, failure
            )

    def _when_free(self, at: TopicPartition, call: Callable[[], None]) -> None:
        """Call back once the disk has the rename of the folder that had this name; in order."""
        waiting = self._waiting.setdefault(at, [])
        waiting.append(call)
        if len(waiting) > 1:
            return
        retirement = self.log_dirs.retiring[at]

        def freed(_: object, failure: Exception | None) -> None:
            if failure is not None:
                log.error("the folder of %s cannot be renamed: %s", at, failure)
            self.log_dirs.name_freed(at, retirement)
            for late in self._waiting.pop(at):
                late()

        self._host.off_loop(retirement.free_name, freed, Lane.FILES)

    def when_applicable(
        self, partitions: Iterable[TopicPartition], call: Callable[[], None]
    ) -> None:
        """Call back once no folder that is being renamed has the name of one of the partitions."""
        for at in partitions:
            if at in self.log_dirs.retiring:
                self._when_free(at, lambda: self.when_applicable(partitions, call))
                return
        call()

    def _stop(self, topic_partition: TopicPartition, delete: bool) -> Retirement | None:
        topic, index = topic_partition
        partitions = self._topics.get(topic, {})
        replica = partitions.get(index)
        if replica is not None and replica.following.cutting:
            replica.following.when_cut(lambda: self.stop([(topic_partition, delete)]))
            return None
        partitions.pop(index, None)
        self._offline.pop(topic_partition, None)
        if topic in self._topics and not partitions:
            del self._topics[topic]
        if replica is not None:
            replica.stop()
        if delete and topic_partition in self.log_dirs.logs:
            return self.log_dirs.delete(topic_partition)
        return None

    # -- settings

    def topic_settings_changed(self, topic: str) -> None:
        """Apply a topic's new settings to its partitions here."""
        settings = self._settings_of(topic)
        policy = self._policy_of(topic)
        for replica in self.of_topic(topic):
            replica.apply_policy(policy, settings.min_insync_replicas)

    def topics(self) -> list[str]:
        """Return the topics with a replica on this broker."""
        return list(self._topics)


def _renaming_problem(retirement: Retirement) -> OSError | None:
    try:
        retirement.rename()
    except OSError as failure:
        return failure
    return None
