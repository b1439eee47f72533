"""Planted bugs: a checker that never fails proves nothing, so it must find each of these.

Each is a mistake that some broker of this kind has made. It is patched into the code under test for
one run.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

from headwater.broker.wall_clock import WallClockWatch
from headwater.controller.store.journal import Journal
from headwater.log.checkpoints import LogRow, LogRows
from headwater.log.flushing import FlushWork
from headwater.log.index_rebuild import Replayed
from headwater.log.log_dir import LogDir
from headwater.log.log_segments import LogSegments
from headwater.log.presence import Presence
from headwater.log.producers import ProducerStates
from headwater.log.segment import Segment
from headwater.model import TopicPartition, Uuid
from headwater.replication.replica import Replica
from headwater.replication.topic_policy import TopicPolicy
from simulator.faults import FaultPlan
from simulator.run import Verdict, simulate

TROUBLES = 5

Planting = Callable[[], AbstractContextManager[None]]


@contextmanager
def _reply_before_write() -> Iterator[None]:
    """Producers are acknowledged when the batch is staged, before it is written."""
    stage = Replica._stage

    def eager(self: Replica, batch: Any, header: Any, pending: Any, acks: int, now_ms: int) -> None:
        stage(self, batch, header, pending, acks, now_ms)
        pending.complete()

    with patch.object(Replica, "_stage", eager):
        yield


@contextmanager
def _reply_before_sync() -> Iterator[None]:
    """flush.messages=1 is ignored."""
    translate = TopicPolicy.of.__func__  # type: ignore[attr-defined]

    def careless(cls: type[TopicPolicy], *args: Any) -> TopicPolicy:
        policy: TopicPolicy = translate(cls, *args)
        return replace(policy, sync_acks=False)

    with patch.object(TopicPolicy, "of", classmethod(careless)):
        yield


class _Anything:
    """Equal to every checksum."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def _torn_tail_served() -> Iterator[None]:
    """Recovery accepts any bytes of the right length."""
    with patch("headwater.log.batch_scan.crc32c", lambda _: _Anything()):
        yield


@contextmanager
def _producers_forgotten() -> Iterator[None]:
    """A restart loses the producers' states, so that a retry is written twice."""

    def forget(_: LogSegments, producers: ProducerStates, *_args: Any) -> Replayed:
        producers.restore((), 0)
        return Replayed(0, 0)

    with (
        patch("headwater.log.loading.replay_producers", forget),
        patch.object(ProducerStates, "replay_batch", lambda *_: None),
    ):
        yield


@contextmanager
def _journal_not_synced() -> Iterator[None]:
    """Topics are announced before the store's journal is on the disk."""
    with patch.object(Journal, "_sync", lambda _: None):
        yield


@contextmanager
def _folder_not_synced() -> Iterator[None]:
    """The bytes of a new segment are synced, its name is not (as in KAFKA-16541)."""

    def run(self: FlushWork) -> None:
        with patch.object(type(self._files), "sync_dir", lambda *_: None):
            flush(self)

    flush = FlushWork.run
    with patch.object(FlushWork, "run", run):
        yield


@contextmanager
def _short_write_believed() -> Iterator[None]:
    """The count of a short write is ignored (KAFKA-4576)."""

    def append(self: Segment, buffers: Any, batches: Any, total: int, interval: int) -> None:
        self._files.pwritev(self._descriptors.of(self.path), buffers, self.size)
        self.index_batches(batches, interval)

    with patch.object(Segment, "append", append):
        yield


@contextmanager
def _flush_outlives_deletion() -> Iterator[None]:
    """A flush in progress does not notice that its partition was deleted."""
    with patch.object(Presence, "end", lambda _: None):
        yield


@contextmanager
def _checkpoint_of_another_topic() -> Iterator[None]:
    """A checkpoint is matched by topic name, and a new log has no note: a former topic's offsets count."""

    def of(self: LogRows, partition: TopicPartition, topic_id: Uuid) -> LogRow:
        return self._rows.get(partition, self._absent)._replace(topic_id=topic_id)

    with patch.object(LogRows, "of", of), patch.object(LogRows, "last_note", lambda *_: None):
        yield


@contextmanager
def _removal_not_synced() -> Iterator[None]:
    """A new partition takes the name of one whose removal a power failure can undo."""
    with patch.object(LogDir, "sync_renames", lambda _: None):
        yield


@contextmanager
def _descriptors_taken_for_the_disk() -> Iterator[None]:
    """A process that runs out of descriptors considers its disk broken."""
    with patch("headwater.broker.storage_health.EXHAUSTED", frozenset()):
        yield


@contextmanager
def _any_clock_believed() -> Iterator[None]:
    """The wall clock is trusted even after it jumped by years."""
    with patch.object(WallClockWatch, "believed_ms", lambda self: self._clock.wall_ms()):
        yield


class Bug(NamedTuple):
    """A bug, and the faults that reveal it soonest."""

    plant: Planting
    kinds: tuple[str, ...]
    all_synced: bool = False
    recreated: bool = False
    quick_threads: bool = False
    """Whether slow worker threads would hide it."""
    first: int = 0
    """The first seed that is tried: those before it do not find it."""


BUGS: dict[str, Bug] = {
    "reply-before-write": Bug(_reply_before_write, ("crash at an operation",), False, first=8),
    "reply-before-sync": Bug(_reply_before_sync, ("power cut",), True),
    "torn-tail-served": Bug(_torn_tail_served, ("power cut",), False),
    "producers-forgotten": Bug(_producers_forgotten, ("crash",), False),
    "journal-not-synced": Bug(_journal_not_synced, ("power cut",), False),
    "folder-not-synced": Bug(_folder_not_synced, ("power cut",), True),
    "short-write-believed": Bug(_short_write_believed, ("crash",), False),
    "flush-outlives-deletion": Bug(_flush_outlives_deletion, ("restart",), True, True, first=56),
    "checkpoint-of-another-topic": Bug(
        _checkpoint_of_another_topic,
        ("crash of a new topic",),
        recreated=True,
        quick_threads=True,
        first=6,
    ),
    "removal-not-synced": Bug(
        _removal_not_synced,
        ("power cut of a new topic",),
        recreated=True,
        quick_threads=True,
        first=249,
    ),
    "descriptors-taken-for-the-disk": Bug(_descriptors_taken_for_the_disk, ("few descriptors",)),
    "any-clock-believed": Bug(_any_clock_believed, ("far clock jump",)),
}


def simulate_buggy(seed: int, name: str) -> Verdict:
    """Run the code with a bug, under the faults that reveal it soonest."""
    bug = BUGS[name]
    drawn = FaultPlan.of(seed)
    fault_plan = replace(
        drawn,
        kinds=bug.kinds,
        troubles=TROUBLES,
        all_synced=bug.all_synced,
        short=0.1,
        recreated=bug.recreated,
        slowest_thread_ms=1 if bug.quick_threads else drawn.slowest_thread_ms,
    )
    with bug.plant():
        return simulate(seed, fault_plan=fault_plan)
