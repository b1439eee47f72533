"""Transactions of librdkafka: commit, abort, fence, time out, offsets; the same holds of Apache Kafka."""

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as Librdkafka

from headwater.errors import E
from tests.compat.broker_under_test import eventually

WAIT_S = 60


@pytest.fixture
def topic(broker):
    return broker.topic(2)


@pytest.fixture
def start(kafka_address, broker):
    """Starts transactional producers with one id."""
    name = broker.fresh("id")
    quiet = {"log_level": 0, "bootstrap.servers": kafka_address}

    def producer(**settings):
        made = Producer({**quiet, "transactional.id": name, **settings})
        made.init_transactions(WAIT_S)
        return made

    return producer


def send(producer, topic, *values):
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(WAIT_S) == 0


def read(address, topic, count, isolation="read_committed"):
    """The values in both partitions up to the last stable offset, of which there are `count`."""
    settings = {
        "bootstrap.servers": address,
        "group.id": "unused",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
        found, ended = [], set()
        while len(found) < count or len(ended) < 2:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{found} are not {count}"
            error = message.error()
            if error is None:
                found.append(message.value())
            else:
                assert error.code() == Librdkafka._PARTITION_EOF, error
                ended.add(message.partition())
        return sorted(found)
    finally:
        consumer.close()


def test_committed_records_are_read_and_aborted_ones_are_not(start, topic, kafka_address):
    producer = start()
    for round_ in (b"1", b"2", b"3"):
        producer.begin_transaction()
        send(producer, topic, b"kept" + round_, b"too" + round_)
        producer.commit_transaction(WAIT_S)
        producer.begin_transaction()
        send(producer, topic, b"aborted", b"too")
        producer.abort_transaction(WAIT_S)
    kept = [b"kept1", b"kept2", b"kept3", b"too1", b"too2", b"too3"]
    assert read(kafka_address, topic, 6) == kept
    assert len(read(kafka_address, topic, 12, "read_uncommitted")) == 12


def test_a_newer_instance_fences_the_older_one(start, topic, kafka_address):
    older = start()
    older.begin_transaction()
    send(older, topic, b"lost")
    newer = start()
    with pytest.raises(KafkaException) as fenced:
        older.commit_transaction(WAIT_S)
    assert fenced.value.args[0].fatal()
    newer.begin_transaction()
    send(newer, topic, b"kept")
    newer.commit_transaction(WAIT_S)
    assert read(kafka_address, topic, 1) == [b"kept"]


def test_an_open_transaction_times_out_and_hides_nothing_any_more(start, topic, kafka_address):
    slow = start(**{"transaction.timeout.ms": 1000})
    slow.begin_transaction()
    send(slow, topic, b"lost")
    plain = Producer({"bootstrap.servers": kafka_address})
    send(plain, topic, b"plain", b"other")
    assert read(kafka_address, topic, 2) == [b"other", b"plain"], "once it is aborted"
    with pytest.raises(KafkaException) as refused:
        slow.commit_transaction(WAIT_S)
    assert refused.value.args[0].fatal() or refused.value.args[0].txn_requires_abort()


def test_offsets_are_committed_with_the_transaction(start, topic, broker, kafka_address):
    producer, group = start(), broker.fresh("group")
    plain = Producer({"bootstrap.servers": kafka_address})
    send(plain, topic, b"a", b"b")
    settings = {
        "bootstrap.servers": kafka_address,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        eventually(
            lambda: consumer.poll(0.5) is not None and len(consumer.assignment()) == 2, WAIT_S
        )
        member = consumer.consumer_group_metadata()
        for offset, commit in ((1, False), (2, True)):
            producer.begin_transaction()
            offsets = [TopicPartition(topic, 0, offset)]
            producer.send_offsets_to_transaction(offsets, member, WAIT_S)
            if commit:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
        (committed,) = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
        assert committed.offset == 2
    finally:
        consumer.close()


def test_a_member_of_an_older_generation_cannot_commit_offsets(start, topic, broker, kafka_address):
    producer, group = start(), broker.fresh("group")
    settings = {"bootstrap.servers": kafka_address, "group.id": group}
    left = Consumer(settings)
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
    send(producer, topic, b"next")
    producer.commit_transaction(WAIT_S)
    assert read(kafka_address, topic, 1) == [b"next"]
