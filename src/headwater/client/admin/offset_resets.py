"""The positions to which a group's offsets can be reset. Pure."""

import datetime as dt
import re
from enum import Enum
from typing import NamedTuple

from headwater.model import TopicPartition

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


class ResetTarget(Enum):
    """The kinds of positions."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    SHIFT_BY = "shift-by"
    TIME = "datetime"
    DURATION = "duration"


class ResetTo(NamedTuple):
    """A kind of position with its number: an offset, a shift, or milliseconds."""

    target: ResetTarget
    number: int = 0

    @classmethod
    def earliest(cls) -> "ResetTo":
        """The first record of each partition."""
        return cls(ResetTarget.EARLIEST)

    @classmethod
    def latest(cls) -> "ResetTo":
        """The end of each partition."""
        return cls(ResetTarget.LATEST)

    @classmethod
    def current(cls) -> "ResetTo":
        """The committed offset; the end without a commit."""
        return cls(ResetTarget.CURRENT)

    @classmethod
    def offset(cls, offset: int) -> "ResetTo":
        """An offset, or the nearest one that exists."""
        return cls(ResetTarget.OFFSET, offset)

    @classmethod
    def shift_by(cls, count: int) -> "ResetTo":
        """Shift by `count` records; negative moves back."""
        return cls(ResetTarget.SHIFT_BY, count)

    @classmethod
    def datetime(cls, when: dt.datetime | str | int) -> "ResetTo":
        """The first record at or after a time: a datetime, ISO 8601, or milliseconds since 1970.

        Without a time zone it is UTC, as in Kafka's own tool.
        """
        if isinstance(when, int):
            return cls(ResetTarget.TIME, when)
        moment = _parse_time(when) if isinstance(when, str) else when
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        return cls(ResetTarget.TIME, int(moment.timestamp() * 1000))

    @classmethod
    def duration(cls, ago: dt.timedelta | str) -> "ResetTo":
        """The first record after a duration ago: a timedelta, or PnDTnHnMnS."""
        span = parse_duration(ago) if isinstance(ago, str) else ago
        return cls(ResetTarget.DURATION, int(span.total_seconds() * 1000))

    def timestamp(self, now_ms: int) -> int | None:
        """Return the timestamp to look up, if this position has one."""
        if self.target is ResetTarget.TIME:
            return max(self.number, 0)
        return max(now_ms - self.number, 0) if self.target is ResetTarget.DURATION else None

    def offset_in(
        self, committed: int | None, first: int, end: int, at_time: int | None
    ) -> int | None:
        """Return the new offset of a partition, within its ends; None if it is unknown."""
        wanted = {
            ResetTarget.EARLIEST: first,
            ResetTarget.LATEST: end,
            ResetTarget.CURRENT: end if committed is None else committed,
            ResetTarget.OFFSET: self.number,
            ResetTarget.SHIFT_BY: None if committed is None else committed + self.number,
            ResetTarget.TIME: end if at_time is None else at_time,
            ResetTarget.DURATION: end if at_time is None else at_time,
        }[self.target]
        return None if wanted is None else min(max(wanted, first), end)


class OffsetChange(NamedTuple):
    """The change of one partition's offset by a reset."""

    partition: TopicPartition
    before: int | None
    after: int | None
    """None if there is no committed offset to shift."""


def _parse_time(text: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: write ISO 8601, as 2026-01-31T12:00") from None


def parse_duration(text: str) -> dt.timedelta:
    """Parse PnDTnHnMnS, such as P7D or PT1H30M; ValueError for anything else."""
    match = _DURATION.fullmatch(text)
    parts = {name: float(number) for name, number in match.groupdict("0").items()} if match else {}
    if not match or text in {"P", "PT"} or not any(match.groupdict().values()):
        raise ValueError(f"{text!r} is not a duration: write PnDTnHnMnS, such as P7D or PT1H30M")
    return dt.timedelta(**parts)
