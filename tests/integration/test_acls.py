"""ACLs on brokers as processes, with users by certificate: our tools, Kafka's, and a lost controller."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.jars import JarsUnavailable
from tools.java import run_tool

from headwater import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    Admin,
    AuthorizationError,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from headwater.testing import Cluster
from tests.integration.waiting import until

BROKERS = 2
ADMIN = "client"
"""The user of the cluster's own admin."""
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN}"}
    with Cluster(BROKERS, settings, tls=True) as cluster:
        yield cluster


def admin_at(cluster: Cluster, broker_id: int, user: str = ADMIN) -> Admin:
    """An admin that talks to one broker."""
    settings = {**cluster.client_settings(user), "bootstrap_servers": cluster.address(broker_id)}
    return Admin(**settings)  # type: ignore[arg-type]


def acls_at(cluster: Cluster, broker_id: int) -> set[AclBinding]:
    with admin_at(cluster, broker_id) as admin:
        return set(admin.describe_acls())


def on_every_broker(cluster: Cluster, expected: set[AclBinding]) -> None:
    for broker_id in cluster.broker_ids:
        until(
            lambda at=broker_id: acls_at(cluster, at) == expected,  # type: ignore[misc]
            f"the ACLs of broker {broker_id}",
        )


def properties(cluster: Cluster, user: str, folder: Path) -> str:
    """The settings of a user in a file as Kafka's tools read it."""
    lines = {
        name.replace("_", "."): value
        for name, value in cluster.client_settings(user).items()
        if name != "bootstrap_servers"
    }
    lines |= {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
    file = folder / f"{user}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return str(file)


def test_admin_writer_and_reader_with_both_kinds_of_tools(cluster: Cluster, tmp_path: Path) -> None:
    """E4: a user does exactly what it was granted, on every broker."""

    def kafka_acls(*words: str, user: str = ADMIN) -> str:
        config = ("--command-config", properties(cluster, user, tmp_path))
        where = ("--bootstrap-server", cluster.bootstrap)
        ended = run_tool("kafka-acls", *where, *config, *words, timeout=120)
        return ended.stdout + ended.stderr

    with Admin(**cluster.client_settings()) as admin:
        admin.create_topics([NewTopic("orders", partitions=2), NewTopic("secrets")])
    try:
        added = kafka_acls(
            "--add", "--allow-principal", "User:writer", "--producer", "--topic", "orders"
        )
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    assert "operation=WRITE" in added
    consumer_of = ("--consumer", "--topic", "ord", "--group", "bill")
    prefixed = ("--resource-pattern-type", "prefixed")
    kafka_acls("--add", "--allow-principal", "User:reader", *consumer_of, *prefixed)
    assert "User:reader" in kafka_acls(
        "--list", "--topic", "orders", "--resource-pattern-type", "match"
    )
    assert "ClusterAuthorizationException" in kafka_acls("--list", user="writer")

    with Producer(**cluster.client_settings("writer")) as producer:
        for partition in range(2):
            producer.send("orders", b"a book", partition=partition).result(60)
        with pytest.raises(AuthorizationError, match="acls allow USER write topic secrets"):
            producer.send("secrets", b"a spy").result(60)
    with Consumer(
        **cluster.client_settings("reader"), group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["orders"])
        read = [record.value for _, record in zip(range(2), consumer, strict=False)]
        assert read == [b"a book"] * 2
        consumer.commit()
    with (
        Consumer(**cluster.client_settings("reader")) as consumer,
        pytest.raises(AuthorizationError, match="may not read topic 'secrets'"),
    ):
        consumer.assign([TopicPartition("secrets", 0)])

    kafka_acls(
        "--remove", "--force", "--allow-principal", "User:writer", "--producer", "--topic", "orders"
    )
    with admin_at(cluster, 2) as admin:
        admin.delete_acls([AclFilter()])
    on_every_broker(cluster, set())
    with (
        Producer(**cluster.client_settings("writer")) as producer,
        pytest.raises(AuthorizationError),
    ):
        producer.send("orders", b"another").result(60)


def test_four_administrators_at_once_lose_nothing_and_a_lost_controller_keeps_all(
    cluster: Cluster,
) -> None:
    """All write to the same two nodes of the store, through both brokers."""
    wanted = [
        {
            AclBinding(f"User:u{who}-{number}", AclOperation.READ, AclResourceType.TOPIC, topic)
            for number in range(10)
            for topic in ("a", "b")
        }
        for who in range(4)
    ]
    failures: list[Exception] = []

    def administer(who: int) -> None:
        try:
            with admin_at(cluster, who % BROKERS + 1) as admin:
                for binding in sorted(wanted[who]):
                    admin.create_acls([binding])
                for binding in sorted(wanted[who])[:5]:
                    found = admin.delete_acls([AclFilter(principal=binding.principal)])
                    assert found
                    admin.create_acls(found)
        except Exception as failure:  # noqa: BLE001 - the test's thread must hear of it
            failures.append(failure)

    threads = [threading.Thread(target=administer, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    expected = set[AclBinding]().union(*wanted)
    on_every_broker(cluster, expected)

    former = cluster.controller()
    other = next(one for one in cluster.broker_ids if one != former)
    cluster.kill(former)
    assert acls_at(cluster, other) == expected
    with admin_at(cluster, other, "u0-1") as stranger, pytest.raises(AuthorizationError):
        stranger.create_acls(sorted(expected)[:1])
    with admin_at(cluster, other) as admin:
        admin.delete_acls([AclFilter(principal="User:u0-1")])
    cluster.start_broker(former)
    rest = {one for one in expected if one.principal != "User:u0-1"}
    on_every_broker(cluster, rest)
