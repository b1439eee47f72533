"""Until Headwater has transactions a transactional producer is told so at once, and does not spin."""

import pytest
from confluent_kafka import KafkaException, Producer

from headwater.errors import E
from tests.compat.client import Unavailable

pytestmark = pytest.mark.usefixtures("ours")


def test_librdkafka_is_refused(kafka_address):
    producer = Producer({"bootstrap.servers": kafka_address, "transactional.id": "t"})
    with pytest.raises(KafkaException) as refusal:
        producer.init_transactions(20)
    assert refusal.value.args[0].code() == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_java_producer_is_refused(clients, broker):
    try:
        java = clients.java_tools()
    except Unavailable as missing:
        pytest.skip(str(missing))
    load = ["--num-records", "10", "--record-size", "10", "--throughput", "-1"]
    ended = java.server.run(
        "kafka-producer-perf-test", "--topic", broker.topic(), *load, "--transactional-id", "t",
        "--command-property", f"bootstrap.servers={java.bootstrap}",
    )  # fmt: skip
    assert ended.status != 0
    assert "TransactionalIdAuthorizationException" in ended.text
