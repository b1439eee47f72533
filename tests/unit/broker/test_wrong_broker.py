"""A partition that other brokers have is not unknown: its clients are told to look for the leader."""

import pytest

from headwater.errors import E
from headwater.model import LEADER_DURING_DELETE
from headwater.wire.messages.control import UpdateMetadataRequest
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from headwater.wire.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from headwater.wire.messages.topics import DeleteRecordsRequest, DeleteRecordsResponse
from tests.unit.broker.live import batch, fetch_request
from tests.unit.broker.test_control import now, receive

NAME, ID = "elsewhere", b"\x0e" * 16
LEADER, EPOCH = 9, 4
DeletedTopic = DeleteRecordsRequest.DeleteRecordsTopic
ListedTopic = ListOffsetsRequest.ListOffsetsTopic
DescribedTopic = DescribeProducersRequest.TopicRequest


def tell(live, leader):
    state = UpdateMetadataRequest.UpdateMetadataPartitionState(
        leader=leader, leader_epoch=EPOCH, replicas=[LEADER], isr=[LEADER]
    )
    topic = UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name=NAME, topic_id=ID, partition_states=[state]
    )
    receive(live, UpdateMetadataRequest(controller_id=1, topic_states=[topic], **now(live)))


@pytest.fixture(autouse=True)
def elsewhere(live):
    tell(live, LEADER)
    yield
    tell(live, LEADER_DURING_DELETE)


def listed(client, index):
    row = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListedTopic(name=NAME, partitions=[row])])
    return client.ask(request, ListOffsetsResponse, 7).topics[0].partitions[0]


def deleted(client, index):
    row = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=0)
    request = DeleteRecordsRequest(topics=[DeletedTopic(name=NAME, partitions=[row])])
    return client.ask(request, DeleteRecordsResponse, 2).topics[0].partitions[0]


def described(client, index):
    topic = DescribedTopic(name=NAME, partition_indexes=[index])
    request = DescribeProducersRequest(topics=[topic])
    return client.ask(request, DescribeProducersResponse, 0).topics[0].partitions[0]


@pytest.mark.parametrize(
    "ask",
    [
        lambda client, index: client.produce(NAME, batch(), partition=index),
        lambda client, index: client.fetch(NAME, partition=index),
        listed,
        deleted,
        described,
    ],
    ids=["produce", "fetch", "list offsets", "delete records", "describe producers"],
)
def test_a_broker_without_a_replica_says_that_it_does_not_lead(client, ask):
    assert ask(client, 0).error_code == E.NOT_LEADER_OR_FOLLOWER
    assert ask(client, 1).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_it_tells_who_leads(client):
    refused = client.produce(NAME, batch(), version=10).current_leader
    assert (refused.leader_id, refused.leader_epoch) == (LEADER, EPOCH)
    request = fetch_request({(ID, 0): 0}, version=16)
    fetched = client.ask(request, FetchResponse, 16).responses[0].partitions[0]
    assert fetched.error_code == E.NOT_LEADER_OR_FOLLOWER
    known = fetched.current_leader
    assert (known.leader_id, known.leader_epoch) == (LEADER, EPOCH)
