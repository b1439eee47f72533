"""Bugs on demand: a checker that never fails proves nothing, so it must find each of these.

Each is a mistake that a broker of this kind has made somewhere. `planted` puts one into the code
under test for as long as the context lasts.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from headwater.controller.journal import Journal
from headwater.log.flushing import FlushWork
from headwater.log.partition_log import PartitionLog
from headwater.log.producers import ProducerStates
from headwater.log.segment import Segment
from headwater.replication.replica import Replica
from headwater.replication.treatment import Treatment

Planting = Callable[[], AbstractContextManager[None]]


@contextmanager
def _reply_before_write() -> Iterator[None]:
    """Producers hear of success when the batch is staged; the write may never come."""
    stage = Replica._stage

    def eager(self: Replica, batch: Any, header: Any, pending: Any, acks: int, now_ms: int) -> None:
        stage(self, batch, header, pending, acks, now_ms)
        pending.complete()

    with patch.object(Replica, "_stage", eager):
        yield


@contextmanager
def _reply_before_sync() -> Iterator[None]:
    """flush.messages=1 is taken for a wish."""
    translate = Treatment.of.__func__  # type: ignore[attr-defined]

    def careless(cls: type[Treatment], *args: Any) -> Treatment:
        treatment: Treatment = translate(cls, *args)
        return replace(treatment, sync_acks=False)

    with patch.object(Treatment, "of", classmethod(careless)):
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
    """Recovery believes whatever has the right length."""
    with patch("headwater.log.walking.crc32c", lambda _: _Anything()):
        yield


@contextmanager
def _producers_forgotten() -> Iterator[None]:
    """A restart forgets who wrote what, so that a retry is written twice."""

    def forget(log: PartitionLog, *_: Any) -> int:
        log.producers = ProducerStates()
        return 0

    with (
        patch("headwater.log.recovery.replay_producers", forget),
        patch.object(PartitionLog, "absorb", lambda *_: None),
    ):
        yield


@contextmanager
def _journal_not_synced() -> Iterator[None]:
    """Topics are announced before the store's journal is on the disk."""
    with patch.object(Journal, "_sync", lambda _: None):
        yield


@contextmanager
def _folder_not_synced() -> Iterator[None]:
    """The bytes of a new segment are on the disk, its name is not (KAFKA-16541 and kin)."""

    def run(self: FlushWork) -> None:
        with patch.object(type(self._files), "sync_dir", lambda *_: None):
            flush(self)

    flush = FlushWork.run
    with patch.object(FlushWork, "run", run):
        yield


@contextmanager
def _short_write_believed() -> Iterator[None]:
    """The count of a write is not looked at (KAFKA-4576)."""

    def append(self: Segment, buffers: Any, batches: Any, total: int, interval: int) -> None:
        self._files.pwritev(self._descriptors.of(self.path), buffers, self.size)
        self.take(batches, interval)

    with patch.object(Segment, "append", append):
        yield


BUGS: dict[str, Planting] = {
    "reply-before-write": _reply_before_write,
    "reply-before-sync": _reply_before_sync,
    "torn-tail-served": _torn_tail_served,
    "producers-forgotten": _producers_forgotten,
    "journal-not-synced": _journal_not_synced,
    "folder-not-synced": _folder_not_synced,
    "short-write-believed": _short_write_believed,
}


def planted(name: str) -> AbstractContextManager[None]:
    """The bug of that name, for as long as the context lasts."""
    return BUGS[name]()
