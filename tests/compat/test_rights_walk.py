"""E4: an administrator, a writer and a reader on two brokers, with Kafka's tools and with ours.

Users and passwords are in a JAAS file, as Kafka has them, and each user has a file for its tools.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.cli.app import command
from headwater.processes.child import broker_process, store_process
from headwater.processes.local_nodes import node_settings, replicated, unused_port
from headwater.testing.tls_stores import TlsStores
from tests.compat.broker_under_test import eventually
from tests.compat.client import Unavailable
from tests.compat.tool_server import ToolServer

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f"""\
KafkaServer {{
  {MODULE} required
  username="admin" password="admin-secret"
  user_admin="admin-secret"
  user_writer="writer-secret"
  user_reader="reader-secret";
}};
"""
FILES = {"admin": "admin.conf", "writer": "producer.conf", "reader": "consumer.conf"}
NOT_AUTHORIZED = "AUTHORIZATION_FAILED"


class Walk:
    """The two brokers and what the users type."""

    def __init__(self, folder: Path, server: ToolServer, addresses: list[str], authority: Path):
        self._folder = folder
        self._server = server
        self._addresses = addresses
        for user, name in FILES.items():
            (folder / name).write_text(
                "security.protocol=SASL_SSL\n"
                "sasl.mechanism=PLAIN\n"
                f"sasl.jaas.config={MODULE} required \\\n"
                f'  username="{user}" password="{user}-secret";\n'
                f"ssl.truststore.type=PEM\nssl.truststore.location={authority}\n"
            )

    def kafka(self, user: str, script: str, *words: str, stdin: str = "", broker: int = 0) -> str:
        """Runs one of Kafka's tools; returns all it said."""
        where = ("--bootstrap-server", self._addresses[broker])
        config = ("--command-config", str(self._folder / FILES[user]))
        return self._server.run(script, *where, *config, *words, stdin=stdin).text

    def ours(self, user: str, *words: str, stdin: str = "", broker: int = 1) -> str:
        """Runs `headwater`; returns all it said."""
        line = ["--config", str(self._folder / FILES[user]), *words]
        where = ["--bootstrap-server", self._addresses[broker], "--timeout", "60"]
        return CliRunner().invoke(command, [*line, *where], input=stdin).output


@pytest.fixture
def walk(tmp_path: Path, tool_server: ToolServer) -> Iterator[Walk]:
    try:
        tool_server.start()
    except Unavailable as missing:
        pytest.skip(str(missing))
    stores = TlsStores(tmp_path / "tls")
    jaas = tmp_path / "kafka_server_jaas.conf"
    jaas.write_text(JAAS)
    ports = [unused_port() for _ in range(2)]
    with ExitStack() as running:
        store = store_process(tmp_path / "store", unused_port())
        running.callback(store.stop)
        store.launch()
        zookeeper = store.wait_ready()
        brokers = [
            broker_process(
                {
                    **replicated(2),
                    **node_settings(
                        number,
                        zookeeper=zookeeper,
                        folder=str(tmp_path / f"broker-{number}"),
                        client_port=port,
                        broker_port=unused_port(),
                        metrics_port=unused_port(),
                        protocol="SASL_SSL",
                    ),
                    **stores.broker_settings(),
                    "ssl.client.auth": "none",
                    "sasl.enabled.mechanisms": "PLAIN",
                    "java.security.auth.login.config": str(jaas),
                    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                    "super.users": "User:admin",
                    "offsets.topic.num.partitions": "2",
                    "group.initial.rebalance.delay.ms": "0",
                }
            )
            for number, port in enumerate(ports, 1)
        ]
        for broker in brokers:
            running.callback(broker.kill)
            broker.launch()
        for broker in brokers:
            broker.wait_ready()
        addresses = [f"127.0.0.1:{port}" for port in ports]
        yield Walk(tmp_path, tool_server, addresses, stores.authority.certificate)


def test_admin_writer_and_reader(walk: Walk) -> None:
    create = ("--create", "--topic", "orders", "--partitions", "2", "--replication-factor", "2")
    assert NOT_AUTHORIZED in walk.kafka("writer", "kafka-topics", *create)
    assert "Created topic orders" in walk.kafka("admin", "kafka-topics", *create)
    for broker in range(2):
        eventually(lambda at=broker: "orders" in walk.ours("admin", "topics", "list", broker=at))  # type: ignore[misc]

    _nobody_else_may(walk)
    producer = ("--allow-principal", "User:writer", "--producer", "--topic", "orders")
    reader = ("--consumer", "--topic", "ord", "--group", "bill")
    prefixed = ("--resource-pattern-type", "prefixed")
    assert "operation=WRITE" in walk.kafka("admin", "kafka-acls", "--add", *producer, broker=1)
    walk.kafka(
        "admin", "kafka-acls", "--add", "--allow-principal", "User:reader", *reader, *prefixed
    )
    assert "ClusterAuthorizationException" in walk.kafka("writer", "kafka-acls", "--list")
    listing = ("--list", "--topic", "orders", "--resource-pattern-type", "match")
    # the tool asks any broker, and the other one hears of the change a moment later
    eventually(
        lambda: all(
            user in walk.kafka("admin", "kafka-acls", *listing)
            for user in ("User:reader", "User:writer")
        )
    )

    send = ("kafka-console-producer", "--topic", "orders", "--sync")
    walk.kafka("writer", *send, stdin="of Kafka\n")
    assert NOT_AUTHORIZED not in walk.ours("writer", "produce", "orders", stdin="of ours\n")
    read = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "120000")
    told = walk.kafka(
        "reader", "kafka-console-consumer", "--topic", "orders", "--group", "billing", *read
    )
    assert {"of Kafka", "of ours"} <= {*told.splitlines()}
    assert {*walk.ours("reader", "consume", "orders").splitlines()} == {"of Kafka", "of ours"}
    assert "not allowed" in walk.ours("reader", "produce", "orders", stdin="a spy\n")

    alter = ("--alter", "--entity-type", "topics", "--entity-name", "orders")
    change = (*alter, "--add-config", "retention.ms=1000000")
    assert "TopicAuthorizationException" in walk.kafka("writer", "kafka-configs", *change)
    assert "Completed updating config" in walk.kafka("admin", "kafka-configs", *change)

    walk.kafka("admin", "kafka-acls", "--remove", "--force", *producer)
    assert "prefixed" in walk.ours("admin", "acls", "list", "--user", "reader")
    walk.ours("admin", "acls", "remove", "reader", broker=0)
    for broker in range(2):
        eventually(
            lambda at=broker: "User:" not in walk.kafka("admin", "kafka-acls", "--list", broker=at)
        )  # type: ignore[misc]
    _nobody_else_may(walk)
    assert {*walk.ours("admin", "consume", "orders").splitlines()} == {"of Kafka", "of ours"}


def _nobody_else_may(walk: Walk) -> None:
    """The writer and the reader are refused on both brokers, by the name that Kafka has for it."""
    for broker in range(2):
        assert NOT_AUTHORIZED in walk.ours(
            "writer", "produce", "orders", stdin="x\n", broker=broker
        )
        assert NOT_AUTHORIZED in walk.ours("reader", "consume", "orders", broker=broker)
    walk.kafka("writer", "kafka-console-producer", "--topic", "orders", "--sync", stdin="x\n")
    read = ("--group", "billing", "--from-beginning", "--timeout-ms", "60000")
    told = walk.kafka("reader", "kafka-console-consumer", "--topic", "orders", *read)
    assert "Processed a total of 0 messages" in told
