"""Every scene on both brokers: the transcripts must agree but for what is intended."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from tools.apache_kafka import ApacheKafka
from tools.free_ports import free_port
from tools.jars import JarsUnavailable

import tests.compat.differential.scenes  # noqa: F401 - fills SCENES
from headwater.testing import Broker
from tests.compat.differential.compare import Difference, compared, differences
from tests.compat.differential.intended import idle_rows, unintended
from tests.compat.differential.peer import USERS, Peer
from tests.compat.differential.scene import SCENES, play

_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PASSWORDS = " ".join(f'user_{name}="{name}"' for name in USERS)
SETTINGS = {
    "authorizer.class.name": _AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    ),
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f"org.apache.kafka.common.security.plain.PlainLoginModule required {_PASSWORDS};"
    ),
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "auto.create.topics.enable": "false",
    "connection.failed.authentication.delay.ms": "10",
    "listener.name.sasl_plaintext.connections.max.reauth.ms": "600000",
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
    logins = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    with ExitStack() as running:
        try:
            apache = running.enter_context(_apache(logins[0]))
        except JarsUnavailable as missing:
            pytest.skip(f"no Apache Kafka to compare with: {missing}")
        ours = running.enter_context(
            Broker(
                {**SETTINGS, "sasl.plain.without.tls": "true"},
                subprocess=True,
                listeners=f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://{logins[1]}",
            )
        )
        yield (
            Peer("Apache Kafka", apache.bootstrap, logins[0]),
            Peer("Headwater", ours.bootstrap, logins[1]),
        )


def _apache(logins: str) -> ApacheKafka:
    """With a listener for users beside the open one."""
    open_port, controller = free_port(), free_port()
    clients = f"PLAINTEXT://127.0.0.1:{open_port},SASL_PLAINTEXT://{logins}"
    listeners = {
        "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": clients,
    }
    ports = (open_port, controller)
    return ApacheKafka({**SETTINGS, **listeners}, ports=ports, measured=False)


@pytest.mark.parametrize("name", SCENES)
def test_both_brokers_answer_alike(peers, name):
    with ThreadPoolExecutor(2) as both:
        apache, ours = both.map(lambda peer: play(name, peer), peers)
    assert compared(apache, ours) > len(apache) * 3 // 4, "the scene asks next to nothing"
    _seen[name] = list(differences(apache, ours))
    wrong = unintended(name, _seen[name])
    shown = "\n".join(map(str, wrong[:SHOWN]))
    assert not wrong, f"{len(wrong)} differences:\n{shown}"


def test_every_intended_difference_is_still_one(peers):
    if set(_seen) != set(SCENES):
        pytest.skip("only some of the scenes were played")
    idle = idle_rows([(name, found) for name, many in _seen.items() for found in many])
    assert not idle, "\n".join(map(str, idle))
