"""A short request that names one thing many times has a short answer."""

import pytest

from headwater.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from headwater.wire.messages.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from headwater.wire.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from headwater.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.unit.broker.live import until

TIMES = 3000

Resource = DescribeConfigsRequest.DescribeConfigsResource
Group = OffsetFetchRequest.OffsetFetchRequestGroup
Topic = DescribeProducersRequest.TopicRequest


def of_broker(*keys):
    return Resource(resource_type=4, resource_name="1", configuration_keys=list(keys) or None)


def repeated():
    """Requests with their responses, versions, lists of answers, and how many there must be."""
    yield (
        DescribeConfigsRequest(
            resources=[of_broker(), of_broker("log.dirs"), of_broker("log.dirs")]
            + [of_broker()] * TIMES
        ),
        DescribeConfigsResponse, 4, "results", 3,
    )  # fmt: skip
    yield (
        DescribeGroupsRequest(groups=["g"] * TIMES + ["h"]),
        DescribeGroupsResponse,
        5,
        "groups",
        2,
    )
    yield (
        DescribeTransactionsRequest(transactional_ids=["a"] * TIMES + ["b"]),
        DescribeTransactionsResponse, 0, "transaction_states", 2,
    )  # fmt: skip
    yield (
        OffsetFetchRequest(groups=[Group(group_id="g", topics=None)] * TIMES),
        OffsetFetchResponse, 8, "groups", 1,
    )  # fmt: skip
    yield (
        DescribeProducersRequest(topics=[Topic(name="once", partition_indexes=[0] * TIMES)] * 3),
        DescribeProducersResponse, 0, "topics", 1,
    )  # fmt: skip


@pytest.mark.parametrize("case", list(repeated()), ids=lambda case: type(case[0]).__name__)
def test_what_is_named_many_times_is_answered_once(client, case):
    request, kind, version, field, count = case
    answers = getattr(client.ask(request, kind, version), field)
    assert len(answers) == count
    if field == "topics":
        assert len(answers[0].partitions) == 1


def test_a_group_may_be_named_with_several_lists_of_topics(live, client):
    live.create("listed", 2)
    find = FindCoordinatorRequest(coordinator_keys=["lists"])
    assert not client.ask(find, FindCoordinatorResponse, 4).coordinators[0].error_code
    until(lambda: live.on_loop(live.context.groups.active_shards))
    rows = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=n, committed_offset=n)
        for n in range(2)
    ]
    commit = OffsetCommitRequest(
        group_id="lists",
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="listed", partitions=rows)],
    )
    answer = client.ask(commit, OffsetCommitResponse, 8)
    assert {row.error_code for row in answer.topics[0].partitions} == {0}
    lists = [
        Group(
            group_id="lists",
            topics=[
                OffsetFetchRequest.OffsetFetchRequestTopics(name="listed", partition_indexes=[n])
            ],
        )
        for n in range(2)
    ]
    answer = client.ask(OffsetFetchRequest(groups=lists), OffsetFetchResponse, 8)
    found = [group.topics[0].partitions[0].committed_offset for group in answer.groups]
    assert found == [0, 1]
