"""Offsets in a transaction, from a member that has left its group; the tables show the rest."""

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headwater.errors import E
from tests.compat.broker_under_test import eventually

WAIT_S = 60


def test_a_member_of_an_older_generation_cannot_commit_offsets(
    broker, kafka_address, transactional
):
    topic, group = broker.topic(2), broker.fresh("group")
    producer = Producer(
        {
            "bootstrap.servers": kafka_address,
            "transactional.id": broker.fresh("id"),
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    left = Consumer({"bootstrap.servers": kafka_address, "group.id": group})
    left.subscribe([topic])
    eventually(lambda: left.poll(0.5) is None and len(left.assignment()) == 2, WAIT_S)
    member = left.consumer_group_metadata()
    left.close()
    producer.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], member, WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    assert refused.value.args[0].code() in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION)
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"next", partition=0)
    producer.produce(topic, b"next", partition=1)
    producer.commit_transaction(WAIT_S)
    program = transactional["confluent-kafka"].program()
    assert program.read(broker, topic, 2, "read_committed") == [["next"], ["next"]]
