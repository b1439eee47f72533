"""An answer as plain data, without what two brokers cannot have in common.

Ids that a broker makes up become the number of their first appearance, so that "the same id as
before" is still compared. Texts for people become "text": that one is there is the protocol, what
it says is not.
"""

import re
from collections.abc import Callable
from typing import Any

from headwater.model import ZERO_UUID
from headwater.records.batch import BatchHeader, batches
from headwater.wire.schema import Struct

_MADE_UP = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

UNORDERED = {
    "ProduceResponse": ["responses"],
    "ProduceResponse.TopicProduceResponse": ["partition_responses"],
    "FetchResponse.FetchableTopicResponse": ["partitions"],
    "OffsetCommitResponse.OffsetCommitResponseTopic": ["partitions"],
    "DeleteGroupsResponse": ["results"],
    "DescribeLogDirsResponse.DescribeLogDirsTopic": ["partitions"],
    "JoinGroupResponse": ["members"],
    "CreateTopicsResponse": ["topics"],
    "DeleteTopicsResponse": ["responses"],
    "CreatePartitionsResponse": ["results"],
    "OffsetDeleteResponse.OffsetDeleteResponseTopic": ["partitions"],
    "AddPartitionsToTxnResponse": ["results_by_topic_v3_and_below"],
    "AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult": ["results_by_partition"],
    "DescribeTransactionsResponse.TopicData": ["partitions"],
    "AlterConfigsResponse": ["responses"],
    "IncrementalAlterConfigsResponse": ["responses"],
}
"""Lists that Apache Kafka takes from hash maps: any order will do."""

_GIVE_PRODUCER_IDS = (
    "InitProducerIdResponse",
    "EndTxnResponse",
    "DescribeTransactionsResponse.TransactionState",
    "ListTransactionsResponse.TransactionState",
    "WriteTxnMarkersResponse.WritableTxnMarkerResult",
)


class Plain:
    """Turns the answers of one scene into plain data; remembers the ids it has seen."""

    def __init__(self) -> None:
        self._seen: dict[object, str] = {}
        self._fields: dict[str, Callable[[Any], object]] = {
            "throttle_time_ms": lambda _: "any",
            "batch_index_error_message": _text,
            "documentation": _text,
            "cluster_id": _text,
            "host": lambda host: host and "host",
            "port": lambda port: "port" if port > 0 else port,
            "topic_id": self._topic_id,
            "member_id": self._member_id,
            "leader": self._member_id,
            "session_id": lambda number: number and self._name("session", number),
            "log_append_time_ms": lambda time: "now" if time > 0 else time,
            "transaction_start_time_ms": lambda time: "now" if time > 0 else time,
            "log_dir": lambda _: "a folder",
            "total_bytes": lambda size: size > 0,
            "usable_bytes": lambda size: size > 0,
            "records": _records,
            "configs": self._by_name,
        }

    def of(self, value: object) -> object:
        """`value` as dicts, lists and plain values."""
        if isinstance(value, Struct):
            names = [field.name for field in value.__schema__.fields]
            shown: dict[str, Any] = {name: self._field(value, name) for name in names}
            for name in UNORDERED.get(value.__schema__.name, ()):
                shown[name] = shown[name] and sorted(shown[name], key=str)
            return shown
        if isinstance(value, list):
            return [self.of(item) for item in value]
        return bytes(value) if isinstance(value, bytearray | memoryview) else value

    def _field(self, owner: Any, name: str) -> object:
        value = getattr(owner, name)
        if name == "error_message":
            return _message(value, owner.error_code)
        if name == "producer_id" and owner.__schema__.name in _GIVE_PRODUCER_IDS:
            return value if value < 0 else self._name("producer", value)
        return self._fields.get(name, self.of)(value)

    def _by_name(self, configs: list[Any] | None) -> object:
        return configs and {it.name: self.of(it) for it in configs}

    def _topic_id(self, value: bytes) -> str:
        return "zero" if value == ZERO_UUID else self._name("topic", bytes(value))

    def _member_id(self, value: str | None) -> str | None:
        return value and _MADE_UP.sub(lambda found: self._name("id", found[0]), value)

    def _name(self, kind: str, value: object) -> str:
        return self._seen.setdefault((kind, value), f"<{kind} {len(self._seen)}>")


def _message(value: str | None, error_code: int) -> str | None:
    return "text" if value and error_code else value


def _text(value: str | None) -> str | None:
    return "text" if value else value


def _records(value: Any) -> object:
    """Offsets and checksums of whole batches; Apache Kafka cuts the last one where its limit is."""
    if value is None:
        return None
    return [_shown(header) for _, header in batches(value)]


def _shown(header: BatchHeader) -> str:
    producer = f" producer {header[9:12]}" if header.producer_id >= 0 else ""
    where = f"{header.base_offset}..{header.last_offset} of epoch {header.leader_epoch}"
    times = f"{header.base_timestamp}..{header.max_timestamp}"
    return f"{where} at {times} attributes {header.attributes:#x} crc {header.crc:#x}{producer}"
