"""Splits a request body into events, validates them and makes them compact.

Pure. An event is never decoded and re-encoded: numbers of any length, escapes and the order of
fields stay as they are; only white space between tokens is removed. What JSON readers treat
differently (duplicate fields, NaN, deep nesting) is refused here, so that no reader of the topic
has to deal with it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_DEPTH = 64
MAX_EVENTS = 10_000
_SPACE = re.compile(r"[ \t\r\n]*")
_NO_SPACE = re.compile(r'[^ \t\r\n"]+|"[^"\\]*(?:\\.[^"\\]*)*"')
"""What is kept: whole strings, and everything else but white space."""
_ANY_SPACE = re.compile(r"[ \t\r\n]")
_BROKEN = object()


class RefusedEvent(ValueError):
    """An event that is refused; others of the same request may be accepted."""

    too_large = False


class EventTooLarge(RefusedEvent):
    """An event larger than the limit."""

    too_large = True


class Malformed(ValueError):
    """A body that cannot be split into events, with the HTTP status to respond."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class Event(NamedTuple):
    """An accepted event."""

    number: int
    key: bytes | None
    value: bytes


class Refusal(NamedTuple):
    """A refused event, and the reason."""

    number: int
    reason: str
    too_large: bool = False


class ParsedBody(NamedTuple):
    """The events of a request body, accepted and refused."""

    events: list[Event]
    refusals: list[Refusal]


@dataclass(frozen=True)
class EventRules:
    """The requirements for an event."""

    key: str | None = "user_id"
    """The field that becomes the record's key; dots separate nested fields."""
    key_required: bool = True
    max_bytes: int = 65_536


class EventReader:
    """Reads and validates events by fixed rules."""

    def __init__(self, rules: EventRules) -> None:
        self._rules = rules
        self._path = rules.key.split(".") if rules.key else []
        self._problem = ""
        # Numbers stay text: a key may have 400 digits, and nothing is computed with them.
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=str,
            parse_float=str,
            parse_constant=self._constant,
        )

    def body(self, data: bytes, *, by_line: bool = False) -> ParsedBody:
        """Return the events of a request: an object, an array of objects, or an object per line.

        With `by_line` an invalid line is refused on its own; otherwise the first character and the
        first line decide which of the three the body is.
        """
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as wrong:
            raise Malformed(f"is not UTF-8 at byte {wrong.start}") from None
        start = _after_space(text, 0)
        if start == len(text):
            raise Malformed("is empty")
        if by_line:
            return self._lines(text)
        if text[start] == "[":
            return self._gathered(self._elements(text, start))
        return self._objects(text, start)

    def event(self, text: str) -> tuple[bytes | None, bytes]:
        """Return the key and the value of one event; raise RefusedEvent if it is invalid."""
        start = _after_space(text, 0)
        try:
            value, end = self._decode(text, start)
        except Malformed as wrong:
            raise RefusedEvent(str(wrong)) from None
        if _after_space(text, end) != len(text):
            raise RefusedEvent(f"has more after its object, at character {end}")
        return self._judged(text[start:end], value)

    # -- splitting

    def _objects(self, text: str, start: int) -> ParsedBody:
        first_line = text[start:].partition("\n")[0]
        try:
            value, end = self._decode(text, start)
        except Malformed:
            if self._is_object(first_line):
                return self._lines(text)
            raise
        if _after_space(text, end) == len(text):
            return self._gathered(iter([(text[start:end], value)]))
        if self._is_object(first_line):
            return self._lines(text)
        raise Malformed(f"has more after its object, at character {end}")

    def _is_object(self, line: str) -> bool:
        try:
            value, end = self._decode(line, 0)
        except Malformed:
            return False
        return isinstance(value, dict) and _after_space(line, end) == len(line)

    def _lines(self, text: str) -> ParsedBody:
        lines = [line for line in text.split("\n") if _after_space(line, 0) != len(line)]
        _check_count(len(lines))
        found = ParsedBody([], [])
        for number, line in enumerate(lines):
            try:
                found.events.append(Event(number, *self.event(line)))
            except RefusedEvent as refused:
                found.refusals.append(Refusal(number, str(refused), refused.too_large))
        return found

    def _gathered(self, pieces: Iterator[tuple[str, Any]]) -> ParsedBody:
        found = ParsedBody([], [])
        for number, (text, value) in enumerate(pieces):
            _check_count(number + 1)
            try:
                found.events.append(Event(number, *self._judged(text, value)))
            except RefusedEvent as refused:
                found.refusals.append(Refusal(number, str(refused), refused.too_large))
        return found

    def _elements(self, text: str, start: int) -> Iterator[tuple[str, Any]]:
        place = _after_space(text, start + 1)
        if text[place : place + 1] != "]":
            while True:
                value, end = self._decode(text, place)
                yield text[place:end], value
                place = _after_space(text, end)
                if text[place : place + 1] != ",":
                    break
                place = _after_space(text, place + 1)
        if text[place : place + 1] != "]":
            raise Malformed(f"is not JSON at character {place}: Expecting , or ]")
        if _after_space(text, place + 1) != len(text):
            raise Malformed(f"has more after its array, at character {place + 1}")

    # -- validating

    def _judged(self, text: str, value: Any) -> tuple[bytes | None, bytes]:
        problem = self._problem
        if problem:
            raise RefusedEvent(problem)
        if not isinstance(value, dict):
            raise RefusedEvent("is not a JSON object")
        if text.count("{") + text.count("[") > MAX_DEPTH and _too_deep(value):
            raise RefusedEvent(f"is nested more than {MAX_DEPTH} deep")
        compact = compacted(text).encode()
        if len(compact) > self._rules.max_bytes:
            raise EventTooLarge(f"has {len(compact)} bytes; the limit is {self._rules.max_bytes}")
        return self._key(value), compact

    def _key(self, value: Any) -> bytes | None:
        for name in self._path:
            value = value.get(name) if isinstance(value, dict) else None
        if not self._path or value is None:
            if self._path and self._rules.key_required:
                raise RefusedEvent(f"has no {self._rules.key}")
            return None
        if not isinstance(value, str):
            raise RefusedEvent(f"has a {self._rules.key} that is neither text nor a number")
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise RefusedEvent(f"has a {self._rules.key} that is not Unicode text") from None

    # -- decoding

    def _decode(self, text: str, start: int) -> tuple[Any, int]:
        """Return the JSON value at `start` and its end; hooks report problems in `_problem`."""
        self._problem = ""
        try:
            return self._decoder.raw_decode(text, start)
        except json.JSONDecodeError as wrong:
            raise Malformed(f"is not JSON at character {wrong.pos}: {wrong.msg}") from None
        except RecursionError:
            raise Malformed(f"is nested more than {MAX_DEPTH} deep") from None

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            self._problem = "has two fields with the same name"
        return found

    def _constant(self, name: str) -> object:
        self._problem = f"contains {name}, which is not JSON"
        return _BROKEN


def compacted(text: str) -> str:
    """Return valid JSON without white space between its tokens."""
    return "".join(_NO_SPACE.findall(text)) if _ANY_SPACE.search(text) else text


def _after_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _check_count(count: int) -> None:
    if count > MAX_EVENTS:
        raise Malformed(f"has more than {MAX_EVENTS} events", 413)


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return any(isinstance(node, dict | list) for node in level)


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []
