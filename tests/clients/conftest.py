"""The two brokers, each started once, and fresh names on them."""

import pytest
from tools.apache_kafka import ApacheKafka
from tools.jars import JarsUnavailable

from headwater.testing import Broker
from tests.clients.broker_under_test import BrokerUnderTest

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "log.message.timestamp.after.max.ms": str(2**62),
}


@pytest.fixture(scope="session")
def headwater_under_test():
    with Broker(SETTINGS, subprocess=True) as broker:
        yield BrokerUnderTest(broker.bootstrap)


@pytest.fixture(scope="session")
def apache_under_test():
    kafka = ApacheKafka(SETTINGS)
    try:
        kafka.__enter__()
    except JarsUnavailable as missing:
        pytest.skip(f"Apache Kafka cannot be started: {missing}")
    yield BrokerUnderTest(kafka.bootstrap)
    kafka.__exit__(None, None, None)


@pytest.fixture(scope="session", params=["headwater", "apache"])
def broker(request):
    """One of the two brokers; each test that asks for it runs on both."""
    return request.getfixturevalue(f"{request.param}_under_test")


@pytest.fixture
def bootstrap(broker):
    return broker.bootstrap


@pytest.fixture
def topic(broker):
    """A fresh topic of three partitions."""
    return broker.topic(partitions=3)


@pytest.fixture
def lane(broker):
    """A fresh topic of one partition, where order is total."""
    return broker.topic(partitions=1)


@pytest.fixture
def group(broker):
    return broker.name("group")
