"""A broker without a replica of a partition sends clients to the leader: seen on Apache Kafka 4.3.1."""

import pytest

from headwater.errors import E
from headwater.wire.messages.produce import ProduceRequest
from tests.compat.broker_under_test import eventually
from tests.compat.differential.batch import batch
from tests.compat.differential.peer import Peer
from tests.compat.test_answers import delete_records, epoch_end, fetch_from, list_offsets


def produce(topic):
    data = ProduceRequest.PartitionProduceData(index=0, records=batch())
    wanted = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[wanted])


def produced(peer, topic):
    return peer.call(produce(topic), 9).responses[0].partition_responses[0].error_code


def fetched(peer, topic):
    return peer.call(fetch_from(topic=topic), 12).responses[0].partitions[0].error_code


def listed(peer, topic):
    return peer.call(list_offsets(topic, -1), 7).topics[0].partitions[0].error_code


def ended(peer, topic):
    return peer.call(epoch_end(topic), 4).topics[0].partitions[0].error_code


def deleted(peer, topic):
    return peer.call(delete_records(topic, 0), 2).topics[0].partitions[0].error_code


@pytest.fixture(scope="module")
def elsewhere(three_brokers):
    """A topic with one replica, and a broker that knows of it and does not have it."""
    topic = three_brokers.topic(replicas=1)
    leader = three_brokers.hand.describe_topic(topic)[0].leader
    other = next(broker for broker in three_brokers.nodes.broker_ids if broker != leader)
    return Peer("", three_brokers.nodes.address(other)), topic


@pytest.mark.parametrize("ask", [produced, fetched, listed, ended, deleted])
def test_a_broker_without_a_replica_says_that_it_does_not_lead(ask, elsewhere):
    eventually(lambda: ask(*elsewhere) != E.UNKNOWN_TOPIC_OR_PARTITION)  # until it knows the topic
    assert ask(*elsewhere) == E.NOT_LEADER_OR_FOLLOWER
