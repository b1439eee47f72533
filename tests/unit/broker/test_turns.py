"""Long requests: steps that let the event loop turn, a limit on their items, bounded memory."""

import asyncio
import gc
import tracemalloc
from collections import deque
from types import SimpleNamespace

import pytest

from headwater.broker.apis import MAX_CHANGED, SERVED
from headwater.broker.metrics import BrokerMetrics
from headwater.broker.request import Request
from headwater.broker.turns import ELEMENTS_A_TURN, MAX_WEIGHT, Turns, drained, each, finish
from headwater.errors import E, KafkaError
from headwater.model import CONSUMER_OFFSETS
from headwater.seams.clock import SystemClock
from headwater.transport.frame_protocol import ROOMY_BUFFER
from headwater.wire import codec
from headwater.wire.framing import request_frame
from headwater.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from headwater.wire.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from headwater.wire.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.unit.broker.live import Closed, until

MANY = 10_000
MOST_TIMES = 16
"""The bytes that the broker may take for each byte of the longest request, beside a MiB."""
BACKGROUND = 512 * 1024
"""What timers and other threads of the broker may allocate meanwhile."""
TIMES_OF_PRODUCE = 28
"""The same for topics without records: each has a slice of the receive buffer, larger than itself."""
MIB = 1 << 20
HERE = SimpleNamespace(gone=False)


def names(count):
    return [f"name-{number:06d}" for number in range(count)]


def fetch(count=MANY):
    rows = [FetchRequest.FetchPartition(partition=n, partition_max_bytes=1) for n in range(count)]
    topic = FetchRequest.FetchTopic(topic="no", partitions=rows)
    return FetchRequest(replica_id=-1, max_wait_ms=0, topics=[topic]), FetchResponse, 11


def metadata(count=MANY):
    rows = [MetadataRequest.MetadataRequestTopic(name=name) for name in names(count)]
    return MetadataRequest(topics=rows, allow_auto_topic_creation=False), MetadataResponse, 4


def find_coordinator(count=MANY):
    return FindCoordinatorRequest(coordinator_keys=names(count)), FindCoordinatorResponse, 4


def describe_groups(count=MANY):
    return DescribeGroupsRequest(groups=names(count)), DescribeGroupsResponse, 0


def delete_groups(count=MANY):
    return DeleteGroupsRequest(groups_names=names(count)), DeleteGroupsResponse, 1


def offset_fetch(count=MANY):
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(
        name="t", partition_indexes=list(range(count))
    )
    return OffsetFetchRequest(group_id="g", topics=[topic]), OffsetFetchResponse, 5


def offset_commit(count=MANY):
    rows = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=n)
        for n in range(count)
    ]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="turns", partitions=rows)
    return OffsetCommitRequest(group_id="g", topics=[topic]), OffsetCommitResponse, 6


def list_offsets(count=MANY):
    rows = [
        ListOffsetsRequest.ListOffsetsPartition(partition_index=n, timestamp=-1)
        for n in range(count)
    ]
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=rows)
    return ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse, 1


def epoch_ends(count=MANY):
    rows = [OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=n) for n in range(count)]
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=rows)
    return OffsetForLeaderEpochRequest(topics=[topic]), OffsetForLeaderEpochResponse, 3


def describe_producers(count=MANY):
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=list(range(count)))
    return DescribeProducersRequest(topics=[topic]), DescribeProducersResponse, 0


def delete_topics(count=MANY):
    return DeleteTopicsRequest(topic_names=names(count), timeout_ms=9000), DeleteTopicsResponse, 4


def describe_configs(count=MANY):
    rows = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=name)
        for name in names(count)
    ]
    return DescribeConfigsRequest(resources=rows), DescribeConfigsResponse, 1


def alter_configs(count=MANY):
    rows = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=name)
        for name in names(count)
    ]
    return IncrementalAlterConfigsRequest(resources=rows), IncrementalAlterConfigsResponse, 0


def replace_configs(count=MANY):
    rows = [
        AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=name)
        for name in names(count)
    ]
    return AlterConfigsRequest(resources=rows), AlterConfigsResponse, 0


def leave_group(count=MANY):
    rows = [LeaveGroupRequest.MemberIdentity(member_id=name) for name in names(count)]
    return LeaveGroupRequest(group_id="g", members=rows), LeaveGroupResponse, 3


