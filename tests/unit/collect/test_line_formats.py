"""Lines become records."""

import pytest

from headwater.collect.events import EventRules, RefusedEvent
from headwater.collect.line_formats import JsonLineFormat, PlainLineFormat
from headwater.collect.line_reader import LogLine


def test_a_json_line_is_an_event_with_its_key() -> None:
    shape = JsonLineFormat(EventRules())
    assert shape.record(LogLine(b'{"user_id": 7}')) == (b"7", b'{"user_id":7}')


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (LogLine(b"nonsense"), "is not JSON"),
        (LogLine(b"\xff"), "is not UTF-8 at byte 0"),
        (LogLine(b'{"user_id":7', is_cut=True), "is longer than 12 bytes"),
    ],
)
def test_a_json_line_that_is_none_is_refused(line: LogLine, reason: str) -> None:
    with pytest.raises(RefusedEvent, match=reason):
        JsonLineFormat(EventRules()).record(line)


def test_a_plain_line_stays_as_it_is() -> None:
    text = b"\xff any bytes user=anna ok"
    assert PlainLineFormat(None, key_required=False).record(LogLine(text)) == (None, text)
    assert PlainLineFormat(r"user=(\w+)", key_required=True).record(LogLine(text)) == (
        b"anna",
        text,
    )
    assert PlainLineFormat(r"user=\w+", key_required=True).record(LogLine(text)) == (
        b"user=anna",
        text,
    )


def test_a_plain_line_without_its_key_is_refused_or_has_none() -> None:
    assert PlainLineFormat("id=(.)", key_required=False).record(LogLine(b"x")) == (None, b"x")
    with pytest.raises(RefusedEvent, match="has no key"):
        PlainLineFormat("id=(.)", key_required=True).record(LogLine(b"x"))
    with pytest.raises(RefusedEvent, match="is longer than 1 bytes"):
        PlainLineFormat(None, key_required=False).record(LogLine(b"x", is_cut=True))
