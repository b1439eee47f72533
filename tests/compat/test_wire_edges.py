"""What no client should send, byte by byte, and how Apache Kafka 4.3.1 was seen to take it.

Where Headwater may do better than Apache Kafka, both answers are named. After each test the broker
must still serve the next connection.
"""

import struct

import crc32c
import pytest

from tests.compat.broker_under_test import BASE_TIME, eventually
from tests.compat.raw import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    Raw,
    fetch,
    fetch_body,
    frame,
    stored_batches,
    string,
)

UNKNOWN_SERVER_ERROR, OUT_OF_RANGE, CORRUPT, UNKNOWN_TOPIC, TOO_LARGE = -1, 1, 2, 3, 10
INVALID_TOPIC, INVALID_ACKS, INVALID_TIMESTAMP, UNSUPPORTED_VERSION = 17, 21, 32, 35
INVALID_REQUEST, OUT_OF_ORDER, UNSUPPORTED_CODEC, INVALID_RECORD = 42, 45, 76, 87
# Apache Kafka stumbles over these and says so; a broker that looks first can name the fault.
NOT_DECODABLE = {UNKNOWN_SERVER_ERROR, CORRUPT, UNSUPPORTED_CODEC, INVALID_RECORD}


@pytest.fixture
def raw(kafka_address):
    with Raw(kafka_address) as connection:
        yield connection


@pytest.fixture(autouse=True)
def broker_still_serves(kafka_address):
    yield
    with Raw(kafka_address) as connection:
        assert connection.ask(API_VERSIONS, 0, b"") is not None


@pytest.fixture
def topic(broker):
    return broker.topic()


# -- frames


@pytest.mark.parametrize("length", [0, -1, -(2**31), 2**31 - 1])
def test_a_frame_of_an_impossible_length_closes_the_connection(raw, length):
    raw.send(struct.pack(">i", length))
    assert raw.answer() is None


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), id="TLS hello"),
        pytest.param(bytes(range(255, 0, -1)) * 40, id="garbage"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="shorter than a header"),
        pytest.param(struct.pack(">i", 400) + bytes([0, 3, 0, 1]) + b"\x7f" * 396, id="bad header"),
    ],
)
def test_noise_closes_the_connection(raw, noise):
    raw.send(noise)
    assert raw.answer() is None


def test_a_request_that_comes_a_byte_at_a_time_is_answered(raw):
    for byte in frame(API_VERSIONS, 0, b""):
        raw.send(bytes([byte]))
    assert raw.answer() is not None


def test_pipelined_requests_are_answered_in_order(raw):
    raw.send(b"".join(frame(API_VERSIONS, 0, b"", correlation=n) for n in range(50)))
    answers = [raw.answer() for _ in range(50)]
    assert [struct.unpack_from(">i", answer)[0] for answer in answers] == list(range(50))


# -- keys and versions


@pytest.mark.parametrize(
    ("api", "version"),
    [(999, 0), (-1, 0), (METADATA, 99), (METADATA, -1), (FETCH, 3), (PRODUCE, 0), (PRODUCE, 2)],
)
def test_an_api_or_a_version_that_is_not_served_closes_the_connection(raw, api, version):
    assert raw.ask(api, version, bytes(40)) is None


def test_a_body_that_ends_too_early_closes_the_connection(raw):
    assert raw.ask(METADATA, 1, struct.pack(">i", 1)) is None


def test_a_count_beyond_the_frame_closes_the_connection(raw):
    assert raw.ask(METADATA, 1, struct.pack(">i", 2**31 - 1) + bytes(20)) is None


@pytest.mark.parametrize("version", [5, 99])
def test_api_versions_too_high_answers_in_version_0_with_the_range_it_has(raw, version):
    answer = raw.ask(API_VERSIONS, version, bytes(20), tags=b"\0")
    error, count, key, low, high = struct.unpack(">hihhh", answer)
    assert (error, count, key, low) == (UNSUPPORTED_VERSION, 1, API_VERSIONS, 0)
    assert high < version


