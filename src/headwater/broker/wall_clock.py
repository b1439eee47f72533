"""The wall clock for deletion by age; it ignores a sudden jump ahead for a while.

A wall clock set years ahead by mistake would make every record, every producer and every committed
offset look expired. Real time advances with the monotonic clock. If the wall clock runs ahead of it by
more than an hour, deletions use real time until the clock is corrected or an hour has passed.

A process that starts has no time of its own to compare with. A broker of a cluster does not start
with a clock that is more than an hour from the metadata store's, and compares them again whenever it
registers. A broker without a cluster compares the wall clock with the time at which it last ran.
"""

import logging
from datetime import UTC, datetime

from headwater.log.checked_json import dump_checked, load_checked
from headwater.seams.clock import Clock
from headwater.seams.files import Files, read_file, replace_file

log = logging.getLogger("headwater.server")

JUMP_MS = 3_600_000
"""How far the wall clock may run ahead of real time between two checks."""
DEFER_MS = 3_600_000
"""How long a jump ahead is ignored."""
REMEMBER_MS = 300_000
"""How often a broker without a cluster notes the time."""
FILE_NAME = "last-time"


def clock_problem(wall_ms: int, store_ms: int) -> str | None:
    """Say why a broker with this wall clock must not join the store's cluster; None if it may."""
    ahead_s = (wall_ms - store_ms) // 1000
    if abs(wall_ms - store_ms) <= JUMP_MS:
        return None
    far = (
        f"{ahead_s} s ahead of the metadata store's ({_utc(store_ms)}): records would be deleted "
        "too early"
        if ahead_s > 0
        else f"{-ahead_s} s behind the metadata store's ({_utc(store_ms)}): records of clients "
        "would be refused as too far in the future"
    )
    return (
        f"this machine's clock ({_utc(wall_ms)}) is {far}; correct the wrong one of the two "
        "clocks, then start this broker again"
    )


def _utc(now_ms: int) -> str:
    return f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


class WallClockWatch:
    """Compares the wall clock with the monotonic one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._monotonic_ms = clock.monotonic_ms()
        self._jumped_at_ms: int | None = None
        self._expected = False
        """Whether the jump has a harmless explanation."""

    def compare_with_store(self, now_ms: int) -> None:
        """Compare the wall clock with that of the metadata store."""
        behind_ms = now_ms - self._clock.wall_ms()
        if behind_ms > JUMP_MS:
            log.warning(
                "the wall clock is %d s behind the metadata store's: records of clients are refused "
                "as too far in the future; check the clock of this machine",
                behind_ms // 1000,
            )
        ahead_ms = self._defer_if_ahead_of(now_ms)
        if ahead_ms:
            log.warning(
                "the wall clock is %d s ahead of the metadata store's: deletion by age is deferred "
                "for %d s; check the clock of this machine",
                ahead_ms // 1000,
                DEFER_MS // 1000,
            )

    def compare_with_last_run(self, ended_ms: int) -> None:
        """Compare the wall clock with the time at which this broker last ran."""
        ahead_ms = self._defer_if_ahead_of(ended_ms)
        if ahead_ms:
            self._expected = True
            log.info(
                "this broker last ran %d s ago: deletion by age is deferred for %d s, in case the "
                "clock is wrong",
                ahead_ms // 1000,
                DEFER_MS // 1000,
            )

    def _defer_if_ahead_of(self, known_ms: int) -> int:
        ahead_ms = self._clock.wall_ms() - known_ms
        if ahead_ms <= JUMP_MS or self._jumped_at_ms is not None:
            return 0
        self._wall_ms, self._monotonic_ms = known_ms, self._clock.monotonic_ms()
        self._jumped_at_ms = self._monotonic_ms
        return ahead_ms

    def believed_ms(self) -> int:
        """Return the time for expiring records, producers and offsets, in milliseconds since 1970."""
        wall_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        expected_ms = self._wall_ms + monotonic_ms - self._monotonic_ms
        ahead_ms = wall_ms - expected_ms
        if ahead_ms > JUMP_MS:
            if self._jumped_at_ms is None:
                self._jumped_at_ms, self._expected = monotonic_ms, False
                log.warning(
                    "the wall clock jumped ahead by %d s: deletion by age is deferred for %d s; "
                    "check the clock of this machine",
                    ahead_ms // 1000,
                    DEFER_MS // 1000,
                )
            if monotonic_ms - self._jumped_at_ms < DEFER_MS:
                return expected_ms
            if not self._expected:
                log.warning(
                    "the wall clock is still %d s ahead: deletion by age uses it now",
                    ahead_ms // 1000,
                )
        elif self._jumped_at_ms is not None:
            log.warning("the wall clock is correct again: deletion by age continues")
        self._jumped_at_ms = None
        self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
        return wall_ms


class BelievedClock:
    """A clock with the wall time for deletions by age."""

    def __init__(self, clock: Clock, watch: WallClockWatch) -> None:
        self.monotonic_ms = clock.monotonic_ms
        self.monotonic_us = clock.monotonic_us
        self.wall_ms = watch.believed_ms


class LastTime:
    """A file with the time at which a broker without a cluster last ran."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._path = f"{folder}/{FILE_NAME}"
        self._noted_ms: int | None = None

    def read_ms(self) -> int | None:
        """Return the time; None if the file is missing or damaged."""
        try:
            content = read_file(self._files, self._path)
            if content.strip().isdigit():
                return int(content)  # earlier versions wrote no checksum
            return int(load_checked(content)["wall_ms"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def is_due(self, now_ms: int) -> bool:
        """Whether to note the time now."""
        return self._noted_ms is None or abs(now_ms - self._noted_ms) >= REMEMBER_MS

    def note(self, now_ms: int) -> None:
        """Write the time; safe on a file thread."""
        replace_file(self._files, self._path, dump_checked({"wall_ms": now_ms}))
        self._noted_ms = now_ms