def delete_records(count=MANY):
    rows = [
        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
        for _ in range(count)
    ]
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="turns", partitions=rows)
    return DeleteRecordsRequest(topics=[topic], timeout_ms=9000), DeleteRecordsResponse, 0


def create_topics(count=MANY):
    rows = [
        CreateTopicsRequest.CreatableTopic(name="a b", num_partitions=1, replication_factor=1)
        for _ in range(count)
    ]
    return CreateTopicsRequest(topics=rows, validate_only=True), CreateTopicsResponse, 2


def produce(count=MANY):
    data = ProduceRequest.PartitionProduceData(index=0, records=b"")
    topics = [
        ProduceRequest.TopicProduceData(name=name, partition_data=[data]) for name in names(count)
    ]
    return ProduceRequest(acks=-1, timeout_ms=9000, topic_data=topics), ProduceResponse, 9


LONG = [
    produce,
    fetch,
    metadata,
    find_coordinator,
    describe_groups,
    delete_groups,
    offset_fetch,
    offset_commit,
    list_offsets,
    epoch_ends,
    describe_producers,
    delete_topics,
    describe_configs,
    alter_configs,
    replace_configs,
    leave_group,
    delete_records,
    create_topics,
]
CONTROLLERS = [delete_topics, alter_configs, replace_configs, create_topics]


def steps_to_decode(request, version):
    body = codec.encode_bytes(request, version)
    return sum(1 for _ in codec.decode_in_steps(type(request), version, body, 0, len(body), 10**6))


@pytest.fixture(scope="module", autouse=True)
def prepared(live):
    live.create("turns")
    with live.client() as client:
        client.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
    assert live.on_loop(lambda: live.context.metadata.partition_count(CONSUMER_OFFSETS))


@pytest.mark.parametrize("make", LONG, ids=lambda make: make.__name__)
def test_a_long_request_is_answered_in_steps(live, client, make):
    count = min(MANY, most_items(live, make))
    request, response, version = make(count)
    before = live.on_loop(lambda: live.context.turns.taken)
    answer = client.ask(request, response, version)
    assert answer is not None
    taken = live.on_loop(lambda: live.context.turns.taken) - before
    needed = (steps_to_decode(request, version) + count) // ELEMENTS_A_TURN
    assert taken >= needed, "it was handled in fewer steps than its items need"
    assert client.ask(MetadataRequest(topics=[]), MetadataResponse, 4).topics == []
    assert holds(live) == {0}


def holds(live):
    """How often connections are held: never less than not at all."""
    return live.on_loop(lambda: {peer._holds for peer in live.context.connection_quotas.open})


@pytest.mark.parametrize("count", [ELEMENTS_A_TURN - 2, ELEMENTS_A_TURN, ELEMENTS_A_TURN + 100])
def test_a_long_request_with_a_short_answer_does_not_stop_its_connection(
    live, client, count, monkeypatch
):
    """Offsets of many partitions, asked for while the coordinator loads: one error for all."""

    def loading(*_):
        raise KafkaError(E.COORDINATOR_LOAD_IN_PROGRESS)

    monkeypatch.setattr(live.context.groups, "submit", loading)
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(
        name="turns", partition_indexes=list(range(count))
    )
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    for _ in range(3):
        answer = client.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, 9)
        assert answer.groups[0].error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert holds(live) == {0}


def most_items(live, make):
    limit = live.context.settings.max_request_elements
    return min(limit, MAX_CHANGED) - 1 if make in CONTROLLERS else limit - 1


def peak_memory(live, request, version):
    """The bytes of a request, and the most that were taken while it was handled and answered."""
    frame = request_frame(request.__schema__.api_key, version, 1, "t", request)
    room = bytearray(1 << 16)
    with live.client() as client:
        live.on_loop(gc.collect)
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        client.send_bytes(frame)
        left = client.receive_size()
        while left:
            left -= client.socket.recv_into(room, min(left, len(room)))
        _, peak = tracemalloc.get_traced_memory()
    return len(frame), peak - before


