"""ACLs on brokers as processes: many administrators at once, and a lost controller."""

import threading
from collections.abc import Iterator

import pytest

from headwater import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    Admin,
    AuthorizationError,
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
