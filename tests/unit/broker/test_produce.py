"""Produce: the general way, the short way, and that nobody can tell them apart."""

import random
import re
from importlib import import_module
from importlib.util import find_spec

import cramjam
import pytest

from headwater.broker import fast_produce
from headwater.broker.server_connection import MAX_UNANSWERED
from headwater.broker.turns import ELEMENTS_A_TURN
from headwater.errors import E
from headwater.records.batch import HEADER, batches
from headwater.records.compression import Codec
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record, decode_records, encode_records
from headwater.records.rules import MAX_UNCOMPRESSED_BYTES
from headwater.replication.replica import Replica
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.broker.live import Closed, batch, fetch_request, produce_request, until

VERSIONS = range(3, 14)
READERS = ["codec.pure", *(["_codec"] if find_spec("headwater.records._codec") else [])]


def named(live, topic, version):
    """The topic as a request of that version names it."""
    return live.context.metadata.topic_id(topic) if version >= 13 else topic


def general_way(live, monkeypatch) -> None:
    """Let no request take the short way."""
    monkeypatch.setattr("headwater.broker.handlers.produce.remember_route", lambda *_: None)


def exchange(live, topic, version, requests):
    """The raw answers to requests on one connection, each sent after the answer before it."""
    with live.client() as client:
        answers = []
        for records, acks in requests:
            client.send(
                produce_request(named(live, topic, version), records, 0, acks, version), version
            )
            answers.append(client.receive())
        return answers


def plain(answer: bytes, name: bytes) -> bytes:
    """An answer without the topic's name and without moments in time."""
    return re.sub(rb"-?\d{13,}", b"#", answer.replace(name, b"?"))


# -- both ways


@pytest.mark.parametrize("version", VERSIONS)
def test_short_and_general_way_answer_byte_for_byte_the_same(live, monkeypatch, version):
    damaged = bytearray(batch(b"damaged"))
    damaged[-1] ^= 1
    with live.client() as client:
        producer = client.ask(
            InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4
        ).producer_id
    mine = {"producer_id": producer, "producer_epoch": 0}
    wrong = [
        bytes(damaged),
        b"x" * 20,
        batch(b"too large" * 200_000),
        batch(b"far future", now=2**53),
        batch(b"zstd", codec=4),
        batch(b"a gap", **mine, base_sequence=7),
        batch(b"transactional", **mine, base_sequence=2, transactional=True),
    ]
    script = [
        (batch(b"one"), 1),
        (batch(b"two", b"three"), 1),
        (batch(b"four"), -1),
        (batch(b"idempotent", **mine, base_sequence=0), -1),
        (batch(b"idempotent", **mine, base_sequence=1), -1),
        (batch(b"idempotent", **mine, base_sequence=1), -1),
    ]
    for records in wrong:  # each after a good one, which would leave a way to follow
        script += [(batch(b"good"), -1), (records, -1), (records, -1)]
    topics = [f"same-{version}-{way}" for way in ("short", "plain")]
    for topic in topics:
        live.create(topic)
    short = exchange(live, topics[0], version, script)
    general_way(live, monkeypatch)
    long = exchange(live, topics[1], version, script)
    names = [
        name if version >= 13 else name.encode()
        for name in (named(live, topic, version) for topic in topics)
    ]
    assert [plain(answer, names[0]) for answer in short] == [
        plain(answer, names[1]) for answer in long
    ]


def test_the_short_way_is_really_taken(live, topic, monkeypatch):
    decoded = []
    from headwater.broker.handlers import produce

    monkeypatch.setitem(
        live.broker.parts.dispatch._table,
        0,
        live.broker.parts.dispatch._table[0]._replace(
            handler=lambda *call: (decoded.append(1), produce.handle_produce(*call))[1]
        ),
    )
    with live.client() as client:
        for number in range(5):
            assert client.produce(topic, batch(b"%d" % number)).base_offset == number
    assert len(decoded) == 1


def unsized(data):
    """A frame of zstd that does not state its size, as Java writes it."""
    stream = cramjam.zstd.Compressor()
    stream.compress(data)
    return bytes(stream.finish())


@pytest.mark.skipif(fast_produce.NAME == "pure", reason="no C compiler has built the fast path")
@pytest.mark.parametrize("codec", Codec)
def test_usual_compressed_batches_stay_on_the_compiled_path(live, client, codec, monkeypatch):
    """Its look at the frames of zstd tells enough of them."""
    slow = []
    append = Replica.append
    monkeypatch.setattr(Replica, "append", lambda *call: (slow.append(1), append(*call))[1])
    topic = f"usual-{codec}"
    live.create(topic)
    rng = random.Random(codec)
    values = [rng.randbytes(2000) + bytes(2000) for _ in range(50)]
    sent = [batch(*values, codec=codec)]
    if codec == Codec.ZSTD:
        area = unsized(encode_records([Record(value=value) for value in values], 0))
        sent.append(bytes(complete_batch(HEADER.unpack_from(sent[0]), area)))
    for data in (*sent, *sent):
        assert len(data) > 50_000
        assert client.produce(topic, data).error_code == 0
    assert len(slow) == 1, "the first one leaves a route behind"


