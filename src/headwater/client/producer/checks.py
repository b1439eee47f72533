"""Refuses records that cannot be sent, with errors that say what to pass instead. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.client.errors import RecordTooLargeError
from headwater.client.producer.interceptors import ProducerRecord

_LAST_TIMESTAMP = (1 << 63) - 1


def checked_record(record: ProducerRecord) -> ProducerRecord:
    """Return `record` if its topic, partition, headers and timestamp are valid."""
    topic, value, key, partition, headers, timestamp = record
    checked_topic(topic)
    if partition is not None and not _is_int(partition):
        raise TypeError(f"partition is {partition!r}: give a number, or None to let the key decide")
    if timestamp is not None:
        checked_timestamp(timestamp)
    if headers or not isinstance(headers, tuple):
        headers = _checked_headers(headers)
    return ProducerRecord(topic, value, key, partition, headers, timestamp)


def checked_topic(topic: Any) -> str:
    """Return `topic` if it is text."""
    if not isinstance(topic, str):
        raise TypeError(f"topic is {topic!r}: give its name as str")
    return topic


def checked_timestamp(timestamp: int) -> int:
    """Return `timestamp` if it is valid."""
    if not _is_int(timestamp):
        raise TypeError(f"timestamp is {timestamp!r}: give milliseconds since 1970 as int")
    if not 0 <= timestamp <= _LAST_TIMESTAMP:
        raise ValueError(f"timestamp is {timestamp}: give milliseconds since 1970, not negative")
    return timestamp


def too_large(size: int, name: str, limit: int) -> RecordTooLargeError:
    """Return the error for a record that is larger than a request or the buffer."""
    return RecordTooLargeError(
        f"a record of {size} bytes is larger than {name} ({limit}): raise it, and "
        f"max.message.bytes of the topic, or send less in one record"
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked_headers(headers: Any) -> Sequence[tuple[str, bytes | None]]:
    if headers is None:
        return ()
    if isinstance(headers, Mapping):
        raise TypeError("headers is a dict: give pairs, as in headers=list(d.items())")
    try:
        pairs = [(name, content) for name, content in headers]
    except (TypeError, ValueError):
        raise TypeError(
            f"headers is {headers!r}: give pairs of a name and bytes, as in [('trace', b'7')]"
        ) from None
    return [(_header_name(name), _header_value(name, content)) for name, content in pairs]


def _header_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the header name {name!r} is {type(name).__name__}: give it as str")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the header name {name!r} is not valid Unicode") from None
    return name


def _header_value(name: Any, content: Any) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, (bytearray, memoryview)):
        return bytes(content)
    raise TypeError(
        f"the value of header {name!r} is {type(content).__name__}, not bytes: encode it first"
    )
