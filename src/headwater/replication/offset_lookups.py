"""Offsets by what clients ask for: the earliest, the latest, the first of a time.

Each is found as (timestamp, offset, leader epoch).
"""

from collections.abc import Callable
from functools import partial

from headwater.log.time_lookup import Found, TimeLookup
from headwater.model import NO_TIMESTAMP
from headwater.replication.isolation import FetchIsolation
from headwater.replication.replica import Replica


def offset_for_earliest(replica: Replica) -> Found:
    start = replica.log_start_offset
    epoch = replica.log.epochs.epoch_at(start)
    return NO_TIMESTAMP, start, epoch if epoch >= 0 else replica.leader_epoch


def offset_for_latest(replica: Replica, isolation: FetchIsolation) -> Found:
    return NO_TIMESTAMP, replica.readable_end(isolation), replica.leader_epoch


def offset_for_time(
    replica: Replica, timestamp: int | None, isolation: FetchIsolation
) -> Callable[[], Found | None]:
    """Return a lookup for a file thread: the first record not older than `timestamp`.

    With None it finds the first record that has the greatest timestamp.
    """
    most_bytes = replica.policy.rules.max_uncompressed_bytes
    lookup = TimeLookup(replica.log, replica.readable_end(isolation), most_bytes)
    return lookup.newest if timestamp is None else partial(lookup.at_or_after, timestamp)
