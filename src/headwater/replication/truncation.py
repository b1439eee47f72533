"""Truncates a follower's log to where it agrees with its leader's.

Never below the high watermark: every replica that may be elected cleanly has all committed records. A
leader that lacks them is a defect or the result of an unclean election, and only the latter may lose
records. Before the log truncates flushed data it writes a durable note (`log/truncation_note`), so that
after a crash rewritten data is not mistaken for flushed data.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headwater.errors import E, KafkaError

if TYPE_CHECKING:
    from headwater.replication.replica import Replica


def truncate(replica: "Replica", offset: int, *, unclean: bool) -> None:
    """Drop everything from `offset` on, including the whole batch that contains it."""
    mark = replica.partition.high_watermark
    if offset < mark and not unclean:
        raise KafkaError(
            E.KAFKA_STORAGE_ERROR,
            f"{replica.topic_partition} would be truncated to {offset}, below its high watermark "
            f"{mark}: its leader lacks committed records",
        )
    _cut(replica, partial(replica.log.truncate_to, offset))
    replica.partition.truncated(replica.log.log_end_offset)


def truncate_fully(replica: "Replica", start: int) -> None:
    """Drop everything and continue at `start`."""
    _cut(replica, partial(replica.log.truncate_fully, start))
    replica.partition.restarted(start)


def _cut(replica: "Replica", cut: Callable[[], None]) -> None:
    try:
        cut()
    except OSError as failure:
        replica.host.storage_failed(replica, failure, flushing=False)
        why = f"truncating {replica.topic_partition} failed: {failure.strerror}"
        raise KafkaError(E.KAFKA_STORAGE_ERROR, why) from failure
    flushes = replica.flushes
    flushes.completed_end = min(flushes.completed_end, replica.log.log_end_offset)
    replica.wake_watchers()
