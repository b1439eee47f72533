"""ACLs of the store's nodes."""

import pytest

from headwater.controller.store.acls import Identity, allows, checked, digest_identity
from headwater.controller.store.metadata_store import (
    ADMIN,
    CREATE,
    DELETE,
    OPEN_ACL,
    READ,
    WRITE,
    Acl,
    Check,
    Create,
    Delete,
    Set,
    StoreError,
    StoreFailure,
)
from headwater.controller.store.tree import Caller, Tree

ALL = READ | WRITE | CREATE | DELETE | ADMIN
ALICE = digest_identity(b"alice:secret")
BOB = digest_identity(b"bob:secret")
LOCAL = Identity("ip", "127.0.0.1")


def caller(*identities: Identity | None) -> Caller:
    return Caller(1, 0, tuple(identity for identity in identities if identity))


def refused(tree: Tree, op: object, *identities: Identity | None) -> StoreFailure:
    with pytest.raises(StoreError) as refusal:
        tree.transact([op], caller(*identities))
    return refusal.value.kind


def test_a_digest_hides_the_password():
    # The digest that ZooKeeper's own DigestAuthenticationProvider gives for these.
    assert digest_identity(b"super:admin") == Identity(
        "digest", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="
    )
    assert digest_identity(b"nobody") is None


def test_each_operation_needs_its_own_permission():
    tree = Tree()
    only_read = (Acl(READ, "digest", ALICE.name),)
    tree.transact([Create("/a", b"", acl=only_read)], caller(ALICE))
    assert tree.get("/a", caller(ALICE)).data == b""
    with pytest.raises(StoreError) as refusal:
        tree.get("/a", caller(BOB, LOCAL))
    assert refusal.value.kind is StoreFailure.NOT_AUTHORIZED
    for op in (Set("/a", b"x"), Create("/a/b")):
        assert refused(tree, op, ALICE) is StoreFailure.NOT_AUTHORIZED
    assert refused(tree, Check("/a", 0), BOB) is StoreFailure.NOT_AUTHORIZED
    tree.transact([Check("/a", 0)], caller(ALICE))
    tree.transact([Delete("/a")], caller(BOB))  # deleting is the parent's permission


def test_a_multi_that_is_not_allowed_changes_nothing():
    tree = Tree()
    tree.transact([Create("/a", b"old", acl=(Acl(READ, "world", "anyone"),))], caller())
    with pytest.raises(StoreError) as refusal:
        tree.transact([Create("/b"), Set("/a", b"new")], caller(ALICE))
    assert (refusal.value.kind, refusal.value.index) == (StoreFailure.NOT_AUTHORIZED, 1)
    assert tree.stat("/b") is None


def test_auth_stands_for_what_the_caller_has_proven():
    acl = (Acl(ALL, "auth", ""),)
    assert checked(acl, [LOCAL, ALICE]) == (Acl(ALL, "digest", ALICE.name),)
    assert checked(acl, [LOCAL]) is None


@pytest.mark.parametrize(
    "entry",
    [
        Acl(ALL, "world", "someone"),
        Acl(ALL, "digest", "nocolon"),
        Acl(ALL, "ip", "localhost"),
        Acl(ALL, "sasl", "alice"),
    ],
)
def test_an_acl_that_means_nothing_is_refused(entry):
    assert checked([entry], [ALICE]) is None
    assert refused(Tree(), Create("/a", acl=(entry,)), ALICE) is StoreFailure.INVALID_ACL


def test_an_empty_acl_is_refused():
    assert checked([], [ALICE]) is None


def test_addresses_match_by_network():
    network = (Acl(READ, "ip", "127.0.0.0/8"),)
    assert allows(network, READ, [LOCAL])
    assert not allows(network, READ, [Identity("ip", "10.0.0.1")])
    assert not allows(network, WRITE, [LOCAL])


def test_hashes_of_passwords_are_shown_to_those_who_may_change_the_acl():
    """Who has the hash could give a node of his own to its user."""
    tree = Tree()
    acl = (Acl(ALL, "digest", ALICE.name), Acl(READ, "world", "anyone"))
    tree.transact([Create("/a", acl=acl)], caller(ALICE))
    assert tree.acl("/a", caller(ALICE))[0] == acl
    assert tree.acl("/a", caller(BOB))[0] == (Acl(ALL, "digest", "alice:x"), acl[1])


def test_an_acl_is_replaced_by_version_and_by_whom_it_allows():
    tree = Tree()
    tree.transact([Create("/a", acl=(Acl(ALL, "digest", ALICE.name),))], caller(ALICE))
    with pytest.raises(StoreError) as refusal:
        tree.set_acl("/a", OPEN_ACL, -1, caller(BOB))
    assert refusal.value.kind is StoreFailure.NOT_AUTHORIZED
    with pytest.raises(StoreError) as refusal:
        tree.set_acl("/a", OPEN_ACL, 3, caller(ALICE))
    assert refusal.value.kind is StoreFailure.BAD_VERSION
    stat, _ = tree.set_acl("/a", OPEN_ACL, 0, caller(ALICE))
    assert stat.aversion == 1
    assert tree.acl("/a", caller(BOB))[0] == OPEN_ACL
