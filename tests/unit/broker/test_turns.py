"""Long requests: steps that let the event loop turn, a limit on their items, bounded memory."""

import asyncio
from collections import deque
from types import SimpleNamespace

import pytest

from headwater.broker.request import Request
from headwater.broker.turns import ELEMENTS_A_TURN, Turns, each, finish
from headwater.errors import E
from headwater.model import CONSUMER_OFFSETS
from headwater.wire import codec
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
from headwater.wire.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from headwater.wire.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.unit.broker.live import Closed

MANY = 20_000
HERE = SimpleNamespace(gone=False)


def names(count=MANY):
    return [f"x{number:05d}" for number in range(count)]


def fetch():
    rows = [FetchRequest.FetchPartition(partition=n, partition_max_bytes=1) for n in range(MANY)]
    topic = FetchRequest.FetchTopic(topic="no", partitions=rows)
    return FetchRequest(replica_id=-1, max_wait_ms=0, topics=[topic]), FetchResponse, 11


def metadata():
    rows = [MetadataRequest.MetadataRequestTopic(name=name) for name in names()]
    return MetadataRequest(topics=rows, allow_auto_topic_creation=False), MetadataResponse, 4


def find_coordinator():
    return FindCoordinatorRequest(coordinator_keys=names()), FindCoordinatorResponse, 4


def describe_groups():
    return DescribeGroupsRequest(groups=names()), DescribeGroupsResponse, 0


def delete_groups():
    return DeleteGroupsRequest(groups_names=names()), DeleteGroupsResponse, 1


def offset_fetch():
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(
        name="t", partition_indexes=list(range(MANY))
    )
    return OffsetFetchRequest(group_id="g", topics=[topic]), OffsetFetchResponse, 5


def offset_commit():
    rows = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=n)
        for n in range(MANY)
    ]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="turns", partitions=rows)
    return OffsetCommitRequest(group_id="g", topics=[topic]), OffsetCommitResponse, 6


def list_offsets():
    rows = [
        ListOffsetsRequest.ListOffsetsPartition(partition_index=n, timestamp=-1)
        for n in range(MANY)
    ]
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=rows)
    return ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse, 1


def epoch_ends():
    rows = [OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=n) for n in range(MANY)]
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=rows)
    return OffsetForLeaderEpochRequest(topics=[topic]), OffsetForLeaderEpochResponse, 3


def describe_producers():
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=list(range(MANY)))
    return DescribeProducersRequest(topics=[topic]), DescribeProducersResponse, 0


def delete_topics():
    return DeleteTopicsRequest(topic_names=names(), timeout_ms=9000), DeleteTopicsResponse, 4


def describe_configs():
    rows = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=name)
        for name in names()
    ]
    return DescribeConfigsRequest(resources=rows), DescribeConfigsResponse, 1


def alter_configs():
    rows = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=name)
        for name in names()
    ]
    return IncrementalAlterConfigsRequest(resources=rows), IncrementalAlterConfigsResponse, 0


def replace_configs():
    rows = [
        AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=name)
        for name in names()
    ]
    return AlterConfigsRequest(resources=rows), AlterConfigsResponse, 0


def leave_group():
    rows = [LeaveGroupRequest.MemberIdentity(member_id=name) for name in names()]
    return LeaveGroupRequest(group_id="g", members=rows), LeaveGroupResponse, 3


def delete_records():
    rows = [
        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
        for _ in range(MANY)
    ]
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="turns", partitions=rows)
    return DeleteRecordsRequest(topics=[topic], timeout_ms=9000), DeleteRecordsResponse, 0


def create_topics():
    rows = [
        CreateTopicsRequest.CreatableTopic(name="a b", num_partitions=1, replication_factor=1)
        for _ in range(MANY)
    ]
    return CreateTopicsRequest(topics=rows, validate_only=True), CreateTopicsResponse, 2


LONG = [
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
    request, response, version = make()
    before = live.on_loop(lambda: live.context.turns.taken)
    answer = client.ask(request, response, version)
    assert answer is not None
    taken = live.on_loop(lambda: live.context.turns.taken) - before
    needed = (steps_to_decode(request, version) + MANY) // ELEMENTS_A_TURN
    assert taken >= needed, "it was handled in fewer steps than its items need"
    assert client.ask(MetadataRequest(topics=[]), MetadataResponse, 4).topics == []


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
        request = Request(connection, 15, 4, 7, "test")

        def ask():
            for _ in range(first):
                yield
            groups = each(range(second), lambda _: DescribeGroupsResponse.DescribedGroup())
            request.reply_in_turns(DescribeGroupsResponse(groups=groups))

        request.reply_in_turns(ask())
        while connection.context.turns._waiting:
            assert connection.holds > 0
            await asyncio.sleep(0)
        assert request.answered
        assert connection.holds == 0

    asyncio.run(run())


class HeldConnection:
    """Counts holds."""

    def __init__(self):
        self.context = SimpleNamespace(turns=Turns())
        self.slots = deque()
        self.holds, self.gone = 0, False

    def hold(self):
        self.holds += 1

    def release(self):
        self.holds -= 1
        assert self.holds >= 0

    def answer_made(self, buffers):
        pass

    def slot_filled(self, slot):
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