@pytest.mark.parametrize("name", ["", "-client", "bad name"])
def test_api_versions_with_a_bad_software_name_is_an_invalid_request(raw, name):
    body = bytes([len(name) + 1]) + name.encode() + b"\x022\0"
    (error,) = struct.unpack_from(">h", raw.ask(API_VERSIONS, 3, body, tags=b"\0"))
    assert error == INVALID_REQUEST


def test_produce_is_advertised_from_version_0(raw):
    answer = raw.ask(API_VERSIONS, 0, b"")
    (count,) = struct.unpack_from(">i", answer, 2)
    rows = {
        key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[6 : 6 + 6 * count])
    }
    assert rows[PRODUCE][0] == 0
    assert rows[PRODUCE][1] >= 13


# -- metadata


@pytest.mark.parametrize(
    ("name", "error"),
    [("absent", UNKNOWN_TOPIC), ("no spaces", INVALID_TOPIC), ("..", INVALID_TOPIC)],
)
def test_metadata_of_a_topic_that_cannot_be(raw, name, error):
    answer = raw.ask(METADATA, 1, struct.pack(">i", 1) + string(name))
    topics = answer.index(string(name)) - 2
    assert struct.unpack_from(">h", answer, topics)[0] == error


# -- produce


def record(value: bytes, delta: int = 0) -> bytes:
    """A record without a key or headers; all its numbers fit one byte of zigzag or two."""

    def varint(number: int) -> bytes:
        number = (number << 1) ^ (number >> 31)
        out = b""
        while number > 127:
            out += bytes([number & 127 | 128])
            number >>= 7
        return out + bytes([number])

    body = b"\0" + varint(0) + varint(delta) + b"\x01" + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def batch(
    *,
    value: bytes = b"v",
    magic: int = 2,
    attributes: int = 0,
    last_delta: int = 0,
    timestamp: int = BASE_TIME,
    producer: tuple[int, int, int] = (-1, -1, -1),
    count: int = 1,
    spoil: bool = False,
) -> bytes:
    """One batch, wrong where asked."""
    rest = struct.pack(">hiqqqhii", attributes, last_delta, timestamp, timestamp, *producer, count)
    rest += record(value)
    crc = crc32c.crc32c(rest) ^ spoil
    return struct.pack(">qiibI", 0, len(rest) + 9, -1, magic, crc) + rest


def produce_body(topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0) -> bytes:
    size = -1 if records is None else len(records)
    head = string(None) + struct.pack(">hi", acks, 5000) + struct.pack(">i", 1) + string(topic)
    return head + struct.pack(">iii", 1, partition, size) + (records or b"")


def produce(raw: Raw, topic: str, records: bytes | None, **more: int) -> int:
    """The error code of a Produce 7."""
    answer = raw.ask(PRODUCE, 7, produce_body(topic, records, **more))
    assert answer is not None, "the broker closed the connection"
    return int(struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)[0])


def test_a_good_batch_is_taken(raw, topic):
    assert produce(raw, topic, batch()) == 0
    assert [b.count for b in stored_batches(raw.bootstrap, topic)] == [1]


