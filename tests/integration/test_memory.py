"""A broker's memory under clients that send much, finish nothing and read nothing."""

import asyncio
import os
import select
import socket
import threading
from contextlib import ExitStack
from functools import partial

import pytest

from headwater.broker.server_connection import MAX_HELD, ServerConnection
from headwater.errors import E, KafkaError
from headwater.log.slices import FileSlice
from headwater.model import CONSUMER_OFFSETS
from headwater.records.batch import batches
from headwater.transport.frame_protocol import FIRST_BUFFER
from headwater.wire.apis import PRODUCE
from headwater.wire.framing import request_frame
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.messages.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.wire.messages.produce import ProduceResponse
from headwater.wire.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tests.unit.broker.live import Live, batch, fetch_request, produce_request, until

LIMIT = 4 << 20
LARGEST = 2 << 20
FLOOD = {"queued.max.request.bytes": str(LIMIT), "socket.request.max.bytes": str(LARGEST)}


def fill(sender: socket.socket, data: bytes) -> None:
    """Send until the broker takes no more for a moment."""
    sender.setblocking(False)
    view = memoryview(data)
    ready = select.poll()  # unlike select(), it takes descriptors of any number
    ready.register(sender, select.POLLOUT)
    while view and ready.poll(200):
        try:
            view = view[sender.send(view) :]
        except ConnectionError:
            return


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("headwater.broker.housekeeping_loop.MEMORY_CHECK_S", 0.5)


