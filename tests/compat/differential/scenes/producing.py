"""Produce (0), InitProducerId (22), DescribeProducers (61)."""

import struct
import time

from headwater.records.batch import batches
from headwater.records.compression import Codec
from headwater.wire.messages.cluster import ApiVersionsRequest
from headwater.wire.messages.fetch import FetchRequest
from headwater.wire.messages.produce import ProduceRequest
from headwater.wire.messages.producers import DescribeProducersRequest, InitProducerIdRequest
from tests.compat.differential.batch import TIME, batch, changed, record, spoiled, with_body
from tests.compat.differential.coordinator import coordinator
from tests.compat.differential.scene import Scene, newest, scene, versions
from tests.compat.differential.scenes.transacting import transactions

_YEAR_MS = 365 * 24 * 3600 * 1000
NAMED = 12
"""The last version of Produce with topics by name."""


def produce(
    topic: str,
    records: bytes | None,
    *,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A request with one batch."""
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )


def read_all(s: Scene, topic: str, label: str = "what is stored") -> None:
    """Write down every batch of partition 0."""
    wanted = FetchRequest.FetchPartition(fetch_offset=0, partition_max_bytes=1 << 24)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])])
    s.ask(label, request, 11)


@scene
def produce_versions_and_acks(s: Scene) -> None:
    s.topic("versions")
    for version in range(3, NAMED + 1):
        for acks in (1, -1):
            s.ask(f"acks {acks}", produce("versions", batch(count=3), acks=acks), version)
    by_id = produce("", batch(count=2))
    by_id.topic_data[0].topic_id = s.topic_ids["versions"]
    s.ask("by id", by_id, 13)
    by_id.topic_data[0].topic_id = b"\x07" * 16
    s.ask("by an unknown id", by_id, 13)
    by_id.topic_data[0].topic_id = bytes(16)
    s.ask("by the zero id", by_id, 13)
    for acks in (2, -2):
        s.ask(f"acks {acks}", produce("versions", batch(), acks=acks), NAMED)
        s.ask(f"acks {acks} for an unknown topic", produce("absent", batch(), acks=acks), NAMED)
    read_all(s, "versions")


@scene
def produce_several_partitions(s: Scene) -> None:
    s.topic("several", 3)
    good = [ProduceRequest.PartitionProduceData(index=n, records=batch()) for n in (2, 0, 7, 1)]
    good[3].records = spoiled(batch(), 70, 1)
    request = produce("several", None)
    request.topic_data[0].partition_data = good
    absent = ProduceRequest.TopicProduceData(
        name="absent",
        partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch())],
    )
    request.topic_data.insert(0, absent)
    for version in (3, 8, NAMED):
        s.ask("good and bad together", request, version)
    s.ask("no topics", ProduceRequest(acks=-1, timeout_ms=1000), NAMED)
    request.topic_data = [ProduceRequest.TopicProduceData(name="several")]
    s.ask("no partitions", request, NAMED)
    again = produce("several", batch())
    again.topic_data.append(produce("several", batch()).topic_data[0])
    s.ask("a topic twice", again, NAMED)


@scene
def produce_to_where_nothing_is(s: Scene) -> None:
    s.topic("somewhere")
    for version in (3, 8, NAMED):
        s.ask("unknown topic", produce("absent", batch()), version)
        s.ask("unknown partition", produce("somewhere", batch(), partition=9), version)
        s.ask("negative partition", produce("somewhere", batch(), partition=-1), version)
        s.ask("name that cannot be", produce("no/slash", batch()), version)
        s.ask("no name", produce("", batch()), version)


@scene
def produce_bad_batches(s: Scene) -> None:
    s.topic("bad")
    good = batch(count=2)
    cases = {
        "empty": b"",
        "one byte": b"x",
        "cut in the header": good[:40],
        "cut in the records": good[:-1],
        "two batches": good + good,
        "wrong checksum": spoiled(good, 70, 0),
        "magic 1 in the layout of 2": spoiled(good, 16, 1),
        "magic 0 in the layout of 2": spoiled(good, 16, 0),
        "magic 3": spoiled(good, 16, 3),
        "length 0": good[:8] + struct.pack(">i", 0) + good[12:],
        "length beyond the end": good[:8] + struct.pack(">i", len(good)) + good[12:],
        "negative length": good[:8] + struct.pack(">i", -1) + good[12:],
        "more counted than there": changed(good, count=3, last_offset_delta=2),
        "fewer counted than there": changed(good, count=1, last_offset_delta=0),
        "count beyond last delta": changed(good, count=3),
        "count 0": changed(good, count=0),
        "count -1": changed(good, count=-1),
        "last delta -1": changed(good, last_offset_delta=-1),
        "last delta beyond count": changed(good, last_offset_delta=5),
        "control": changed(good, attributes=0x20),
        "says gzip and is not": changed(good, attributes=1),
        "says zstd and is not": changed(good, attributes=4),
        "codec 5": changed(good, attributes=5),
        "codec 7": changed(good, attributes=7),
        "base offset 5": changed(good, base_offset=5),
        "leader epoch 7": changed(good, leader_epoch=7),
        "records of zeros": with_body(good, bytes(20)),
        "no record bytes": with_body(good, b""),
        "producer without sequence": batch(producer=(7, 0, -1)),
        "sequence without producer": batch(producer=(-1, 0, 0)),
        "epoch without producer": batch(producer=(-1, 3, -1)),
    }
    for label, records in cases.items():
        s.ask(label, produce("bad", records), NAMED)
        if label == "two batches":
            s.ask(label, produce("bad", records), 3)
            s.ask(label, produce("bad", records), 7)
    read_all(s, "bad")


@scene
def produce_records_that_do_not_fit_their_batch(s: Scene) -> None:
    s.topic("misfit")
    one = batch()
    body = one[61:]
    cases = {
        "record attributes": body[:1] + b"\x01" + body[2:],
        "key longer than the record": body[:4] + b"\x7e" + body[5:],
        "key length -2": body[:4] + b"\x03" + body[5:],
        "record length too small": b"\x02" + body[1:],
        "record length too large": b"\x7e" + body[1:],
        "negative record length": b"\x01" + body[1:],
        "header count 5": body[:-1] + b"\x0a",
        "negative header count": body[:-1] + b"\x01",
        "a byte behind the last record": body + b"\0",
        "an unending varint": b"\xff" * 12,
    }
    for label, area in cases.items():
        s.ask(label, produce("misfit", with_body(one, area)), NAMED)
    read_all(s, "misfit")


@scene
def produce_what_no_client_sends(s: Scene) -> None:
    """Batches that Apache Kafka corrects or lets pass; only what it says of them is compared."""
    s.topic("odd")
    one, good = batch(), batch(count=2)
    for label, records in {
        "a byte too many": good + b"\0",
        "says log append time": changed(good, attributes=8),
        "unknown attribute": changed(good, attributes=0x80),
        "delete horizon": changed(good, attributes=0x40),
        "producer without epoch": batch(producer=(7, -1, 0)),
        "offset delta 1 in a batch of one": with_body(one, one[61:64] + b"\x02" + one[65:]),
    }.items():
        answer = s.peer.call(produce("odd", records), NAMED)
        s.note(label, {"error_code": answer.responses[0].partition_responses[0].error_code})


@scene
def produce_sizes(s: Scene) -> None:
    s.topic("sizes", configs={"max.message.bytes": "500", "segment.bytes": str(1 << 20)})
    s.topic("whole-segment", configs={"max.message.bytes": "3000000", "segment.bytes": "1048576"})
    for size in (400, 425, 426, 427, 428, 429, 430, 431, 432, 500, 5000):
        s.ask(f"a value of {size}", produce("sizes", batch(record(b"x" * size))), 7)
    s.ask("compressed to fit", produce("sizes", batch(record(b"x" * 5000), codec=Codec.GZIP)), 7)
    s.ask("over", produce("sizes", batch(record(b"x" * 5000))), NAMED)
    s.ask("over a segment", produce("whole-segment", batch(record(b"x" * 1_100_000))), NAMED)


@scene
def produce_codecs(s: Scene) -> None:
    s.topic("codecs")
    for codec in Codec:
        for version in (3, 6, 7, NAMED):
            s.ask(codec.name, produce("codecs", batch(count=5, codec=codec)), version)
    s.topic("gzip", configs={"compression.type": "gzip"})
    s.ask("into gzip", produce("gzip", batch(record(b"x" * 50))), NAMED)
    s.ask("gzip to gzip", produce("gzip", batch(record(b"x" * 50), codec=Codec.GZIP)), NAMED)
    s.ask("zstd to gzip", produce("gzip", batch(count=3, codec=Codec.ZSTD)), NAMED)
    s.topic("plain", configs={"compression.type": "uncompressed"})
    s.ask("gzip to nothing", produce("plain", batch(count=3, codec=Codec.GZIP)), NAMED)
    for topic in ("codecs", "gzip", "plain"):
        _attributes(s, topic)


def _attributes(s: Scene, topic: str) -> None:
    """Which codec each stored batch has; the bytes depend on the library."""
    wanted = FetchRequest.FetchPartition(fetch_offset=0, partition_max_bytes=1 << 24)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])])
    found = s.peer.call(request, 11).responses[0].partitions[0].records
    shown = [(it.base_offset, it.last_offset, it.attributes) for _, it in batches(found)]
    s.note(f"codecs in {topic}", shown)


@scene
def produce_with_too_few_replicas(s: Scene) -> None:
    s.topic("lonely", configs={"min.insync.replicas": "2"})
    for version in (3, 8, NAMED):
        for acks in (-1, 1):
            s.ask(f"acks {acks}", produce("lonely", batch(), acks=acks), version)
    bad = produce("lonely", spoiled(batch(), 70, 0))
    s.ask("and a bad batch", bad, NAMED)
    read_all(s, "lonely")


@scene
def produce_times(s: Scene) -> None:
    s.topic("times")
    s.topic(
        "strict",
        configs={
            "message.timestamp.before.max.ms": "1000",
            "message.timestamp.after.max.ms": "1000",
        },
    )
    s.topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    _stamp_twice(s)
    far = {"old": TIME, "none": -1, "zero": 0, "future": TIME + 50 * _YEAR_MS}
    for topic in ("times", "strict", "stamped"):
        for label, when in far.items():
            made = batch(record(time=TIME), record(time=TIME))
            made = changed(made, base_timestamp=when, max_timestamp=when)
            for version in (7, NAMED):
                s.ask(f"{label} time in {topic}", produce(topic, made), version)
    s.ask("max time below base", produce("times", changed(batch(), max_timestamp=5)), NAMED)
    read_all(s, "times")


def _stamp_twice(s: Scene) -> None:
    request = produce("stamped", batch(producer=(4711, 0, 0)))
    first = s.ask("stamped", request, NAMED).responses[0].partition_responses[0]
    while time.time() * 1000 < first.log_append_time_ms + 5:
        pass
    again = s.ask("stamped already", request, NAMED).responses[0].partition_responses[0]
    same = again.log_append_time_ms == first.log_append_time_ms
    s.note("the time is the first one's", same)


@scene
def produce_on_compacted_topics(s: Scene) -> None:
    s.topic("compacted", configs={"cleanup.policy": "compact"})
    s.topic("both", configs={"cleanup.policy": "compact,delete"})
    keyless = [record(key=None), record(), record(key=None)]
    for version in (3, 7, 8, NAMED):
        s.ask("keyless", produce("compacted", batch(*keyless)), version)
    s.ask("keyless zstd", produce("compacted", batch(*keyless, codec=Codec.ZSTD)), NAMED)
    s.ask("keyless on compact,delete", produce("both", batch(*keyless)), NAMED)
    many = [record(key=None) for _ in range(20)]
    s.ask("many keyless", produce("compacted", batch(*many)), NAMED)
    s.ask("tombstone", produce("compacted", batch(record(None))), NAMED)
    s.ask("empty key", produce("compacted", batch(record(key=b""))), NAMED)
    read_all(s, "compacted")


@scene
def produce_idempotent(s: Scene) -> None:
    s.topic("sequences", 4)

    def send(label: str, epoch: int, sequence: int, count: int = 1, partition: int = 0) -> None:
        made = batch(count=count, producer=(4711, epoch, sequence))
        request = produce("sequences", made, partition=partition)
        s.ask(f"{label}: epoch {epoch} sequence {sequence} x{count}", request, NAMED)

    send("first", 0, 0)
    for sequence in range(1, 8):
        send("next", 0, sequence)
    for sequence in (7, 6, 3, 2, 1, 0):
        send("again", 0, sequence)
    send("partly again", 0, 7, 2)
    send("gap", 0, 10)
    send("after the gap", 0, 8, 3)
    send("same start, other end", 0, 8, 2)
    send("new epoch with a sequence", 1, 11)
    send("new epoch from 0", 1, 0)
    send("old epoch", 0, 12)
    send("old epoch again", 0, 7)
    send("epoch jumps", 9, 0, 2)
    send("goes on", 9, 2)
    send("started elsewhere", 3, 17, partition=1)
    send("goes on there", 3, 18, partition=1)
    send("starts near the end", 0, 2**31 - 3, 2, partition=2)
    send("wraps", 0, 2**31 - 1, 3, partition=2)
    send("wraps again", 0, 2**31 - 1, 3, partition=2)
    send("beyond the wrap", 0, 2, partition=2)
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(
                name="sequences", partition_indexes=[0, 1, 2, 3, 9]
            ),
            DescribeProducersRequest.TopicRequest(name="absent", partition_indexes=[0]),
            DescribeProducersRequest.TopicRequest(name="bad/name", partition_indexes=[0]),
        ]
    )
    s.ask("producers", request, 0)
    s.ask("no producers", DescribeProducersRequest(), 0)


@scene
def produce_what_belongs_to_a_transaction(s: Scene) -> None:
    transactions(s)
    s.topic("transactional")
    part = batch(producer=(4711, 0, 0), transactional=True)
    for version in (7, 11, NAMED):
        s.ask("batch", produce("transactional", part, transactional_id="tx"), version)
        s.ask("batch without an id", produce("transactional", part), version)
        alone = produce("transactional", batch(), transactional_id="tx")
        s.ask("id without a batch", alone, version)


@scene
def produce_without_an_answer(s: Scene) -> None:
    s.topic("silent")
    for label, request in {
        "good": produce("silent", batch(), acks=0),
        "unknown topic": produce("absent", batch(), acks=0),
        "bad batch": produce("silent", spoiled(batch(), 70, 0), acks=0),
        "out of order": produce("silent", batch(producer=(9, 1, 5)), acks=0),
    }.items():
        with s.line() as line:
            line.send(request, NAMED, answered=False)
            line.send(ApiVersionsRequest(), 0)
            answer = line.receive()
            s.note(f"after {label}", answer if isinstance(answer, str) else "goes on")
    with s.line() as line:
        line.send(produce("silent", batch()), NAMED)
        line.send(produce("absent", batch(), acks=0), NAMED, answered=False)
        line.send(produce("silent", batch()), NAMED)
        s.hear("asked before the bad one", line)
        s.hear("asked after it", line)
    read_all(s, "silent")


@scene
def produce_to_internal_topics(s: Scene) -> None:
    coordinator(s)
    for client in ("differential", "__admin_client", None):
        request = produce("__consumer_offsets", spoiled(batch(), 70, 0))
        s.ask(f"as {client}", request, NAMED, client_id=client)


@scene
def init_producer_id(s: Scene) -> None:
    while s.peer.call(InitProducerIdRequest(transactional_id=None), 0).error_code:
        pass  # Apache Kafka fetches its first block of ids when it is asked for one
    for version in versions(InitProducerIdRequest):
        s.ask("fresh", InitProducerIdRequest(transactional_id=None), version)
        s.ask("empty id", InitProducerIdRequest(transactional_id=""), version)
        timeout = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-5)
        s.ask("bad timeout", timeout, version)
    for producer_id, epoch in ((5, 3), (-1, 3), (5, -1), (1 << 40, 0), (0, 32766)):
        known = InitProducerIdRequest(
            transactional_id=None, producer_id=producer_id, producer_epoch=epoch
        )
        for version in (3, newest(InitProducerIdRequest)):
            s.ask(f"with id {producer_id} and epoch {epoch}", known, version)
    first = s.ask("fresh", InitProducerIdRequest(transactional_id=None))
    bumped = InitProducerIdRequest(
        transactional_id=None, producer_id=first.producer_id, producer_epoch=first.producer_epoch
    )
    s.ask("its own id and epoch", bumped)
