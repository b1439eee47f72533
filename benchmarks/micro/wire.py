"""Costs of the wire room beside kio and kafka-python: microseconds per message, ratios first.

Run: `python benchmarks/micro/wire.py`. Best of several rounds (the machine is shared); one JSON
line. `goal` is what the hot path was planned with.
"""

import importlib
import io
import json
import sys
import timeit
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest as TheirFetchRequest
from kafka.protocol.consumer import FetchResponse as TheirFetchResponse
from kafka.protocol.metadata import MetadataResponse as TheirMetadataResponse
from kafka.protocol.producer import ProduceRequest as TheirProduceRequest
from kio.serial import entity_reader, entity_writer

from headwater.wire import codec, framing
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.metadata import MetadataResponse
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from headwater.wire.schema import Struct

RECORDS = bytes(200)
TOPIC = "orders.placed"
TOPIC_ID = b"0123456789abcdef"
KAFKA_PYTHON: dict[str, Any] = {
    "FetchRequest": TheirFetchRequest,
    "FetchResponse": TheirFetchResponse,
    "MetadataResponse": TheirMetadataResponse,
    "ProduceRequest": TheirProduceRequest,
}


class Case(NamedTuple):
    """A message to time in one direction."""

    verb: str
    message: Struct
    version: int
    what: str
    goal: float

    @property
    def title(self) -> str:
        """What the table calls it."""
        return f"{self.verb} {self.message.__schema__.name} v{self.version}, {self.what}"


def microseconds(work: Callable[[], object], rounds: int = 7) -> float:
    """The best time of one call."""
    timer = timeit.Timer(work)
    calls, taken = timer.autorange()
    return round(min([taken, *timer.repeat(rounds, calls)]) / calls * 1e6, 2)


def produce_request(version: int) -> ProduceRequest:
    """One batch for one partition."""
    named: dict[str, Any] = {"name": TOPIC} if version < 13 else {"topic_id": TOPIC_ID}
    partition = ProduceRequest.PartitionProduceData(index=3, records=RECORDS)
    topic = ProduceRequest.TopicProduceData(partition_data=[partition], **named)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def fetch_request(version: int) -> FetchRequest:
    """One partition to read."""
    named: dict[str, Any] = {"topic": TOPIC} if version < 13 else {"topic_id": TOPIC_ID}
    partition = FetchRequest.FetchPartition(
        partition=3, fetch_offset=9, partition_max_bytes=1 << 20
    )
    topic = FetchRequest.FetchTopic(partitions=[partition], **named)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response(version: int, count: int) -> FetchResponse:
    """`count` partitions with a small batch each."""
    named: dict[str, Any] = {"topic": TOPIC} if version < 13 else {"topic_id": TOPIC_ID}
    partitions = [
        FetchResponse.PartitionData(
            partition_index=index,
            high_watermark=9,
            last_stable_offset=9,
            log_start_offset=0,
            aborted_transactions=None,
            records=RECORDS,
        )
        for index in range(count)
    ]
    topic = FetchResponse.FetchableTopicResponse(partitions=partitions, **named)
    return FetchResponse(responses=[topic])


def metadata_response() -> MetadataResponse:
    """Ten topics of three partitions on three brokers."""
    brokers = [
        MetadataResponse.MetadataResponseBroker(node_id=node, host="broker.local", port=9092)
        for node in range(3)
    ]
    partitions = [
        MetadataResponse.MetadataResponsePartition(
            partition_index=index, leader_id=index, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )
        for index in range(3)
    ]
    topics = [
        MetadataResponse.MetadataResponseTopic(name=f"{TOPIC}.{number}", partitions=partitions)
        for number in range(10)
    ]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=topics)


CASES = [
    Case("decode", produce_request(7), 7, "1 partition", 3),
    Case("decode", produce_request(9), 9, "1 partition", 3),
    Case("decode", produce_request(13), 13, "1 partition", 3),
    Case("decode", fetch_request(11), 11, "1 partition", 3),
    Case("decode", fetch_request(12), 12, "1 partition", 3),
    Case("decode", fetch_request(17), 17, "1 partition", 3),
    Case("encode", fetch_response(12, 1), 12, "1 partition", 2),
    Case("encode", fetch_response(12, 50), 12, "50 partitions", 35),
    Case("encode", fetch_response(17, 50), 17, "50 partitions", 35),
    Case("encode", metadata_response(), 12, "10 topics of 3", 60),
]


def ours(case: Case) -> float:
    """The time of the compiled codec."""
    kind, version = type(case.message), case.version
    if case.verb == "encode":
        return microseconds(lambda: codec.encode(case.message, version))
    received = memoryview(bytearray(codec.encode_bytes(case.message, version)))
    return microseconds(lambda: codec.decode(kind, version, received))


def kio(case: Case) -> float:
    """The time of kio, whose reader is compiled from Rust."""
    name = type(case.message).__name__
    part = "request" if name.endswith("Request") else "response"
    family = name.removesuffix("Request").removesuffix("Response").lower()
    entity = getattr(importlib.import_module(f"kio.schema.{family}.v{case.version}.{part}"), name)
    data = codec.encode_bytes(case.message, case.version)
    read = entity_reader(entity)
    if case.verb == "decode":
        return microseconds(lambda: read(data, 0))
    message, _ = read(data, 0)
    write = entity_writer(entity)
    return microseconds(lambda: write(io.BytesIO(), message))


def kafka_python(case: Case) -> float:
    """The time of kafka-python, which compiles its tables to Python as well."""
    kind, version = KAFKA_PYTHON[type(case.message).__name__], case.version
    data = codec.encode_bytes(case.message, version)
    if case.verb == "decode":
        return microseconds(lambda: kind.decode(data, version=version))
    message = kind.decode(data, version=version)
    message._header = None
    return microseconds(lambda: message.encode(version=version))


def beside_others() -> Iterator[tuple[str, dict[str, float]]]:
    """Each case with the others' times as multiples of ours."""
    for case in CASES:
        mine = ours(case)
        yield (
            case.title,
            {
                "kio/ours": round(kio(case) / mine, 1),
                "kafka-python/ours": round(kafka_python(case) / mine, 1),
                "us": mine,
                "goal": case.goal,
            },
        )


def framing_costs() -> dict[str, float]:
    """What is paid once per request besides its body."""
    frame = memoryview(framing.request_frame(0, 9, 7, "rdkafka", produce_request(9)))
    end = len(frame)
    partition = ProduceResponse.PartitionProduceResponse(index=3, base_offset=9)
    topic = ProduceResponse.TopicProduceResponse(name=TOPIC, partition_responses=[partition])
    answer = ProduceResponse(responses=[topic])
    return {
        "request header": microseconds(lambda: framing.read_request_header(frame, 4, end)),
        "produce response, framed": microseconds(lambda: framing.response(7, 9, answer)),
    }


if __name__ == "__main__":
    figures = {"messages": dict(beside_others()), "us": framing_costs()}
    json.dump(figures, sys.stdout, indent=2)
    sys.stdout.write("\n")
