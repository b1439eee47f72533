"""Lines become records."""

import pytest

from headwater.collect.events import EventRules, RefusedEvent
from headwater.collect.lines import JsonLines, PlainLines
from headwater.collect.reading import Line


def test_a_json_line_is_an_event_with_its_key() -> None:
    shape = JsonLines(EventRules())
    assert shape.record(Line(b'{"user_id": 7}')) == (b"7", b'{"user_id":7}')


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (Line(b"nonsense"), "is no JSON"),
        (Line(b"\xff"), "is not UTF-8 at byte 0"),
        (Line(b'{"user_id":7', is_cut=True), "is longer than 12 bytes"),
    ],
)
def test_a_json_line_that_is_none_is_refused(line: Line, reason: str) -> None:
    with pytest.raises(RefusedEvent, match=reason):
        JsonLines(EventRules()).record(line)


def test_a_plain_line_stays_as_it_is() -> None:
    text = b"\xff any bytes user=anna ok"
    assert PlainLines(None, key_required=False).record(Line(text)) == (None, text)
    assert PlainLines(r"user=(\w+)", key_required=True).record(Line(text)) == (b"anna", text)
    assert PlainLines(r"user=\w+", key_required=True).record(Line(text)) == (b"user=anna", text)


def test_a_plain_line_without_its_key_is_refused_or_has_none() -> None:
    assert PlainLines("id=(.)", key_required=False).record(Line(b"x")) == (None, b"x")
    with pytest.raises(RefusedEvent, match="has no key"):
        PlainLines("id=(.)", key_required=True).record(Line(b"x"))
    with pytest.raises(RefusedEvent, match="is longer than 1 bytes"):
        PlainLines(None, key_required=False).record(Line(b"x", is_cut=True))