@pytest.fixture
def traced_memory():
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("make", LONG, ids=lambda make: make.__name__)
def test_a_long_request_takes_bounded_memory(live, traced_memory, make):
    """A part of the longest request takes its part of the memory, beside the receive buffer."""
    request, _, version = make(1)
    peak_memory(live, request, version)
    most = most_items(live, make)
    count = min(MANY, most)
    request, _, version = make(count)
    size, peak = peak_memory(live, request, version)
    times = TIMES_OF_PRODUCE if make is produce else MOST_TIMES
    assert peak <= times * size + MIB * count // most + ROOMY_BUFFER + BACKGROUND


@pytest.mark.parametrize("make", CONTROLLERS, ids=lambda make: make.__name__)
def test_what_the_controller_must_do_has_a_lower_limit(client, make):
    request, _, version = make(MAX_CHANGED + 1)
    client.send(request, version)
    with pytest.raises(Closed):
        client.receive()


@pytest.mark.parametrize("make", LONG, ids=lambda make: make.__name__)
def test_a_request_of_too_many_items_closes_the_connection(live, client, make):
    request, _, version = make()
    settings = live.context.settings
    limit = live.context.settings.max_request_elements
    live.on_loop(lambda: vars(settings).update(max_request_elements=MANY - 1))
    try:
        client.send(request, version)
        with pytest.raises(Closed):
            client.receive()
    finally:
        live.on_loop(lambda: vars(settings).update(max_request_elements=limit))


def test_requests_behind_a_long_one_wait_for_it(live, client):
    request, response, version = metadata()
    first = client.send(request, version)
    small = MetadataRequest(topics=[])
    second = client.send(small, 4)
    assert len(client.answer(response, version, first).topics) == MANY
    assert client.answer(MetadataResponse, 4, second).topics == []


def test_offsets_of_a_long_commit_are_stored_and_read_back(live, client):
    live.create("wide", partitions=1200)
    rows = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=n, committed_offset=n)
        for n in range(1300)
    ]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="wide", partitions=rows)
    commit = OffsetCommitRequest(group_id="wide", topics=[topic])
    (answer,) = client.ask(commit, OffsetCommitResponse, 6).topics
    errors = [row.error_code for row in answer.partitions]
    assert errors == [E.NONE] * 1200 + [E.UNKNOWN_TOPIC_OR_PARTITION] * 100
    wanted = OffsetFetchRequest.OffsetFetchRequestTopic(
        name="wide", partition_indexes=list(range(1300))
    )
    fetch = OffsetFetchRequest(group_id="wide", topics=[wanted])
    (found,) = client.ask(fetch, OffsetFetchResponse, 5).topics
    assert [row.committed_offset for row in found.partitions] == [*range(1200), *[-1] * 100]


@pytest.mark.parametrize("first", [1, 3 * ELEMENTS_A_TURN])
@pytest.mark.parametrize("second", [1, 3 * ELEMENTS_A_TURN])
def test_steps_that_end_in_other_steps_hold_the_connection_no_longer_than_both(first, second):
    """A group is asked for in few steps and has many members, or the other way round."""

    async def run():
        connection = HeldConnection()
        request = Request(connection, SERVED[15], 4, 7, "test")

        def ask():
            for _ in range(first):
                yield
            groups = each(range(second), lambda _: DescribeGroupsResponse.DescribedGroup())
            request.reply_in_turns(DescribeGroupsResponse(groups=groups))

        request.reply_in_turns(ask())
        while connection.context.turns._running:
            assert connection.holds > 0
            await asyncio.sleep(0)
        assert request.answered
        assert connection.holds == 0

    asyncio.run(run())


class HeldConnection:
    """Counts holds."""

    def __init__(self):
        self.context = SimpleNamespace(
            turns=Turns(), clock=SystemClock(), metrics=BrokerMetrics(), quotas=None
        )
        self.pending = deque()
        self.holds, self.gone, self.throttle_ms = 0, False, 0

    def hold(self):
        self.holds += 1

    def release(self):
        self.holds -= 1
        assert self.holds >= 0

    def answer_made(self, buffers):
        pass

    def response_ready(self, slot):
        pass


