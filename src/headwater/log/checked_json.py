"""Small JSON files with a checksum as their last member, which other readers ignore.

Kafka's clean-shutdown marker is one of them: its reader skips members that it does not know.
"""

import json
from collections.abc import Mapping
from typing import Any

from headwater.records.checksum import crc32c

_MEMBER = b', "crc32c": "'


def dump_checked(fields: Mapping[str, object]) -> bytes:
    """Return the object with its checksum."""
    text = json.dumps(fields).encode()[:-1]
    return text + _end(text)


def load_checked(content: bytes) -> dict[str, Any]:
    """Return the object; ValueError if it is damaged. Kafka and older versions write no checksum."""
    text, member, _ = content.rpartition(_MEMBER)
    if member and content != text + _end(text):
        raise ValueError("the checksum does not match")
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - a damaged file, not a wrong call
    return found


def _end(text: bytes) -> bytes:
    return _MEMBER + b'%08x"}' % crc32c(text)
