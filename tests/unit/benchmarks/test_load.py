"""The load generator and its reference server: what they send, store and refuse."""

import shutil
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.load import encode, generator
from benchmarks.load.encode import NOBODY, Producer, Topic
from benchmarks.load.generator import Load, LoadFailed
from benchmarks.load.servers import Reference

from headwater.records.batch import CRC_START, batches
from headwater.records.checksum import crc32c
from headwater.records.record import decode_records
from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.framing import read_request_header

TOPIC = Topic("load", bytes(range(16)), 3)
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def decoded(frame: bytes) -> Any:
    header = read_request_header(frame, 4, len(frame))
    body, end = codec.decode(API[header.api_key].request, header.version, frame, header.body)
    assert end == len(frame)
    return body


@pytest.mark.parametrize("version", range(7, 14))
def test_a_produce_request_reads_as_what_was_asked_for(version):
    batch = encode.batch(2, 100)
    frame, positions = encode.produce_request(version, -1, TOPIC, [0, 2], batch)
    body = decoded(frame)
    (topic,) = body.topic_data
    assert (topic.topic_id if version >= 13 else topic.name) in (TOPIC.topic_id, TOPIC.name)
    assert body.acks == -1
    assert [(p.index, bytes(p.records)) for p in topic.partition_data] == [(0, batch), (2, batch)]
    assert [frame[at : at + len(batch)] for at in positions] == [batch, batch]


@pytest.mark.parametrize("version", [11, 13, 15, 17, 18])
def test_a_fetch_request_has_its_offset_where_the_plan_says(version):
    frame, (at,) = encode.fetch_request(version, TOPIC, 1, 4096)
    moved = frame[:at] + (77).to_bytes(8) + frame[at + 8 :]
    (partition,) = decoded(moved).topics[0].partitions
    assert (partition.partition, partition.fetch_offset) == (1, 77)
    assert partition.partition_max_bytes == 4096


def test_a_batch_fills_the_size_it_is_given_and_holds_sound_records():
    batch = encode.batch_of(16 << 10, 100)
    assert 16_100 < len(batch) <= 16 << 10
    records = list(decode_records(batch))
    assert len(records) == encode.record_count(batch)
    assert {record.value for record in records} == {b"x" * 100}


@needs_compiler
@pytest.mark.parametrize("size", [200, 5000, 70_000])
def test_the_sequence_moves_and_the_checksum_follows(size):
    with Reference() as server:
        topic = server.fresh_topic(1)
        batch = encode.batch(3, size // 3, Producer(7, 0))
        frame = encode.produce_request(13, -1, topic, [0], batch)
        load = Load((frame,), depth=3, requests=500, idempotent=True)
        sample = generator.run(load, server.port, server.pid)
        stored = (server.home / "log").read_bytes()
    assert sample.requests == 500
    assert sample.bytes == len(stored) == 500 * len(batch)
    found = list(batches(stored))
    assert [header.base_sequence for _, header in found] == list(range(0, 1500, 3))
    assert [header.base_offset for _, header in found] == list(range(0, 1500, 3))
    for at, header in found:
        assert crc32c(stored[at + CRC_START : at + header.size]) == header.crc


@needs_compiler
def test_an_error_code_fails_the_run():
    with Reference() as server:
        topic = server.fresh_topic(1)
        damaged = encode.batch(1, 100, NOBODY)[:-1] + b"?"
        frame = encode.produce_request(7, 1, topic, [0], damaged)
        with pytest.raises(LoadFailed, match=r"error code \(2\)"):
            generator.run(Load((frame,), requests=1), server.port, server.pid)


@needs_compiler
def test_consumers_read_a_log_once_from_start_to_end():
    batch = encode.batch(10, 100)
    with Reference() as server:
        topic = server.filled_topic(2, batch, 50)
        frames = tuple(encode.fetch_request(11, topic, p, 3 * len(batch)) for p in range(2))
        load = Load(
            frames,
            connections=2,
            once=True,
            fetch_end=500,
            batch_bytes=len(batch),
            batch_records=10,
        )
        sample = generator.run(load, server.port, server.pid)
        assert (sample.requests, sample.bytes) == (2 * 17, 2 * 50 * len(batch))
        with pytest.raises(LoadFailed, match="starts elsewhere"):
            generator.run(replace(load, fetch_end=501), server.port, server.pid)


@needs_compiler
def test_connections_go_to_the_servers_in_turn():
    with Reference() as one, Reference() as other:
        topic = one.fresh_topic(1)
        other.fresh_topic(1)
        batch = encode.batch(1, 100)
        frame = encode.produce_request(13, -1, topic, [0], batch)
        load = Load((frame,), connections=5, requests=5)
        generator.run(load, [one.port, other.port], [one.pid, other.pid])
        sizes = [(server.home / "log").stat().st_size for server in (one, other)]
    assert sizes == [3 * len(batch), 2 * len(batch)]


def test_a_keyed_batch_has_a_record_for_each_key():
    batch = encode.keyed_batch([b"a", b"bc", b"a"], 100)
    assert crc32c(batch[CRC_START:]) == int.from_bytes(batch[CRC_START - 4 : CRC_START])
    found = [(record.key, record.value) for record in decode_records(batch)]
    assert found == [(key, b"x" * 100) for key in (b"a", b"bc", b"a")]