def test_one_long_job_has_its_turn_in_a_round():
    async def run():
        turns, seen = Turns(), []

        def work(name):
            for _ in range(3 * ELEMENTS_A_TURN):
                yield
            seen.append(name)

        assert not turns.start(work("a"), HERE)
        assert not turns.start(work("b"), HERE)
        rounds = 0
        while len(seen) < 2:
            before = turns.taken
            await asyncio.sleep(0)
            rounds += 1
            assert turns.taken - before <= 1
        return seen, rounds

    seen, rounds = asyncio.run(run())
    assert seen == ["a", "b"]
    assert rounds >= 4


def test_the_job_of_a_client_that_left_is_closed():
    async def run():
        turns, ended = Turns(), []

        def work():
            try:
                while True:
                    yield
            finally:
                ended.append(True)

        peer = SimpleNamespace(gone=False)
        turns.start(work(), peer)
        await asyncio.sleep(0)
        peer.gone = True
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return ended

    assert asyncio.run(run()) == [True]


class Sender:
    """A client with one large request."""

    def __init__(self):
        self.gone = False
        self.held = 0

    def hold_bytes(self, size):
        self.held += size


def test_large_requests_are_decoded_a_few_at_a_time_and_counted_until_they_are_handled():
    weight, count = MAX_WEIGHT // 3, 50

    async def run():
        turns, decoded, handled = Turns(), [], []
        most = 0

        def handle(number):
            for _ in range(2 * ELEMENTS_A_TURN):
                yield
            handled.append(number)

        def decode(number):
            for _ in range(2 * ELEMENTS_A_TURN):
                yield
            decoded.append(number)
            turns.start(handle(number), senders[number])

        senders = [Sender() for _ in range(count)]
        for number, sender in enumerate(senders):
            turns.start_large(decode(number), sender, weight)
        assert [sender.held for sender in senders] == [weight] * count
        senders[20].gone = senders[40].gone = True
        while turns._running:
            await asyncio.sleep(0)
            most = max(most, len(decoded) - len(handled))
        left = [number for number in range(count) if number not in (20, 40)]
        assert decoded == handled == left
        assert most <= 3, "bodies of requests wait for their handlers"
        assert [sender.held for sender in senders] == [0] * count

    asyncio.run(run())


def test_what_is_worked_on_for_a_closed_connection_is_counted_once(live, client):
    """Housekeeping closes a connection that does not move, and then the connection is lost."""
    live.create("any")
    (peer,) = live.on_loop(lambda: list(live.context.connection_quotas.open))
    memory = live.context.memory

    def close():
        peer.hold_bytes(5000)
        peer.abort()
        peer.leave_budget()

    live.on_loop(close)
    until(lambda: live.on_loop(lambda: peer not in live.context.connection_quotas.open))
    assert live.on_loop(lambda: memory.held.get(peer)) == 5000
    live.on_loop(lambda: peer.hold_bytes(-5000))
    assert live.on_loop(lambda: (memory.held.get(peer), memory.working)) == (None, 0)


def test_a_request_larger_than_all_others_together_has_its_turn():
    async def run():
        turns, done, sender = Turns(), [], Sender()

        def decode(name):
            yield
            done.append(name)

        for name in "abc":
            turns.start_large(decode(name), sender, 3 * MAX_WEIGHT)
        for _ in range(4):
            await asyncio.sleep(0)
        return done

    assert asyncio.run(run()) == ["a", "b", "c"]


def test_a_job_that_fails_leaves_the_others_alone(caplog):
    async def run():
        turns, done = Turns(), []

        def bad():
            yield
            raise RuntimeError("oops")

        def good():
            for _ in range(2 * ELEMENTS_A_TURN):
                yield
            done.append(True)

        turns.start(good(), HERE)
        assert turns.start(bad(), HERE)
        for _ in range(4):
            await asyncio.sleep(0)
        assert done

    asyncio.run(run())
    assert "oops" in caplog.text


def test_each_makes_its_items_when_they_are_wanted():
    made = []
    lazy = each([1, 2, 3], lambda item: made.append(item) or item * 10)
    assert (len(lazy), made) == (3, [])
    assert next(iter(lazy)) == 10
    assert made == [1]


def test_finish_gives_what_a_generator_returns():
    def work():
        yield
        return 7

    assert finish(work()) == 7


def test_drained_items_come_in_order_and_are_let_go_of():
    items = [1, 2, 3]
    left = [(item, len(items)) for item in drained(items)]
    assert left == [(1, 2), (2, 1), (3, 0)]
