"""Turns a line of a file into a record's key and value. Pure."""

import re
from typing import NamedTuple, Protocol

from headwater.collect.events import EventReader, EventRules, EventTooLarge, RefusedEvent
from headwater.collect.line_reader import LogLine


class LineRecord(NamedTuple):
    """A record for the topic."""

    key: bytes | None
    value: bytes


class LineFormat(Protocol):
    """How the lines of a file become records."""

    def record(self, line: LogLine) -> LineRecord:
        """Return the record of a line; raise RefusedEvent if the line is invalid."""


class JsonLineFormat:
    """One JSON event per line."""

    def __init__(self, rules: EventRules) -> None:
        self._reader = EventReader(rules)

    def record(self, line: LogLine) -> LineRecord:
        """Return the event as compact JSON, with its key."""
        _refuse_cut(line)
        try:
            text = line.text.decode()
        except UnicodeDecodeError as wrong:
            raise RefusedEvent(f"is not UTF-8 at byte {wrong.start}") from None
        return LineRecord(*self._reader.event(text))


class PlainLineFormat:
    """Any bytes, unchanged; a pattern finds the key."""

    def __init__(self, key: str | None, *, key_required: bool) -> None:
        self._key = None if key is None else re.compile(key.encode())
        self._key_required = key_required

    def record(self, line: LogLine) -> LineRecord:
        """Return the line; its key is the pattern's first group, or the whole match."""
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
