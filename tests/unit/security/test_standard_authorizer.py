"""The authorizer of ACLs allows nothing before it has them."""

import pytest

from headwater.security.acl_index import AclIndex
from headwater.security.acls import (
    AclEntry,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from headwater.security.principals import Principal
from headwater.security.standard_authorizer import StandardAuthorizer

ALICE, ADMIN = Principal("User", "alice"), Principal("User", "admin")
READ_TOPICS = ("10.0.0.1", AclOperation.READ, AclResourceType.TOPIC)
ORDERS = ResourcePattern(AclResourceType.TOPIC, AclPatternType.LITERAL, "orders")
ALICE_READS = AclEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)


@pytest.mark.parametrize("allow_if_no_acl", [False, True])
def test_nobody_but_super_users_is_allowed_anything_while_the_acls_are_loaded(allow_if_no_acl):
    loading = StandardAuthorizer(["User:admin"], allow_if_no_acl)
    loading.replace(ORDERS, [ALICE_READS])  # a change that comes before the others are known
    assert not loading.authorize(ALICE, *READ_TOPICS, "orders")
    assert not loading.authorize_any(ALICE, *READ_TOPICS)
    assert loading.reason(ALICE, *READ_TOPICS, "orders") == "the ACLs are not loaded yet"
    assert loading.authorize(ADMIN, *READ_TOPICS, "orders")
    assert loading.authorize_any(ADMIN, *READ_TOPICS)


@pytest.mark.parametrize("allow_if_no_acl", [False, True])
def test_a_refusal_while_the_acls_were_loaded_is_not_remembered(allow_if_no_acl):
    authorizer = StandardAuthorizer((), allow_if_no_acl)
    assert not authorizer.authorize(ALICE, *READ_TOPICS, "orders")
    assert not authorizer.authorize(ALICE, *READ_TOPICS, "other")
    assert not authorizer.authorize_any(ALICE, *READ_TOPICS)
    index = AclIndex()
    index.replace(ORDERS, [ALICE_READS])
    authorizer.use(index)
    assert authorizer.authorize(ALICE, *READ_TOPICS, "orders")
    assert authorizer.authorize_any(ALICE, *READ_TOPICS)
    assert authorizer.authorize(ALICE, *READ_TOPICS, "other") is allow_if_no_acl
