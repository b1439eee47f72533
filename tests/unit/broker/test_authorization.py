"""Every handler asks before it acts: with an authorizer that says no, nothing is told or done."""

import pytest

from headwater.errors import E
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.messages.topics import DeleteRecordsRequest, DeleteRecordsResponse
from tests.unit.broker.live import batch, fetch_request

NO = E.TOPIC_AUTHORIZATION_FAILED


class Nobody:
    """Says no, and notes what was asked."""

    def __init__(self):
        self.asked = []

    def authorize(self, principal, host, operation, resource_type, name):
        self.asked.append((str(principal), operation.name, resource_type.name, name))
        return False


@pytest.fixture
def nobody(live, topic):
    """The topic is there, a way to it is known, and from now on nobody may do anything."""
    authorizer, before = Nobody(), live.context.authorizer

    def use(which):
        live.context.authorizer = which
        live.context.changed()

    live.on_loop(lambda: use(authorizer))
    yield authorizer
    live.on_loop(lambda: use(before))


def test_produce_by_either_way(live, topic, client, nobody):
    for _ in range(3):
        assert client.produce(topic, batch()).error_code == NO
    assert live.replica(topic).log.log_end_offset == 0
    assert nobody.asked[0] == ("User:ANONYMOUS", "WRITE", "TOPIC", topic)


def test_a_way_learnt_before_the_rules_changed_is_not_followed(live, topic):
    with live.client() as client:
        for _ in range(2):
            assert client.produce(topic, batch()).error_code == 0
        authorizer, before = Nobody(), live.context.authorizer

        def use(which):
            live.context.authorizer = which
            live.context.changed()

        live.on_loop(lambda: use(authorizer))
        assert client.produce(topic, batch()).error_code == NO
        live.on_loop(lambda: use(before))


def test_fetch(live, topic, client, nobody):
    answer = client.ask(fetch_request({(topic, 0): 0}, max_wait_ms=30_000), FetchResponse, 12)
    assert answer.responses[0].partitions[0].error_code == NO


def test_metadata_hides_topics_and_refuses_named_ones(live, topic, client, nobody):
    assert client.ask(MetadataRequest(topics=None), MetadataResponse, 12).topics == []
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
    (told,) = client.ask(MetadataRequest(topics=wanted), MetadataResponse, 12).topics
    assert (told.error_code, told.partitions) == (NO, [])


def test_list_offsets(live, topic, client, nobody):
    row = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    wanted = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[row])
    answer = client.ask(ListOffsetsRequest(topics=[wanted]), ListOffsetsResponse, 7)
    assert answer.topics[0].partitions[0].error_code == NO


def test_delete_records(live, topic, client, nobody):
    row = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    wanted = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[row])
    answer = client.ask(DeleteRecordsRequest(topics=[wanted]), DeleteRecordsResponse, 2)
    assert answer.topics[0].partitions[0].error_code == NO


def test_producer_ids(live, client, nobody):
    answer = client.ask(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4)
    assert (answer.error_code, answer.producer_id) == (E.CLUSTER_AUTHORIZATION_FAILED, -1)
