"""The two brokers, each started once, fresh names on them, and clients that are closed at the end.

A module that tests our broker's clients against Headwater alone says so:

    @pytest.fixture(scope="session")
    def broker(headwater_under_test):
        return headwater_under_test
"""

import contextlib

import pytest
from tools.apache_kafka import ApacheKafka
from tools.jars import JarsUnavailable

import headwater
from headwater import aio
from headwater.testing import Broker
from tests.clients.broker_under_test import BrokerUnderTest
from tests.clients.faces import asyncio_client

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "log.message.timestamp.after.max.ms": str(2**62),
    "log.retention.ms": "-1",  # tests write records of long ago
}


# -- brokers


@pytest.fixture(scope="session")
def headwater_under_test():
    with Broker(SETTINGS, subprocess=True) as broker:
        yield BrokerUnderTest(broker.bootstrap)


@pytest.fixture(scope="session")
def apache_under_test():
    kafka = ApacheKafka(SETTINGS, measured=False)
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


# -- names


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


# -- clients


@pytest.fixture
def face(request):
    """The blocking clients, or those that `both_faces` asks for."""
    return getattr(request, "param", "blocking")


@pytest.fixture
def consumer_of(bootstrap, face):
    """Makes consumers that read from the start."""
    with contextlib.ExitStack() as made:

        def make(**options):
            options = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", **options}
            if face == "asyncio":
                return made.enter_context(asyncio_client(aio.Consumer, **options))
            return made.enter_context(headwater.Consumer(**options))

        yield make


@pytest.fixture
def consumer(consumer_of):
    return consumer_of()


@pytest.fixture
def member(consumer_of, group):
    """A consumer with a group to commit for."""
    return consumer_of(group_id=group, enable_auto_commit=False)


@pytest.fixture
def producer(bootstrap):
    with headwater.Producer(bootstrap_servers=bootstrap) as made:
        yield made
