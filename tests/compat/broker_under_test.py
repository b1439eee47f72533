"""Prepares the broker for a check: topics and records that the check needs and does not test.

One client (confluent-kafka) does all of it, so that a failing cell speaks of its own client.
"""

import itertools
import time
from collections.abc import Callable
from pathlib import Path

from tests.compat.client import END, Message, Refused
from tests.compat.clients.confluent import Confluent

_numbers = itertools.count(1)
BASE_TIME = (int(time.time()) - 3600) * 1000
"""The timestamp of the first record of `fill`; each further one is a second later.

An hour ago: records of another year would fall to the next retention check.
"""


class BrokerUnderTest:
    """The broker that a check talks to, and the ways to prepare it."""

    def __init__(self, bootstrap: str, log_dir: Path | None, is_apache: bool):
        self.bootstrap = bootstrap
        self.log_dir = log_dir
        self.is_apache = is_apache
        self.hand = Confluent(bootstrap)

    def fresh(self, what: str) -> str:
        """A name nobody else uses."""
        return f"{what}-{next(_numbers)}-{time.time_ns() % 10**9}"

    def topic(self, partitions: int = 1, replicas: int = 1, **configs: str) -> str:
        """A new topic whose leaders serve: Apache Kafka tells of a leader before it leads."""
        name = self.fresh("topic")
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.hand.create_topic(name, partitions, settings, replicas)
        eventually(lambda: len(self.hand.offsets(name, END)) == partitions)
        return name

    def fill(self, topic: str, count: int, partitions: int = 1, first: int = 0) -> list[Message]:
        """Writes `count` records to each partition."""
        messages = [
            Message(f"{p}:{n}".encode(), timestamp=BASE_TIME + n * 1000, partition=p)
            for p in range(partitions)
            for n in range(first, first + count)
        ]
        self.hand.produce(topic, messages)
        return messages

    def end(self, topic: str) -> int:
        """The end offset of partition 0."""
        return self.hand.offsets(topic, END)[0]


def eventually(holds: Callable[[], bool], timeout: float = 20) -> None:
    """Asks until it holds: for what a broker does after it has answered."""
    deadline = time.monotonic() + timeout
    while not _holds(holds):
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.05)  # the pace of asking, not a wait for time to pass


def _holds(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except Refused:
        return False