def test_a_flood_of_unfinished_requests_stays_within_the_budget(tmp_path, impatient):
    with Live(tmp_path, FLOOD) as live, live.client() as honest:
        live.create("t", max_message_bytes=str(LARGEST))
        memory = live.context.memory
        flood = [socket.create_connection(("127.0.0.1", live.port)) for _ in range(12)]
        for sender in flood:
            fill(sender, LARGEST.to_bytes(4) + bytes(LARGEST - 1))
            assert live.on_loop(lambda: memory.used) <= LIMIT + LARGEST
        assert honest.produce("t", batch(b"small")).error_code == 0
        # What needs more than there is waits until those that do not move are closed.
        assert honest.produce("t", batch(os.urandom(LARGEST // 2))).error_code == 0
        for sender in flood:
            sender.close()

        def settled() -> bool:
            (peer,) = live.context.connection_quotas.open
            return memory.used == len(peer.buffer) - FIRST_BUFFER

        until(
            lambda: live.on_loop(
                lambda: len(live.context.connection_quotas.open) == 1 and settled()
            )
        )


def test_a_broker_without_any_memory_to_spare_serves_one_request_after_another(tmp_path):
    with Live(tmp_path, {"queued.max.request.bytes": "1"}) as live, live.client() as client:
        live.create("t")
        for number in range(3):
            assert client.produce("t", batch(os.urandom(300_000))).base_offset == number
        assert client.fetch("t", 2).records
        assert live.on_loop(lambda: live.context.memory.used) <= FIRST_BUFFER


def test_a_large_request_counts_with_the_whole_buffer_that_it_keeps(tmp_path, monkeypatch):
    """The buffer may be as large as the largest request before."""
    weights = []
    with Live(tmp_path) as live, live.client() as client:
        live.create("t", max_message_bytes=str(8 << 20))
        assert client.produce("t", batch(os.urandom(6 << 20))).error_code == 0
        turns = live.context.turns
        start = turns.start_large

        def noted(steps, peer, weight):
            weights.append((weight, peer.memory.held.get(peer, 0)))
            start(steps, peer, weight)

        monkeypatch.setattr(turns, "start_large", noted)
        client.ask(DescribeGroupsRequest(groups=["g" * 1000] * 2000), DescribeGroupsResponse, 5)
    assert weights[0][0] >= 6 << 20
    assert weights[0][1] == 0, "the new buffer is a small one"


@pytest.fixture
def cold(monkeypatch):
    """Nothing is in the page cache."""
    monkeypatch.setattr(FileSlice, "send_now", lambda found, socket, most: None)


def test_cold_records_are_read_as_the_client_takes_them(tmp_path, cold):
    count, pieces = 40, []
    with Live(tmp_path, {"log.segment.bytes": "64000000"}) as live, live.client() as writer:
        live.create("t")
        for number in range(count):
            writer.produce("t", batch(b"%d" % number + os.urandom(200_000)))
        load = FileSlice.load_part
        FileSlice.load_part = lambda *part: pieces.append(part[2]) or load(*part)
        try:
            with live.client() as reader:
                reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
                ask = fetch_request({("t", 0): 0}, partition_max_bytes=50 << 20)
                numbers = [reader.send(ask, 12) for _ in range(2)]
                until(lambda: pieces)
                assert live.on_loop(lambda: live.context.memory.used) <= 2 << 20
                for number in numbers:
                    answer = reader.answer(FetchResponse, 12, number)
                    records = bytes(answer.responses[0].partitions[0].records)
                    assert [h.base_offset for _, h in batches(records)] == list(range(count))
        finally:
            FileSlice.load_part = load
        assert max(pieces) <= 1 << 20
        assert sum(pieces) == 2 * len(records)
        until(lambda: live.on_loop(lambda: live.context.memory.used) < 1 << 20)


def test_records_that_vanish_while_they_are_sent_close_the_connection(tmp_path, cold):
    with Live(tmp_path, {"log.segment.bytes": "64000000"}) as live, live.client() as writer:
        live.create("t")
        for _ in range(10):
            writer.produce("t", batch(os.urandom(900_000)))
        active = live.replica("t").log.segments.active
        with live.client() as reader:
            reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
            reader.send(fetch_request({("t", 0): 0}, partition_max_bytes=50 << 20), 12)
            reader.socket.recv(1)
            live.on_loop(lambda: setattr(active, "truncation_count", active.truncation_count + 1))
            got = 1
            while piece := reader.socket.recv(1 << 20):
                got += len(piece)
            assert got < active.size
        assert writer.produce("t", batch(b"on")).error_code == 0


def test_batches_that_wait_for_a_codec_hold_up_their_client_alone(tmp_path):
    size, count = 400_000, 30
    one = batch(*(os.urandom(size // 20).hex().encode()[: size // 10] for _ in range(10)))
    with Live(tmp_path) as live, live.client() as busy, live.client() as other:
        live.create("gz", compression_type="gzip", max_message_bytes=str(1 << 20))
        live.create("plain")
        request = produce_request("gz", one)
        sending = threading.Thread(target=lambda: [busy.send(request, 9) for _ in range(count)])
        sending.start()
        most = 0
        for number in range(1, count + 1):
            assert other.produce("plain", batch(b"x")).error_code == 0
            most = max(most, live.on_loop(lambda: live.context.memory.used))
            answer = busy.answer(ProduceResponse, 9, number)
            assert answer.responses[0].partition_responses[0].error_code == 0
        sending.join()
        assert len(one) <= most < MAX_HELD + 4 * len(one) < count * len(one)
        held = [peer._held_bytes for peer in live.context.connection_quotas.open]
        assert not any(held)


def test_small_batches_that_wait_for_a_coordinator_stay_within_the_budget(tmp_path):
    count, clients = 40, 30
    refused = KafkaError(E.INVALID_TXN_STATE)

    def refuse(*asked) -> None:
        asyncio.get_running_loop().call_soon(asked[-1], refused)

    with Live(tmp_path, FLOOD) as live, ExitStack() as opened:
        live.create("t")
        waiting = []
        live.on_loop(
            lambda: setattr(live.context.verifier, "verify", lambda *asked: waiting.append(asked))
        )
        peers = [opened.enter_context(live.client()) for _ in range(clients)]
        sending = []
        for producer_id, peer in enumerate(peers):
            one = batch(
                os.urandom(50_000),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            request = produce_request("t", one)
            request.transactional_id = "x"
            frames = b"".join(
                request_frame(PRODUCE, 9, number, "c", request) for number in range(count)
            )
            sending.append(threading.Thread(target=peer.send_bytes, args=(frames,)))
            sending[-1].start()
        served = live.context.connection_quotas.open

        def read_as_far_as_they_are() -> bool:
            return all(
                peer.held or peer.frames_read >= count for peer in served if peer.frames_read
            ) and clients <= sum(1 for peer in served if peer.frames_read)

        until(lambda: live.on_loop(read_as_far_as_they_are))
        used = live.on_loop(lambda: live.context.memory.used)
        assert 3 * LIMIT // 4 < used < LIMIT + clients * 64 * 1024
        live.on_loop(lambda: setattr(live.context.verifier, "verify", refuse))
        for *_, done in waiting:
            live.on_loop(partial(done, refused))
        for peer in peers:
            for number in range(count):
                answer = peer.answer(ProduceResponse, 9, number)
                assert answer.responses[0].partition_responses[0].error_code == refused.code
        for one_of_them in sending:
            one_of_them.join()


def test_offsets_that_wait_for_a_coordinator_hold_up_their_client(tmp_path):
    count, offsets = 100, 300
    refused = KafkaError(E.INVALID_TXN_STATE)
    row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0)
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[row] * offsets)
        ],
    )
    find = FindCoordinatorRequest(key="g")
    with Live(tmp_path) as live, live.client() as peer:
        live.create("t")
        until(lambda: peer.ask(find, FindCoordinatorResponse, 2).error_code == E.NONE)
        until(lambda: live.replica(CONSUMER_OFFSETS).is_leader)
        waiting = []
        live.on_loop(
            lambda: setattr(live.context.verifier, "verify", lambda *asked: waiting.append(asked))
        )
        numbers = [peer.send(request, 3) for _ in range(count)]

        def held() -> list[ServerConnection]:
            return [one for one in live.context.connection_quotas.open if one.held]

        until(lambda: live.on_loop(held))
        (served,) = live.on_loop(held)
        used = live.on_loop(lambda: live.context.memory.used)
        assert MAX_HELD < used < MAX_HELD + (1 << 20)
        assert served.frames_read < count

        def refuse(*asked) -> None:
            asyncio.get_running_loop().call_soon(asked[-1], refused)

        live.on_loop(lambda: setattr(live.context.verifier, "verify", refuse))
        live.on_loop(lambda: waiting[0][-1](refused))
        for number in numbers:
            answer = peer.answer(TxnOffsetCommitResponse, 3, number)
            assert answer.topics[0].partitions[0].error_code == refused.code
        assert live.on_loop(lambda: served._held_bytes) == 0


def test_an_answered_poll_keeps_no_records_until_its_deadline(tmp_path):
    with Live(tmp_path) as live, live.client() as writer, live.client() as reader:
        live.create("t")
        replica = live.replica("t")
        numbers = []
        for offset in range(20):
            ask = fetch_request({("t", 0): offset}, max_wait_ms=300_000)
            number = reader.send(ask, 12)
            until(lambda: replica.watchers)
            writer.produce("t", batch(os.urandom(20_000)))
            assert reader.answer(FetchResponse, 12, number).responses
            numbers.append(number)
        assert len(live.context.purgatory) >= len(numbers), "they are still parked"
        kept = live.on_loop(lambda: _bytes_behind(live.context.purgatory))
        assert kept < 20_000


def _bytes_behind(parked) -> int:
    """Bytes of buffers that the parked ones lead to."""
    seen: set[int] = set()
    queue, total = [waiter for _, _, waiter in parked._heap], 0
    for waiter in queue:
        buffers = waiter.request.buffers or []
        found = [part.records for part in waiter.parts]
        for buffer in [*buffers, *found]:
            if buffer is not None and id(buffer) not in seen:
                seen.add(id(buffer))
                total += len(buffer)
    return total
