"""A pass of compaction over a log, from its job to the swap, without a worker process."""

from types import SimpleNamespace
from typing import cast

from headwater.log.compaction.dirtiness import measure
from headwater.log.compaction.passes import CleaningPass
from headwater.log.compaction.segment_times import SegmentTimes
from headwater.log.partition_log import PartitionLog
from headwater.model import Uuid
from headwater.replication.cleaning import CleaningLimits, ReplicaCleaning
from headwater.replication.replica import Replica
from simulator.images.storage import Storage

LIMITS = CleaningLimits(map_bytes=1 << 12, load_factor=0.9, piece_bytes=1 << 16)


def clean(storage: Storage, log: PartitionLog, high_watermark: int, secret: Uuid) -> None:
    """Clean what is dirty; OSError leaves the log as it is."""
    now_ms = storage.clock.wall_ms()
    stable = log.last_stable_offset(high_watermark)
    times = SegmentTimes()
    while (read := times.to_read(log)) is not None:
        times.note(log, read())
    found = measure(log, stable, now_ms, times)
    if not found.dirty_bytes:
        return
    replica = SimpleNamespace(
        log=log,
        partition=SimpleNamespace(high_watermark=high_watermark),
        following=SimpleNamespace(cutting=False),
        flushes=SimpleNamespace(flushing=False),
    )
    cleaning = ReplicaCleaning(cast("Replica", replica))
    try:
        cleaner = CleaningPass(storage.files, cleaning.job(found, LIMITS, secret, now_ms)())
        for group in cleaner.run():
            cleaning.swap(group, _raise_failure)
        cleaning.sync()
        cleaning.cleaned_to(cleaner.cleaned_to)
    finally:
        cleaning.end()
        if not storage.files.dead:
            cleaning.remove_leftovers()


def _raise_failure(_: bool, failure: OSError | None) -> None:
    if failure is not None:
        raise failure
