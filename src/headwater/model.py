"""The nouns that every room shares: partitions and ids.

Nothing here knows the wire, the disk or the clock.
"""

import base64
import binascii
import re
from typing import NamedTuple, TypeAlias

Uuid: TypeAlias = bytes
"""A Kafka uuid as its 16 raw bytes: hashable, and free to slice from a request."""

ZERO_UUID: Uuid = bytes(16)
NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""The leader of a partition whose topic is being deleted; as a leader epoch it overrides any other."""
NO_EPOCH = -1
NO_GENERATION = -1
NO_OFFSET = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
EARLIEST = -2
LATEST = -1
"""Instead of a timestamp or an offset: where a log begins, and where it ends."""
READ_COMMITTED = 1
"""The isolation level of consumers that skip aborted transactions."""

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
TRANSACTION_VERSION = 2
"""The protocol of transactions that brokers finalize: since 2, each end bumps the epoch (KIP-890)."""

MAX_TOPIC_NAME = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_text(value: Uuid) -> str:
    """The 22-character URL-safe form in which Kafka prints its ids."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_parse(text: str) -> Uuid:
    """Read what `uuid_text` wrote; ValueError for anything else."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except binascii.Error as broken:
        raise ValueError(f"not a uuid: {text!r}") from broken
    if len(raw) != 16 or len(text) != 22:
        raise ValueError(f"not a uuid: {text!r}")
    return raw


def topic_name_problem(name: str) -> str | None:
    """Why `name` cannot be a topic, or None. A legal name is always one safe path segment."""
    if not name:
        return "the topic name is empty"
    if name in {".", ".."}:
        return f"the topic name cannot be {name!r}"
    if len(name) > MAX_TOPIC_NAME:
        return f"the topic name is {len(name)} characters long; {MAX_TOPIC_NAME} is the most"
    if not _TOPIC_NAME.match(name):
        return (
            f"the topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
        )
    return None


def java_string_hash(text: str) -> int:
    """Java's String.hashCode as a signed 32-bit integer: it decides the coordinator of a group."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def coordinator_partition(key: str, partitions: int) -> int:
    """The partition of an internal topic that coordinates `key` (abs of MIN_VALUE counts as 0)."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
