"""Removes files that only expired versions of a table name.

Replacements and compactions leave old files for readers that still use them. The writer removes
them after the retention time, a few times per hour at most.
"""

import logging
import os
from contextlib import suppress
from typing import Final

from headwater.pipelines.tables.table import Table
from headwater.seams.clock import SystemClock

log = logging.getLogger(__name__)

RETENTION_HOURS: Final = 7 * 24
"""For tables that grow: streams over them may lag this long."""
REPLACED_HOURS: Final = 1
"""For tables that are replaced whole: no stream can follow them."""
_EVERY_MS: Final = 600_000
_MARKER: Final = os.path.join("_headwater", "expired")
"""Its modification time says when old versions were last removed."""


def expire_when_due(table: Table, hours: int) -> int:
    """Expire versions older than `hours`, unless that was done recently; 0 keeps everything.

    A failure is only a warning: the rows are in the table.
    """
    marker = os.path.join(os.path.abspath(table.target.place), _MARKER)
    if not hours or SystemClock().wall_ms() - _modified_ms(marker) < _EVERY_MS:
        return 0
    os.makedirs(os.path.dirname(marker), exist_ok=True)
    with open(marker, "w", encoding="utf-8"):
        os.utime(marker)
    try:
        removed = table.expire(hours)
    except Exception as problem:  # noqa: BLE001 - the rows are in the table
        log.warning("%s: old versions could not be removed: %s", table.target, problem)
        return 0
    if removed:
        log.info("%s: %d files of versions older than %d h removed", table.target, removed, hours)
    return removed


def _modified_ms(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0


def remove_old(folder: str, kept: set[str], hours: int, *, suffix: str = "") -> int:
    """Remove files below a folder that are older than `hours` and not in `kept`; return how many.

    The time of the last move counts, which is later than that of the last write.
    """
    cutoff = SystemClock().wall_ms() - hours * 3_600_000
    removed = 0
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if path in kept or not name.endswith(suffix):
                continue
            with suppress(FileNotFoundError):  # another writer removes old files too
                if os.stat(path).st_ctime_ns // 1_000_000 <= cutoff:
                    os.remove(path)
                    removed += 1
    return removed
