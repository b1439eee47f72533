"""Which ACLs of nodes let others than the brokers in."""

import pytest

from headwater.controller.store.acls import digest_identity
from headwater.controller.store.metadata_store import DELETE, OPEN_ACL, READ, WRITE, Acl
from headwater.controller.store.open_nodes import NodeAcl, open_nodes
from headwater.controller.store.znodes import CLUSTER_SECRET, SENSITIVE_PATHS

LOGIN = "headwater:river"
OWN = Acl(31, "digest", digest_identity(LOGIN.encode()).name)
OTHER = digest_identity(b"other:river").name
READABLE = (OWN, Acl(READ, "world", "anyone"))


def said(*nodes, login=LOGIN):
    return [str(one) for one in open_nodes([NodeAcl(*node) for node in nodes], login)]


def test_nodes_of_the_brokers_are_not_open():
    assert said(("/", READABLE), ("/brokers", READABLE), (CLUSTER_SECRET, (OWN,))) == []


@pytest.mark.parametrize("path", [*SENSITIVE_PATHS, "/config/users/alice"])
def test_nodes_with_secrets_must_not_be_readable(path):
    assert said((path, READABLE)) == [f"ZooKeeper lets everyone read {path}"]


@pytest.mark.parametrize(
    ("entry", "who"),
    [
        (Acl(WRITE, "world", "anyone"), "everyone"),
        (Acl(DELETE, "ip", "10.0.0.0/8"), "ip:10.0.0.0/8"),
        (Acl(WRITE, "digest", OTHER), "digest:other"),
    ],
)
def test_every_stranger_is_named(entry, who):
    assert said(("/brokers", (OWN, entry))) == [f"ZooKeeper lets {who} change /brokers"]


def test_without_the_login_a_password_proves_enough():
    assert said(("/brokers", (Acl(31, "digest", OTHER),)), login=None) == []


def test_open_nodes_below_an_open_node_are_counted():
    names = [(f"/brokers/topics/{number}", OPEN_ACL) for number in range(10_000)]
    assert said(
        ("/", READABLE), ("/brokers", OPEN_ACL), ("/config", READABLE),
        ("/brokers/topics", OPEN_ACL), *names, ("/config/topics", OPEN_ACL),
    ) == [
        "ZooKeeper lets everyone change /brokers and 10001 nodes below",
        "ZooKeeper lets everyone change /config/topics",
    ]  # fmt: skip
