"""From a line of a file to a record: its key and its value. Pure."""

import re
from typing import NamedTuple, Protocol

from headwater.collect.events import EventReader, EventRules, EventTooLarge, RefusedEvent
from headwater.collect.line_reader import LogLine


class LineRecord(NamedTuple):
    """What goes into the topic."""

    key: bytes | None
    value: bytes


class LineFormat(Protocol):
    """What the lines of a file are."""

    def record(self, line: LogLine) -> LineRecord:
        """The record of a line; RefusedEvent if it has none."""


class JsonLineFormat:
    """An event on each line."""

    def __init__(self, rules: EventRules) -> None:
        self._reader = EventReader(rules)

    def record(self, line: LogLine) -> LineRecord:
        """The event with its key, made compact."""
        _refuse_cut(line)
        try:
            text = line.text.decode()
        except UnicodeDecodeError as wrong:
            raise RefusedEvent(f"is not UTF-8 at byte {wrong.start}") from None
        return LineRecord(*self._reader.event(text))


class PlainLineFormat:
    """Any text, bytes as they are; a pattern finds the key."""

    def __init__(self, key: str | None, *, key_required: bool) -> None:
        self._key = None if key is None else re.compile(key.encode())
        self._key_required = key_required

    def record(self, line: LogLine) -> LineRecord:
        """The line as it is; its key is the pattern's first group, or all that it matches."""
        _refuse_cut(line)
        if self._key is None:
            return LineRecord(None, line.text)
        match = self._key.search(line.text)
        key = match[1 if self._key.groups else 0] if match else None
        if key is None and self._key_required:
            raise RefusedEvent("has no key")
        return LineRecord(key, line.text)


def _refuse_cut(line: LogLine) -> None:
    if line.is_cut:
        raise EventTooLarge(f"is longer than {len(line.text)} bytes")
