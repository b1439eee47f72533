"""Nonsense on the wire: an error or a closed connection, one line in the log, and nothing else."""

import logging
import os
import random
import struct

import pytest

from headwater.transport.wrong_protocol import NO_TLS_HERE
from headwater.wire import codec
from headwater.wire.apis import API
from headwater.wire.framing import request_frame
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.broker.live import (
    Client,
    Closed,
    Live,
    batch,
    fetch_request,
    produce_request,
    until,
)
from tests.unit.wire.samples import sample

PAGE = os.sysconf("SC_PAGE_SIZE")
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(190)
HTTP = b"GET /v3/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n"
MUTATIONS = 200
UNANSWERED = {0, 1, 11, 14}
"""Requests that may rightly wait for an answer: acks=0, long polls, joining a group."""


def memory() -> int:
    """Bytes of this process, the broker's, that are in memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    settings = {"socket.request.max.bytes": str(100 << 20), "auto.create.topics.enable": "false"}
    with Live(tmp_path_factory.mktemp("data"), settings) as broker:
        broker.create("kept", 2)
        with broker.client() as client:
            assert client.produce("kept", batch(b"before")).error_code == 0
        yield broker


@pytest.fixture(autouse=True)
def others_keep_working(live):
    """A client that was there before goes on through every attack."""
    with live.client() as client:
        before = state(live)
        yield
        assert client.produce("kept", batch(b"still here"), partition=1).error_code == 0
        assert client.fetch("kept").high_watermark == 1
        assert state(live) == before


def state(live):
    """What no nonsense may change."""
    context = live.context
    return live.on_loop(
        lambda: (
            context.metadata.topics["kept"],
            context.topic_overrides.get("kept"),
            context.replicas.get("kept", 0).log.log_end_offset,
            context.settings,
        )
    )


def header(key: int, version: int, *, flexible: bool) -> bytes:
    return struct.pack(">hhih", key, version, 1, 4) + b"evil" + (b"\0" if flexible else b"")


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4) + content


def closed_by(live, data: bytes) -> bool:
    with live.client() as client:
        try:
            client.send_bytes(data)
        except (BrokenPipeError, ConnectionResetError):
            return True
        return client.is_closed()


# -- frames


@pytest.mark.parametrize("size", [0, -1, 1, 7, 2**31 - 1, -(2**31), (100 << 20) + 1])
def test_an_impossible_frame_size_closes_the_connection(live, size):
    assert closed_by(live, size.to_bytes(4, signed=True))


@pytest.mark.parametrize(
    "data",
    [
        HTTP,
        b"\xff" * 64,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        framed(random.Random(64).randbytes(64)),
        framed(b"\x7f\xff" + bytes(100)),
        framed(bytes(8)),
    ],
)
def test_what_is_not_kafka_is_hung_up_on(live, data):
    assert closed_by(live, data)


def test_half_a_frame_costs_nobody_else_anything(live):
    with live.client() as half:
        half.send_bytes(framed(header(3, 9, flexible=True) + bytes(1000))[:500])
        with live.client() as client:
            assert client.ask(MetadataRequest(topics=[]), MetadataResponse, 9).brokers


def test_announced_frames_cost_memory_only_as_they_come(live):
    before = memory()
    clients = [live.client() for _ in range(50)]
    try:
        for client in clients:
            client.send_bytes((100 << 20).to_bytes(4) + bytes(20_000))
        until(lambda: live.on_loop(lambda: sum(c._end >= 20_004 for c in open_now(live))) >= 50)
        assert memory() - before < 32 << 20
    finally:
        for client in clients:
            client.socket.close()
    until(lambda: live.on_loop(lambda: not any(c._end >= 20_004 for c in open_now(live))))


def open_now(live):
    return live.context.connection_quotas.open


# -- counts


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


TAGS = 20_000_000


def test_twenty_million_tagged_fields_in_a_header(live):
    before = memory()
    start = struct.pack(">hhih", 18, 4, 1, 4) + b"evil" + uvarint(TAGS)
    with live.client() as client:
        size = len(start) + 2 * TAGS
        client.send_bytes(size.to_bytes(4) + start)
        piece = bytes(1 << 20)
        try:
            for _ in range(2 * TAGS // len(piece) + 1):
                client.send_bytes(piece)
            client.receive()
            raise AssertionError("nobody should answer this")
        except (Closed, BrokenPipeError, ConnectionResetError):
            pass
    until(lambda: memory() - before < 2 * 2 * TAGS + (48 << 20))


def test_twenty_million_tagged_fields_in_a_body(live):
    body = header(18, 4, flexible=True) + b"\2a\2b" + uvarint(TAGS) + bytes(1000)
    assert closed_by(live, framed(body))


@pytest.mark.parametrize("count", [2**31 - 1, 2**24, 100_000])
@pytest.mark.parametrize(
    ("key", "version", "before"),
    [
        (3, 8, b""),
        (3, 12, b""),
        (0, 8, struct.pack(">hhi", -1, 1, 1000)),
        (0, 11, b"\0" + struct.pack(">hi", 1, 1000)),
        (1, 11, struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, -1)),
        (2, 7, struct.pack(">ib", -1, 0)),
        (19, 5, b""),
        (32, 4, b""),
    ],
)
def test_a_count_that_the_bytes_cannot_hold(live, key, version, before, count):
    memory_before = memory()
    flexible = version >= API[key].flexible_from
    counted = uvarint(count + 1) if flexible else struct.pack(">i", count)
    assert closed_by(live, framed(header(key, version, flexible=flexible) + before + counted))
    assert memory() - memory_before < 16 << 20


def test_counts_within_counts(live):
    """Each topic claims as many partitions as its bytes could hold at best."""
    before = memory()
    topic = b"\2t" + uvarint(10_000) + b""
    body = b"\0" + struct.pack(">hi", 1, 1000) + uvarint(10_001) + topic * 2500
    assert closed_by(live, framed(header(0, 11, flexible=True) + body))
    assert memory() - before < 16 << 20


# -- versions and keys


def test_versions_and_keys_that_are_not_served(live):
    for key in (-1, 4, 5, 6, 7, 38, 52, 68, 71, 999, 32767, -32768):
        assert closed_by(live, framed(header(key, 0, flexible=False) + bytes(50))), key
    for api in API.values():
        if api.advertised is None or api.key == 18:
            continue
        for version in (api.served.lowest - 1, api.served.highest + 1, -1, 32767):
            assert closed_by(live, framed(header(api.key, version, flexible=False) + bytes(50)))


def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest_form(live):
    for version in (5, 99, -1, 32767):
        with live.client() as client:
            client.send_bytes(framed(header(18, version, flexible=version > 2) + b"\2a\2b\0"))
            answer = client.answer(ApiVersionsResponse, 0, 1)
            assert answer.error_code == 35
            assert [(row.api_key, row.min_version) for row in answer.api_keys] == [(18, 0)]
            again = client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
            assert again.error_code == 0


def test_a_software_name_with_control_characters_is_refused(live):
    with live.client() as client:
        request = ApiVersionsRequest(client_software_name="a\nb", client_software_version="1")
        assert client.ask(request, ApiVersionsResponse, 3).error_code == 42


# -- every API, a little wrong


def valid_requests():
    """One request of each API and version that a broker would take."""
    randomness = random.Random(7)
    for api in API.values():
        if api.advertised is None:
            continue
        for version in {api.served.lowest, api.served.highest}:
            request = sample(api.request, version, randomness)
            yield api, version, tamed(request)


def tamed(request):
    """Without what makes a broker wait or write: those are other tests."""
    for name, value in (
        ("max_wait_ms", 0),
        ("timeout_ms", 1),
        ("validate_only", True),
        ("acks", 1),
        ("session_timeout_ms", 6000),
        ("rebalance_timeout_ms", 100),
    ):
        if hasattr(request, name):
            setattr(request, name, value)
    return request


@pytest.mark.parametrize("key", sorted(k for k, api in API.items() if api.advertised is not None))
def test_two_hundred_mutations_of_a_valid_request(live, key, caplog):
    caplog.set_level(logging.ERROR, logger="headwater")
    randomness = random.Random(key)
    before = memory()
    frames = [
        request_frame(api.key, version, 77, "mutant", request)
        for api, version, request in valid_requests()
        if api.key == key
    ]
    for number in range(MUTATIONS):
        mutant = mutated(randomness.choice(frames), randomness, number)
        with live.client() as client:
            try:
                client.send_bytes(mutant)
                # What comes after a request that is still read as one must get its answer.
                client.send(ApiVersionsRequest(), 0)
                client.socket.settimeout(0.001 if key in UNANSWERED else 10)
                client.receive()
            except (Closed, BrokenPipeError, ConnectionResetError):
                pass
            except TimeoutError:
                assert key in UNANSWERED, mutant
    assert memory() - before < 48 << 20
    assert not [record for record in caplog.records if record.exc_info], caplog.text


def mutated(frame: bytes, randomness: random.Random, number: int) -> bytes:
    """The frame with its header left alone and something in its body changed."""
    body = bytearray(frame[4:])
    start = min(16, len(body) - 1)
    match number % 4:
        case 0:
            for _ in range(randomness.choice((1, 1, 2, 8))):
                body[randomness.randrange(start, len(body))] = randomness.randrange(256)
        case 1:
            del body[randomness.randrange(start, len(body)) :]
        case 2:
            at = randomness.randrange(start, len(body))
            body[at:at] = randomness.randbytes(randomness.choice((1, 4, 40)))
        case _:
            at = randomness.randrange(start, len(body))
            extreme = randomness.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(8)))
            body[at : at + len(extreme)] = extreme
    return framed(bytes(body))


# -- the log of the broker


def test_a_million_offences_would_be_a_few_lines_and_cannot_forge_any(live, caplog):
    caplog.set_level(logging.WARNING, logger="headwater")
    evil = "evil\nERROR forged line\x1b[31m"
    frame = request_frame(3, 9, 1, evil, MetadataRequest(topics=[]))
    for _ in range(30):
        assert closed_by(live, framed(frame[4:-1] + b"\xff\xff"))
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) <= 2
    assert not any(set(line) & {"\n", "\x1b"} for line in lines)


def test_a_topic_name_never_leaves_the_log_dirs(live):
    with live.client() as client:
        for name in ("..", ".", "../../etc", "a/b", "/etc/passwd", "a\0b", "é", "x" * 250, ""):
            assert client.produce(name, batch()).error_code in {3, 17}
            assert client.fetch(name).error_code in {3, 17}
            wanted = MetadataRequest.MetadataRequestTopic(name=name)
            answer = client.ask(
                MetadataRequest(topics=[wanted], allow_auto_topic_creation=True),
                MetadataResponse,
                9,
            )
            assert answer.topics[0].error_code in {3, 17}


def test_names_of_groups_and_transactions_are_in_no_path(tmp_path):
    """They are only in the records of internal topics."""
    name = "../../leaving"
    settings = {"transaction.state.log.num.partitions": "1", "auto.create.topics.enable": "true"}
    with Live(tmp_path / "a" / "data", settings) as live, live.client() as client:
        live.create("kept")
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=0)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="kept", partitions=[partition])
        commit = OffsetCommitRequest(
            group_id=name, generation_id_or_member_epoch=-1, topics=[topic]
        )
        new_id = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)

        def both_are_stored():
            for kind in (0, 1):
                find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
                client.ask(find, FindCoordinatorResponse, 6)
            committed = client.ask(commit, OffsetCommitResponse, 9).topics[0].partitions[0]
            started = client.ask(new_id, InitProducerIdResponse, 4)
            return committed.error_code == started.error_code == 0

        until(both_are_stored)
    paths = [str(path) for path in tmp_path.rglob("*")]
    assert any("__consumer_offsets" in path for path in paths)
    assert any("__transaction_state" in path for path in paths)
    assert not any("leaving" in path for path in paths)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_requests_and_answers_of_a_healthy_client_are_untouched_by_all_that(live):
    with live.client() as client:
        client.send(produce_request("kept", batch(), partition=1), 9)
        client.send(fetch_request({("kept", 1): 0}), 12)
        client.receive()
        client.receive()


def test_every_served_api_was_attacked():
    served = {key for key, api in API.items() if api.advertised is not None}
    assert {api.key for api, _, _ in valid_requests()} == served
    for api, version, request in valid_requests():
        assert codec.encode_bytes(request, version) is not None, api.name


def test_a_client_with_tls_gets_an_alert_of_tls(live):
    with Client(live.port) as client:
        client.send_bytes(TLS_HELLO)
        assert client.socket.recv(64) == NO_TLS_HERE
        assert client.is_closed()


# -- asking for much and taking nothing


def private_memory() -> int:
    """Bytes that this process holds for itself, without pages of files."""
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


@pytest.fixture(scope="module")
def large(live):
    live.create("large")
    with live.client() as client:
        for _ in range(16):
            assert client.produce("large", batch(os.urandom(1_000_000))).error_code == 0
    return {"partition_max_bytes": 16 << 20, "max_bytes": 16 << 20}


def test_a_client_that_asks_for_much_and_reads_nothing_costs_one_answer(live, large):
    before = private_memory()
    with live.client() as greedy:
        for _ in range(40):
            greedy.send(fetch_request({("large", 0): 0}, **large), 12)
        with live.client() as other:
            for _ in range(20):
                other.fetch("kept")
                assert private_memory() - before < 100 << 20
        answer = len(greedy.receive())
        assert answer > 15 << 20
        for _ in range(3):
            assert len(greedy.receive()) == answer, "the next one comes once this one is read"


def test_polls_of_one_client_that_all_come_true_cost_a_few_answers(live, large):
    before = private_memory()
    with live.client() as greedy:
        end = live.replica("large").log.log_end_offset
        waits = {"max_wait_ms": 20_000, "min_bytes": 15_500_000}
        for _ in range(40):
            greedy.send(fetch_request({("large", 0): end - 15}, **large, **waits), 12)
        until(lambda: live.replica("large").watchers)
        with live.client() as other:
            other.produce("large", batch(os.urandom(1_000_000)))
            for _ in range(20):
                other.fetch("kept")
                assert private_memory() - before < 100 << 20
        assert len(greedy.receive()) > 15_500_000
