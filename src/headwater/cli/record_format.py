"""Prints a record by a template with kcat's letters: '%t [%p] at %o: %k %s\\n'."""

import os
import re
from collections.abc import Callable

from headwater.client.consumer.record import ConsumerRecord

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_PART = re.compile(r"%(.?)|\\(.)", re.DOTALL)


class RecordFormatError(ValueError):
    """The template has an unknown letter, or none."""


def _length(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


_LETTERS: dict[str, Callable[[ConsumerRecord], bytes]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "T": lambda record: b"%d" % record.timestamp,
    "h": _headers,
    "K": lambda record: _length(record.key),
    "S": lambda record: _length(record.value),
    "%": lambda record: b"%",
}


def compile_template(text: str) -> Callable[[ConsumerRecord], bytes]:
    """Return a function that formats a record by the template."""
    parts: list[Callable[[ConsumerRecord], bytes]] = []
    end = 0
    for found in _PART.finditer(text):
        parts.append(_constant(text[end : found.start()]))
        parts.append(_letter(found[1]) if found[1] is not None else _constant(_escape(found[2])))
        end = found.end()
    parts.append(_constant(text[end:]))
    if "%" not in text:
        raise RecordFormatError("it is neither a format nor a template with a %")
    return lambda record: b"".join(part(record) for part in parts)


def _letter(letter: str) -> Callable[[ConsumerRecord], bytes]:
    if letter not in _LETTERS:
        raise RecordFormatError(
            f"there is no %{letter}; the letters are {' '.join('%' + one for one in _LETTERS)}"
        )
    return _LETTERS[letter]


def _escape(letter: str) -> str:
    return _ESCAPES.get(letter, f"\\{letter}")


def _constant(text: str) -> Callable[[ConsumerRecord], bytes]:
    data = os.fsencode(text)
    return lambda record: data
