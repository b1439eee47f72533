"""The words of authorization: operations, resource types, ACLs and filters; and the authorizer.

The broker checks the rights of every request. Its default authorizer allows all;
`standard_authorizer` asks ACLs.
"""

from enum import IntEnum
from typing import NamedTuple, Protocol

from headwater.security.principals import Principal

CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"
"""As the name of a literal pattern: every resource of the type. As a host: every host."""
EVERYONE = "User:*"
"""The principal of an ACL that is for everybody."""


class AclOperation(IntEnum):
    """An operation, with its number in the protocol; ANY is for filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(IntEnum):
    """The type of a resource, with its number in the protocol; ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(IntEnum):
    """How the name of a pattern is meant, with its number in the protocol.

    ANY and MATCH are for filters only: MATCH finds every pattern that a resource name falls under.
    """

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """What an ACL does, with its number in the protocol; ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about."""

    resource_type: AclResourceType
    pattern_type: AclPatternType
    name: str


class AclEntry(NamedTuple):
    """Who is allowed or denied what from where."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


class AclFilter(NamedTuple):
    """Selects ACLs; None and ANY select all."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def selects_pattern(self, pattern: ResourcePattern) -> bool:
        """Return whether ACLs of the pattern may be selected."""
        if self.resource_type not in (AclResourceType.ANY, pattern.resource_type):
            return False
        kind = self.pattern_type
        if kind not in (AclPatternType.ANY, AclPatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if kind is not AclPatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is AclPatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def selects_entry(self, entry: AclEntry) -> bool:
        """Return whether an ACL of a selected pattern is selected."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )


OPERATIONS_ON = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}


class Authorizer(Protocol):
    """Decides about rights; must not wait. Brokers are not asked about: they may do everything."""

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        """Return whether `principal` at `host` may perform `operation` on the resource."""

    def authorize_any(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
    ) -> bool:
        """Return whether there may be a resource of the type that the principal has the right to."""

    def reason(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> str:
        """Return the rule that decided, for the audit log."""


class AllowAll:
    """The authorizer of a broker without access rules."""

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        """Return True."""
        return True

    def authorize_any(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
    ) -> bool:
        """Return True."""
        return True

    def reason(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> str:
        """Return why nothing is refused."""
        return "there are no access rules"