@pytest.mark.parametrize(
    ("records", "errors"),
    [
        pytest.param(b"", {INVALID_RECORD}, id="empty"),
        pytest.param(batch(spoil=True), {CORRUPT}, id="wrong CRC"),
        pytest.param(batch(magic=1), {INVALID_RECORD}, id="magic 1 with the layout of 2"),
        pytest.param(batch(magic=3), {CORRUPT, INVALID_RECORD}, id="unknown magic"),
        pytest.param(batch()[:-1], {INVALID_RECORD, CORRUPT}, id="cut short"),
        pytest.param(batch()[:40], {INVALID_RECORD, CORRUPT}, id="cut in the header"),
        pytest.param(batch() + batch(), {INVALID_RECORD}, id="two batches"),
        pytest.param(batch(count=2), {INVALID_RECORD}, id="count beyond the last delta"),
        pytest.param(batch(count=2, last_delta=1), {INVALID_RECORD}, id="fewer than counted"),
        pytest.param(batch(last_delta=5), {INVALID_RECORD}, id="deltas beyond the count"),
        pytest.param(batch(attributes=0x20), {INVALID_RECORD}, id="control batch"),
        pytest.param(batch(attributes=1), NOT_DECODABLE, id="says gzip and is not"),
        pytest.param(batch(attributes=5), NOT_DECODABLE, id="unknown codec"),
        pytest.param(batch(producer=(7, 0, -1)), {INVALID_RECORD}, id="producer, no sequence"),
        pytest.param(batch(timestamp=2**62), {INVALID_TIMESTAMP}, id="far in the future"),
        pytest.param(batch(value=b"x" * 1_048_589), {TOO_LARGE}, id="over max.message.bytes"),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_is_stored(raw, topic, records, errors):
    assert produce(raw, topic, records) in errors
    assert stored_batches(raw.bootstrap, topic) == []
    assert raw.ask(API_VERSIONS, 0, b"") is not None, "the connection stays open"


def test_null_for_records_is_refused(raw, topic, ours):
    """Apache Kafka 4.3.1 never answers this one."""
    assert produce(raw, topic, None) in {INVALID_RECORD, CORRUPT}


def test_a_transactional_batch_is_refused(raw, topic, ours):
    """Until there are transactions: stored, it would be an open one forever."""
    assert produce(raw, topic, batch(attributes=0x10, producer=(7, 0, 0))) != 0
    assert stored_batches(raw.bootstrap, topic) == []


def test_unknown_topics_and_partitions_are_told(raw, topic):
    assert produce(raw, "absent", batch()) == UNKNOWN_TOPIC
    assert produce(raw, topic, batch(), partition=9) == UNKNOWN_TOPIC


def test_acks_other_than_0_1_and_all_are_refused(raw, topic):
    assert produce(raw, topic, batch(), acks=2) == INVALID_ACKS


def test_acks_0_gets_no_reply(raw, topic):
    raw.send(frame(PRODUCE, 7, produce_body(topic, batch(), acks=0)))
    answer = raw.ask(API_VERSIONS, 0, b"")
    assert struct.unpack_from(">hi", answer)[0] == 0, "the next reply is to the next request"
    eventually(lambda: len(stored_batches(raw.bootstrap, topic)) == 1)


def test_acks_0_with_an_error_closes_the_connection(raw):
    raw.send(frame(PRODUCE, 7, produce_body("absent", batch(), acks=0)))
    assert raw.answer() is None


def test_a_sequence_again_is_a_duplicate_and_one_too_far_is_refused(raw, topic):
    def send(sequence):
        return produce(raw, topic, batch(producer=(4711, 0, sequence)))

    assert [send(0), send(1), send(1), send(0)] == [0, 0, 0, 0]
    assert send(5) == OUT_OF_ORDER
    assert [b.base_sequence for b in stored_batches(raw.bootstrap, topic)] == [0, 1]


# -- fetch


def test_a_fetch_beyond_the_end_is_out_of_range(kafka_address, topic):
    assert fetch(kafka_address, topic, 1)[0] == OUT_OF_RANGE
    assert fetch(kafka_address, topic, 0) == (0, b"")


def test_a_fetch_of_an_unknown_topic_is_told(kafka_address):
    assert fetch(kafka_address, "absent")[0] == UNKNOWN_TOPIC


def test_a_fetch_waits_for_records_and_then_answers(raw, topic, broker):
    raw.send(frame(FETCH, 4, fetch_body(topic, 0, max_wait_ms=20000)))
    broker.fill(topic, 1)
    assert raw.answer() is not None
