"""The words of authorization carry the wire's numbers; the default allows all but posing as a broker."""

import pytest

from headwater.security.acls import (
    OPERATIONS_ON,
    AclOperation,
    AclResourceType,
    AllowAll,
)
from headwater.security.principals import ANONYMOUS, BROKER, Principal


@pytest.mark.parametrize("resource", AclResourceType)
def test_everyone_may_do_everything_except_what_only_brokers_do(resource):
    authorizer = AllowAll()
    for operation in OPERATIONS_ON[resource]:
        allowed = authorizer.authorize(ANONYMOUS, "127.0.0.1", operation, resource, "name")
        assert allowed is (operation is not AclOperation.CLUSTER_ACTION)
        assert authorizer.authorize(Principal(BROKER, "2"), "10.0.0.2", operation, resource, "name")


def test_the_numbers_are_the_wires():
    numbers = {operation.name: operation.value for operation in AclOperation}
    assert numbers == {
        "ALL": 2, "READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7, "DESCRIBE": 8,
        "CLUSTER_ACTION": 9, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11, "IDEMPOTENT_WRITE": 12,
    }  # fmt: skip
    kinds = {kind.name: kind.value for kind in AclResourceType}
    assert kinds == {"TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5}


def test_every_kind_of_resource_says_what_can_be_done_to_it():
    assert set(OPERATIONS_ON) == set(AclResourceType)


def test_a_principal_is_written_as_kafka_writes_it():
    assert str(Principal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"
