"""The same client tests against our broker and against Apache Kafka.

@pytest.fixture(scope="module", params=EITHER)
def broker(request):
    yield from either(request)
"""

from collections.abc import Iterator, Mapping

import pytest

import headwater
from headwater.testing import Broker

EITHER = ["headwater", "apache"]

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
}


class Apache:
    """Apache Kafka with the methods of our `Broker` that tests use."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.port = int(bootstrap.rpartition(":")[2])

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic and return when it can be written to."""
        with headwater.Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([headwater.NewTopic(name, partitions, configs=configs or {})])

    def delete_topic(self, name: str) -> None:
        """Remove a topic."""
        with headwater.Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.delete_topics([name])


def either(request: pytest.FixtureRequest) -> Iterator[Broker | Apache]:
    """A broker of ours, or the Apache Kafka of this run."""
    if request.param == "headwater":
        with Broker(SETTINGS) as ours:
            yield ours
    else:
        yield request.getfixturevalue("apache_kafka")
