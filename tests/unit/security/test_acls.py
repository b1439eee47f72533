"""The words of authorization carry the wire's numbers; the default authorizer allows all."""

from headwater.security.acls import (
    OPERATIONS_ON,
    AclOperation,
    AclResourceType,
    AllowAll,
)
from headwater.security.principals import ANONYMOUS, Principal


def test_everyone_may_do_everything_without_an_authorizer():
    for resource, operations in OPERATIONS_ON.items():
        for operation in operations:
            question = (ANONYMOUS, "127.0.0.1", operation, resource)
            assert AllowAll().authorize(*question, "name")
            assert AllowAll().authorize_any(*question)


def test_the_numbers_are_the_wires():
    numbers = {operation.name: operation.value for operation in AclOperation}
    assert numbers == {
        "ANY": 1, "ALL": 2, "READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7, "DESCRIBE": 8,
        "CLUSTER_ACTION": 9, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11, "IDEMPOTENT_WRITE": 12,
        "CREATE_TOKENS": 13, "DESCRIBE_TOKENS": 14, "TWO_PHASE_COMMIT": 15,
    }  # fmt: skip
    kinds = {kind.name: kind.value for kind in AclResourceType}
    assert kinds == {
        "ANY": 1, "TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5,
        "DELEGATION_TOKEN": 6, "USER": 7,
    }  # fmt: skip


def test_every_kind_of_resource_says_what_can_be_done_to_it():
    assert set(OPERATIONS_ON) == set(AclResourceType) - {AclResourceType.ANY}


def test_a_principal_is_written_as_kafka_writes_it():
    assert str(Principal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"