@pytest.mark.parametrize("acks", [2, -2, 5, 127])
def test_strange_acks_are_refused_each_time(live, topic, client, acks):
    for _ in range(3):
        assert client.produce(topic, batch(), acks=acks).error_code == E.INVALID_REQUIRED_ACKS
    assert live.replica(topic).log.log_end_offset == 0


def test_a_change_of_settings_ends_the_short_way(live, topic, client):
    from headwater.wire.messages.configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    large = batch(b"x" * 5000)
    for _ in range(2):
        assert client.produce(topic, large).error_code == 0
    row = IncrementalAlterConfigsRequest.AlterableConfig(
        name="max.message.bytes", config_operation=0, value="1000"
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name=topic, configs=[row]
    )
    with live.client() as admin:
        answer = admin.ask(
            IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, 1
        )
        assert answer.responses[0].error_code == 0
    until(lambda: client.produce(topic, large).error_code == E.MESSAGE_TOO_LARGE)
    assert client.produce(topic, batch(b"small")).error_code == 0


def test_a_deleted_and_remade_topic_is_not_written_by_an_old_route(live, topic, client):
    from headwater.wire.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse

    for _ in range(2):
        assert client.produce(topic, batch()).error_code == 0
    with live.client() as admin:
        names = [DeleteTopicsRequest.DeleteTopicState(name=topic)]
        admin.ask(DeleteTopicsRequest(topics=names, timeout_ms=9000), DeleteTopicsResponse, 6)
    assert client.produce(topic, batch()).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    live.create(topic)
    assert client.produce(topic, batch()).base_offset == 0


def test_the_bytes_around_the_records_decide_whether_a_route_fits(live, topic, client):
    assert client.produce(topic, batch()).base_offset == 0
    request = produce_request(topic, batch(b"other timeout"), timeout_ms=1)
    assert client.ask(request, ProduceResponse, 9).responses[0].partition_responses[
        0
    ].base_offset == 1  # fmt: skip
    assert client.produce(topic, batch(), acks=1).base_offset == 2
    assert client.produce(topic, batch(), version=8).base_offset == 3
    assert client.produce(topic, batch(), partition=1).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


# -- what is refused, what is not


def test_produce_before_version_3_closes_the_connection(live, topic, client):
    client.send(produce_request(topic, batch(), version=2), 2)
    assert client.is_closed()


def test_what_came_before_a_bad_request_is_answered_then_the_connection_closes(live, topic, client):
    for _ in range(3):
        client.send(produce_request(topic, batch()), 9)
    client.send(produce_request(topic, batch(), version=2), 2)
    client.send(produce_request(topic, batch()), 9)
    answers = [client.answer(ProduceResponse, 9) for _ in range(3)]
    offsets = [it.responses[0].partition_responses[0].base_offset for it in answers]
    assert offsets == [0, 1, 2]
    assert client.is_closed()


def test_no_records_for_a_partition(live, topic, client):
    assert client.produce(topic, None).error_code == E.INVALID_RECORD


@pytest.mark.parametrize(
    ("transactional_id", "error"),
    [(None, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ("mine", E.NOT_ENOUGH_REPLICAS)],
)
def test_a_transactional_batch_needs_a_transaction_and_its_coordinator(
    live, topic, client, transactional_id, error
):
    request = produce_request(
        topic, batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )
    request.transactional_id = transactional_id
    answer = client.ask(request, ProduceResponse, 9).responses[0].partition_responses[0]
    assert answer.error_code == error
    assert "transaction" in answer.error_message
    assert answer.base_offset == -1


def test_internal_topics_are_written_by_brokers_only(live, client):
    answer = client.produce("__consumer_offsets", batch())
    assert answer.error_code == E.INVALID_TOPIC_EXCEPTION


def test_an_unknown_topic_id(live, client):
    assert client.produce(b"\1" * 16, batch(), version=13).error_code == E.UNKNOWN_TOPIC_ID


def test_one_bad_partition_does_not_spoil_the_others(live, client):
    live.create("several", 3)
    parts = [
        ProduceRequest.PartitionProduceData(index=0, records=batch(b"a")),
        ProduceRequest.PartitionProduceData(index=9, records=batch(b"b")),
        ProduceRequest.PartitionProduceData(index=2, records=batch(b"c")),
    ]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=9000,
        topic_data=[ProduceRequest.TopicProduceData(name="several", partition_data=parts)],
    )
    (answer,) = client.ask(request, ProduceResponse, 9).responses
    assert [row.error_code for row in answer.partition_responses] == [
        0,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        0,
    ]


