"""The rights that requests need: an operation on a resource type, and the error without it."""

from dataclasses import dataclass

from headwater.errors import E
from headwater.security.acls import AclOperation, AclResourceType

_REFUSALS = {
    AclResourceType.TOPIC: E.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: E.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: E.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResourceType.DELEGATION_TOKEN: E.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResourceType.USER: E.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True, slots=True, eq=False)
class Right:
    """One kind of access check. Each exists once, below, and compares by identity."""

    operation: AclOperation
    resource_type: AclResourceType

    @property
    def refusal(self) -> E:
        """Return the error code for a client without the right."""
        return _REFUSALS[self.resource_type]


READ_TOPIC = Right(AclOperation.READ, AclResourceType.TOPIC)
WRITE_TOPIC = Right(AclOperation.WRITE, AclResourceType.TOPIC)
CREATE_TOPIC = Right(AclOperation.CREATE, AclResourceType.TOPIC)
DELETE_TOPIC = Right(AclOperation.DELETE, AclResourceType.TOPIC)
ALTER_TOPIC = Right(AclOperation.ALTER, AclResourceType.TOPIC)
DESCRIBE_TOPIC = Right(AclOperation.DESCRIBE, AclResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC)
ALTER_TOPIC_CONFIGS = Right(AclOperation.ALTER_CONFIGS, AclResourceType.TOPIC)

READ_GROUP = Right(AclOperation.READ, AclResourceType.GROUP)
DELETE_GROUP = Right(AclOperation.DELETE, AclResourceType.GROUP)
DESCRIBE_GROUP = Right(AclOperation.DESCRIBE, AclResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, AclResourceType.GROUP)
ALTER_GROUP_CONFIGS = Right(AclOperation.ALTER_CONFIGS, AclResourceType.GROUP)

WRITE_TRANSACTIONAL_ID = Right(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Right(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID)

CREATE_ON_CLUSTER = Right(AclOperation.CREATE, AclResourceType.CLUSTER)
DELETE_ON_CLUSTER = Right(AclOperation.DELETE, AclResourceType.CLUSTER)
ALTER_CLUSTER = Right(AclOperation.ALTER, AclResourceType.CLUSTER)
DESCRIBE_CLUSTER = Right(AclOperation.DESCRIBE, AclResourceType.CLUSTER)
CLUSTER_ACTION = Right(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)
IDEMPOTENT_WRITE = Right(AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS = Right(AclOperation.ALTER_CONFIGS, AclResourceType.CLUSTER)

DESCRIBE_TOKEN = Right(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN)
DESCRIBE_TOKENS_OF_USER = Right(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER)
CREATE_TOKENS_FOR_USER = Right(AclOperation.CREATE_TOKENS, AclResourceType.USER)
