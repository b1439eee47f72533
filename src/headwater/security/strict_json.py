"""JSON from strangers: one meaning only, and little work. Pure.

Python's parser takes the last of two members with one name, reads NaN, and recurses as deep as the
text says. A check that reads the first member where another program reads the last one checks nothing.
"""

import json
import re
from typing import Any

MAX_DEPTH = 16

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+["\\]?', re.DOTALL)
"""A string, with or without its end: a search for the end of one that has none would begin again
at each of its escaped quotes."""
_BRACKET = re.compile(r"[\[\]{}]")


class StrictJsonError(ValueError):
    """The text is not JSON, or not unambiguous; the message quotes nothing of it."""


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the members of a JSON object; StrictJsonError otherwise."""
    try:
        text = data.decode()
        _refuse_deep(text)
        found = json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant)
    except StrictJsonError:
        raise
    except (ValueError, RecursionError):  # a number of thousands of digits is a ValueError too
        raise StrictJsonError("is not JSON") from None
    if not isinstance(found, dict):
        raise StrictJsonError("is not a JSON object")
    return found


def _refuse_deep(text: str) -> None:
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        if bracket[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise StrictJsonError(f"is nested deeper than {MAX_DEPTH} levels")
        else:
            depth -= 1


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise StrictJsonError("has a member twice")
    return found


def _refuse_constant(_: str) -> None:
    raise StrictJsonError("has a number that JSON does not know")