WIDE = 1000


@pytest.fixture(scope="module")
def wide(live):
    live.create("wide", partitions=WIDE)
    return "wide"


def wide_request(topic, value, acks, version):
    """One batch for each partition of a topic; with an answer, one for a missing partition between."""
    indexes = [*range(WIDE // 2), *[WIDE][: abs(acks)], *range(WIDE // 2, WIDE)]
    rows = [
        ProduceRequest.PartitionProduceData(index=index, records=batch(b"%s-%d" % (value, index)))
        for index in indexes
    ]
    named = {"topic_id": topic} if version >= 13 else {"name": topic}
    topics = [ProduceRequest.TopicProduceData(partition_data=rows, **named)]
    return ProduceRequest(acks=acks, timeout_ms=9000, topic_data=topics)


def values_of(live, topic, partition, start):
    with live.client() as client:
        found = bytes(client.fetch(topic, start, partition=partition).records)
    return [record.value for at, _ in batches(found) for record in decode_records(found[at:])]


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_batches_of_many_partitions_are_appended_in_turns_and_in_order(
    live, wide, client, acks, version
):
    """The requests behind a long one arrive in its receive buffer, and wait for it."""
    shown = [0, 399, WIDE - 1]
    starts = {index: live.replica(wide, index).log_end_offset for index in shown}
    turns = live.on_loop(lambda: live.context.turns.taken)
    topic = named(live, wide, version)
    sent = [
        client.send(wide_request(topic, b"first", acks, version), version),
        client.send(wide_request(topic, b"second", acks, version), version),
        client.send(produce_request(topic, batch(b"last"), 399, 1, version), version),
    ]
    for number in sent[2 if acks == 0 else 0 :]:
        (answer,) = client.answer(ProduceResponse, version, number).responses
        errors = {row.index: row.error_code for row in answer.partition_responses}
        many = number != sent[2]
        assert len(errors) == len(answer.partition_responses) == (WIDE + 1 if many else 1)
        assert errors.pop(WIDE, None) == (E.UNKNOWN_TOPIC_OR_PARTITION if many else None)
        assert set(errors.values()) == {E.NONE}
    assert live.on_loop(lambda: live.context.turns.taken) - turns > 4 * WIDE // ELEMENTS_A_TURN
    for index, start in starts.items():
        wanted = [b"first-%d" % index, b"second-%d" % index, b"last"][: 3 if index == 399 else 2]
        until(lambda at=(index, start), all=wanted: values_of(live, wide, *at) == all)
    assert live.on_loop(lambda: live.context.memory.working) == 0


def test_a_failure_amid_many_partitions_ends_the_connection_and_nothing_else(
    live, wide, client, monkeypatch, caplog
):
    broken, append = live.replica(wide, 500), Replica.append

    def fail_in_the_middle(replica, *given):
        if replica is broken:
            raise RuntimeError("a fault in the middle")
        append(replica, *given)

    start = live.replica(wide, 499).log_end_offset
    with monkeypatch.context() as patched:
        patched.setattr(Replica, "append", fail_in_the_middle)
        client.send(wide_request(wide, b"cut", 1, 9), 9)
        with pytest.raises(Closed):
            client.receive()
    assert "a fault in the middle" in caplog.text
    until(lambda: values_of(live, wide, 499, start) == [b"cut-499"])
    with live.client() as other:
        assert other.produce(wide, batch(b"after"), partition=500).error_code == E.NONE
    assert live.on_loop(lambda: live.context.memory.working) == 0


def test_a_request_without_topics_is_answered(live, client):
    assert client.ask(ProduceRequest(acks=-1), ProduceResponse, 9).responses == []


def test_records_that_break_a_rule_are_named(live, client):
    live.create("compacted", cleanup_policy="compact")
    answer = client.produce("compacted", batch(b"no key"), version=9)
    assert answer.error_code == E.INVALID_RECORD
    assert [row.batch_index for row in answer.record_errors] == [0]
    for _ in range(2):
        again = client.produce("compacted", batch(b"no key"), version=9)
        assert again == answer


def test_log_append_time_is_told(live, client):
    live.create("stamped", message_timestamp_type="LogAppendTime")
    for _ in range(3):
        answer = client.produce("stamped", batch(now=1000))
        assert answer.log_append_time_ms > 1_600_000_000_000


# -- acks=0


def test_acks_0_is_written_and_not_answered(live, topic, client):
    for number in range(3):
        client.send(produce_request(topic, batch(b"%d" % number), acks=0), 9)
    assert client.produce(topic, batch(b"answered")).base_offset == 3


def test_a_refused_batch_with_acks_0_closes_the_connection(live, topic, client):
    client.send(produce_request(topic, b"nonsense" * 10, acks=0), 9)
    assert client.is_closed()


# -- order and limits of a connection


def test_answers_keep_the_order_of_requests_whatever_waits_longest(live, topic, client):
    slow = client.send(fetch_request({(topic, 0): 0}, max_wait_ms=5000), 12)
    quick = client.send(produce_request(topic, batch()), 9)
    assert client.answer(FetchResponse, 12, slow).responses[0].partitions[0].records
    assert client.answer(ProduceResponse, 9, quick).responses


def test_pipelined_batches_get_consecutive_offsets_in_their_order(live, topic, client):
    numbers = [client.send(produce_request(topic, batch(b"%d" % n)), 9) for n in range(300)]
    offsets = [
        client.answer(ProduceResponse, 9, number).responses[0].partition_responses[0].base_offset
        for number in numbers
    ]
    assert offsets == list(range(300))
    found = client.fetch(topic)
    assert [header.base_offset for _, header in batches(bytes(found.records))] == offsets


def test_a_client_with_too_much_under_way_is_not_read_until_it_has_less(
    live, topic, client, monkeypatch
):
    monkeypatch.setattr("headwater.broker.server_connection.MAX_POLLS", 10**6)
    waiting = [
        client.send(fetch_request({(topic, 0): 0}, max_wait_ms=9000), 12) for _ in range(400)
    ]
    until(lambda: any(c.held for c in live.context.connection_quotas.open))
    (server,) = (c for c in live.context.connection_quotas.open if c.held)
    assert MAX_UNANSWERED <= len(server.pending) <= MAX_UNANSWERED + 64
    with live.client() as other:
        assert other.produce(topic, batch()).error_code == 0
    for number in waiting:
        client.answer(FetchResponse, 12, number)
    assert not server.held


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("settings", [{}, {"message_timestamp_type": "LogAppendTime"}])
def test_no_batch_is_accepted_that_readers_refuse_to_decompress(live, client, codec, settings):
    """They stop at 64 MiB. Batches of five records are not walked: only their headers tell the size."""
    topic = f"dense-{codec}-{len(settings)}"
    live.create(topic, max_message_bytes="9000000", **settings)
    most = MAX_UNCOMPRESSED_BYTES // 5 - 20
    assert client.produce(topic, batch(*5 * [b"a"], codec=codec)).error_code == 0
    for _ in range(2):  # with a route and without
        answer = client.produce(topic, batch(*5 * [bytes(most + 20)], codec=codec))
        assert answer.error_code == E.MESSAGE_TOO_LARGE
        assert "67108864 bytes when decompressed" in answer.error_message
    answer = client.produce(topic, batch(*5 * [bytes(most)], codec=codec))
    assert (answer.error_code, answer.base_offset) == (0, 5)
    data = client.fetch(topic, 5, partition_max_bytes=9_000_000).records
    for name in READERS:
        _, rows = import_module(f"headwater.records.{name}").decode_batch(data)
        assert [len(row[4]) for row in rows] == 5 * [most]


def test_stored_bytes_are_the_clients_but_for_offset_and_epoch(live, topic, client):
    sent = batch(b"a", b"b")
    client.produce(topic, sent)
    stored = bytes(client.fetch(topic).records)
    epoch = live.replica(topic).partition.leader_epoch
    assert stored[16:] == sent[16:]
    assert HEADER.unpack_from(stored)[0:3] == (0, HEADER.unpack_from(sent)[1], epoch)


def test_half_a_request_and_goodbye_leaves_nothing(live, topic):
    with live.client() as client:
        client.send_bytes(b"\0\0\1\0" + b"\0\0\0\x09")
    with live.client() as client:
        assert client.fetch(topic).high_watermark == 0


def test_closed_is_an_error_for_this_client(live, client):
    client.send_bytes(b"\xff\xff\xff\xff")
    with pytest.raises(Closed):
        client.receive()


def test_records_whose_offset_deltas_are_wrong_are_stored_with_right_ones(live, topic, client):
    good = bytes(batch(b"a", b"b"))
    header = HEADER.unpack_from(good)
    area = encode_records([Record(0, header[7], None, b"a", ())], header[7]) * 2
    wrong = bytes(complete_batch(header, area))
    assert client.produce(topic, wrong).error_code == 0
    assert client.produce(topic, good).base_offset == 2
    records = client.fetch(topic, 0).records
    stored = [
        record.offset
        for at, header in batches(bytes(records))
        for record in decode_records(bytes(records)[at : at + header.size])
    ]
    assert stored == [0, 1, 2, 3]
