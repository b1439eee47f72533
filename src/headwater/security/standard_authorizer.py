"""The authorizer that asks ACLs, with the rules of Kafka's StandardAuthorizer.

Until the ACLs are loaded, only super users are allowed anything. Decisions are remembered until an
ACL changes.
"""

from collections.abc import Iterable
from typing import TypeAlias

from headwater.security.acl_index import AclIndex
from headwater.security.acls import (
    AclEntry,
    AclOperation,
    AclResourceType,
    ResourcePattern,
)
from headwater.security.principals import Principal

MAX_REMEMBERED = 50_000
"""Decisions; with more, all are forgotten."""
LONGEST_REMEMBERED = 255
"""Characters of a name. Clients choose names, and no topic has a longer one."""

_ANY_NAME = "hardcode"
"""The topic that Kafka asks about first when any topic would do."""
_Question: TypeAlias = tuple[Principal, str, AclOperation, AclResourceType, str | None]


class StandardAuthorizer:
    """Decides by super users and ACLs."""

    def __init__(self, super_users: Iterable[str] = (), allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._index: AclIndex | None = None
        self._decided: dict[_Question, bool] = {}

    # -- the ACLs

    @property
    def index(self) -> AclIndex:
        """The ACLs in force; to be read only. Empty while they are loaded."""
        return self._index or AclIndex()

    def use(self, index: AclIndex) -> None:
        """Decide by these ACLs from now on."""
        self._index = index
        self._decided = {}

    def replace(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Set all ACLs of a pattern."""
        if self._index is not None:
            self._index.replace(pattern, entries)
        self._decided = {}

    # -- decisions

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        """Return whether `principal` at `host` may perform `operation` on the resource."""
        question = (principal, host, operation, resource_type, name)
        decided = self._decided.get(question)
        if decided is None:
            decided = self._decide(str(principal), host, operation, resource_type, name)
            self._remember(question, decided)
        return decided

    def _decide(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        if principal in self._super_users:
            return True
        if self._index is None:
            return False
        found = self._index.find(principal, host, operation, resource_type, name)
        if found.allowed is not None:
            return found.allowed
        return self._allow_if_no_acl and not found.is_covered

    def authorize_any(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
    ) -> bool:
        """Return whether there may be a resource of the type that the principal has the right to."""
        question = (principal, host, operation, resource_type, None)
        decided = self._decided.get(question)
        if decided is None:
            decided = self.authorize(principal, host, operation, resource_type, _ANY_NAME) or (
                self._index is not None
                and self._index.allows_some(str(principal), host, operation, resource_type)
            )
            self._remember(question, decided)
        return decided

    def _remember(self, question: _Question, decided: bool) -> None:
        if len(question[-1] or "") > LONGEST_REMEMBERED:
            return
        if len(self._decided) >= MAX_REMEMBERED:
            self._decided = {}
        self._decided[question] = decided

    def reason(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> str:
        """Return the rule that decided, for the audit log."""
        if str(principal) in self._super_users:
            return "super user"
        if self._index is None:
            return "the ACLs are not loaded yet"
        found = self._index.find(str(principal), host, operation, resource_type, name)
        if found.entry is None or found.pattern is None:
            return "no ACL allows it"
        entry, pattern = found.entry, found.pattern
        return (
            f"{entry.permission.name} {entry.principal} {entry.operation.name} from {entry.host} on "
            f"{pattern.pattern_type.name} {pattern.resource_type.name} {pattern.name}"
        )
