"""Java's properties format, the form of Kafka's server.properties."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from headwater.config.keys import ConfigError

_NAME_END = re.compile(r"(?<!\\)(?:\\\\)*(?P<cut>\s*[=:]\s*|\s+)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Assignment(NamedTuple):
    """A value and its origin, for error messages."""

    value: str
    origin: str


def parse_properties(text: str, origin: str) -> dict[str, Assignment]:
    """Parse a properties text; the last assignment of a name wins, as in Java."""
    found: dict[str, Assignment] = {}
    for number, line in _logical_lines(text):
        end = _NAME_END.search(line)
        if end is None:
            name, value = line, ""
        else:
            name, value = line[: end.start("cut")], line[end.end() :]
        found[_unescape(name)] = Assignment(_unescape(value), f"{origin}:{number}")
    return found


def read_properties(path: str) -> dict[str, Assignment]:
    """Parse a file; ConfigError if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read(), path)
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"cannot read the config file {path}: {reason}") from problem


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines with their first line number; a backslash at the end joins the next line."""
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        first = first or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending, first = "", 0
    if pending:
        yield first, pending


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _unescaped(match.group(1)), text)


def _unescaped(body: str) -> str:
    if len(body) == 5:
        return chr(int(body[1:], 16))
    return _CONTROL.get(body, body)
