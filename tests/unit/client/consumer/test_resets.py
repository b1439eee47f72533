"""Where offsets can be reset to, and how people write a duration."""

import datetime as dt

import pytest

from headwater.client.admin.offset_resets import ResetTo, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("P7D", 7 * 86400),
        ("PT1H", 3600),
        ("PT90M", 5400),
        ("PT1.5S", 1.5),
        ("P1DT2H3M4S", 86400 + 7200 + 180 + 4),
        ("PT0S", 0),
    ],
)
def test_durations_are_read(text, seconds) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1", "1H", "PT1H30", "P1W", "-P1D", "PT1S1M", "P1DT"]
)
def test_what_is_no_duration_says_how_to_write_one(text) -> None:
    with pytest.raises(ValueError, match="PnDTnHnMnS"):
        parse_duration(text)


def test_times_without_a_zone_are_utc() -> None:
    noon = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    same = [noon, "2026-01-31T12:00:00", "2026-01-31T13:00:00+01:00", int(noon.timestamp() * 1000)]
    assert len({ResetTo.datetime(one) for one in same}) == 1


def test_a_shift_without_a_place_to_shift_from_cannot_be_told() -> None:
    assert ResetTo.shift_by(1).offset_in(None, 0, 10, None) is None
    assert ResetTo.current().offset_in(None, 0, 10, None) == 10
    assert ResetTo.duration(dt.timedelta(hours=1)).timestamp(7_200_000) == 3_600_000
