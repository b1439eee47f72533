"""Every scene on both brokers: the transcripts must agree but for what is intended."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from tools.apache_kafka import ApacheKafka
from tools.jars import JarsUnavailable

import tests.compat.differential.scenes  # noqa: F401 - fills SCENES
from headwater.testing import Broker
from tests.compat.differential.compare import Difference, differences
from tests.compat.differential.intended import idle_rows, unintended
from tests.compat.differential.peer import Peer
from tests.compat.differential.scene import SCENES, play

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "inter.broker.listener.name": "PLAINTEXT",
    # The records of the scenes are old: neither broker may delete them while a slow scene runs.
    "log.initial.task.delay.ms": "86400000",
    "log.retention.check.interval.ms": "86400000",
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}
SHOWN = 20
_seen: dict[str, list[Difference]] = {}

pytestmark = pytest.mark.in_order("the last test looks at what all scenes found")


@pytest.fixture(scope="module")
def peers() -> Iterator[tuple[Peer, Peer]]:
    with ExitStack() as running:
        try:
            apache = running.enter_context(ApacheKafka(SETTINGS))
        except JarsUnavailable as missing:
            pytest.skip(f"no Apache Kafka to compare with: {missing}")
        ours = running.enter_context(Broker(SETTINGS, subprocess=True))
        yield Peer("Apache Kafka", apache.bootstrap), Peer("Headwater", ours.bootstrap)


@pytest.mark.parametrize("name", SCENES)
def test_both_brokers_answer_alike(peers, name):
    with ThreadPoolExecutor(2) as both:
        apache, ours = both.map(lambda peer: play(name, peer), peers)
    assert apache, "the scene asks nothing"
    _seen[name] = list(differences(apache, ours))
    wrong = unintended(name, _seen[name])
    shown = "\n".join(map(str, wrong[:SHOWN]))
    assert not wrong, f"{len(wrong)} differences:\n{shown}"


def test_every_intended_difference_is_still_one(peers):
    if set(_seen) != set(SCENES):
        pytest.skip("only some of the scenes were played")
    idle = idle_rows([(name, found) for name, many in _seen.items() for found in many])
    assert not idle, "\n".join(map(str, idle))
