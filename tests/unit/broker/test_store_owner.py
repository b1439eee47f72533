"""What a broker makes of the owners of the nodes that it trusts."""

import asyncio

import pytest

from headwater.broker.registration import JoinError
from headwater.broker.store_owner import refuse_foreign_nodes
from headwater.controller.store.metadata_store import (
    OPEN_ACL,
    Acl,
    AclAndStat,
    Stat,
    StoreError,
    StoreFailure,
    Znode,
)
from headwater.controller.store.znodes import CLUSTER_SECRET, FIRST_USERS

ALL, READ = 31, 1
OWN = Acl(ALL, "digest", "headwater:hash")
CERTIFICATE = Acl(ALL, "x509", "CN=broker")
EVERYONE_READS = Acl(READ, "world", "anyone")
SECRET = b"river"


class Store:
    """Answers at once; `nodes` has the ACLs. A new node belongs to `own`, and everyone reads it."""

    def __init__(self, root, secret, *, own=OWN, first_users=None):
        self.nodes = {"/": root, CLUSTER_SECRET: secret, FIRST_USERS: first_users}
        self.czxids = iter(())
        self.losses = 0
        self._own = own

    def create(self, path, data, reply, *, ephemeral, sequential):
        assert ephemeral
        assert sequential
        if self.losses:
            self.losses -= 1
            reply(StoreError(StoreFailure.CONNECTION_LOSS, path))
        else:
            self.nodes[path + "1"] = (self._own, EVERYONE_READS)
            reply(path + "1")

    def delete(self, path, version, reply):
        del self.nodes[path]

    def get(self, path, reply):
        self._reply(path, reply, lambda stat, _: Znode(SECRET.hex().encode(), stat))

    def acl(self, path, reply):
        self._reply(path, reply, lambda stat, acl: AclAndStat(acl, stat))

    def _reply(self, path, reply, answer):
        acl = self.nodes[path]
        if acl is None:
            reply(StoreError(StoreFailure.NO_NODE, path))
        elif acl is StoreFailure.NOT_AUTHORIZED:
            reply(StoreError(acl, path))
        else:
            reply(answer(Stat(next(self.czxids, 1), 1, 0, 0, 0, 0), acl))


def check(store, chroot="/kafka", secret=SECRET):
    asyncio.run(refuse_foreign_nodes(store, chroot, secret))


@pytest.mark.parametrize(
    "root", [(OWN, EVERYONE_READS), StoreFailure.NOT_AUTHORIZED], ids=["own", "of an administrator"]
)
@pytest.mark.parametrize("own", [OWN, CERTIFICATE], ids=["login", "certificate"])
def test_own_nodes_below_a_root_of_the_brokers_are_trusted(root, own, caplog):
    store = Store(root, (own,), own=own, first_users=(own,))
    store.losses = 1
    before = set(store.nodes)
    check(store)
    assert caplog.text == ""
    assert set(store.nodes) == before, "no node is left"


@pytest.mark.parametrize(
    ("acl", "who"),
    [
        (OPEN_ACL, "everyone"),
        ((OWN, EVERYONE_READS), "everyone"),
        ((Acl(ALL, "digest", "stranger:hash"), *OPEN_ACL), "digest:stranger, everyone"),
    ],
    ids=["open", "readable", "shared"],
)
def test_a_node_that_others_may_use_is_refused(acl, who):
    back = "remove from sasl.scram.users.file the users that must not come back"
    for path, how, then in (
        (CLUSTER_SECRET, {"secret": acl}, "restart all brokers"),
        (FIRST_USERS, {"secret": (OWN,), "first_users": acl}, back),
    ):
        with pytest.raises(JoinError) as refusal:
            check(Store((OWN,), **how))
        assert str(refusal.value) == (
            f"ZooKeeper lets {who} use {path}, so it may have been written without the brokers' "
            "login. If zookeeper.set.acl=true is new here, type "
            f"`setAcl /kafka{path} auth::cdrwa` in zkCli.sh after `addauth digest USER:PASSWORD`, and "
            "start again. Otherwise type `setAcl /kafka auth::cdrwa,world:anyone:r` in zkCli.sh after "
            f"`addauth`; then `delete /kafka{path}` and {then}"
        )


@pytest.mark.parametrize(
    ("chroot", "advice"),
    [
        (
            "/kafka",
            "change /kafka, and so delete and replace nodes of the brokers: type `setAcl /kafka",
        ),
        ("", "zookeeper.connect=HOST:PORT/PATH"),
    ],
)
def test_a_root_that_others_may_change_is_a_warning(chroot, advice, caplog):
    check(Store(OPEN_ACL, (OWN,)), chroot)
    (line,) = caplog.messages
    assert advice in line


def test_a_secret_that_was_replaced_since_it_was_read_is_refused():
    with pytest.raises(JoinError, match=f"had another {CLUSTER_SECRET} a moment ago"):
        check(Store((OWN,), (OWN,)), secret=b"planted")
    store = Store((OWN,), (OWN,))
    store.czxids = iter([1, 1, 2, 3, 4, 5, 6, 6])  # of the probe, the root, and pairs of reads
    check(store)
    assert next(store.czxids, None) is None, "the ACL is that of the node that was read"
