"""ACLs by resource and principal, and the decision about one access, as Kafka's StandardAuthorizer.

A lookup costs a few dict lookups for each length that prefixes have, however many ACLs there are.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from headwater.security.acls import (
    EVERYONE,
    WILDCARD,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)

_LITERAL, _PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
_ALLOW, _DENY = AclPermission.ALLOW, AclPermission.DENY
_IMPLYING = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""Operations that are allowed together with those that imply them; a denial implies nothing."""

_Entries: TypeAlias = dict[str, tuple[AclEntry, ...]]
"""The ACLs of one pattern by principal."""
_Rule: TypeAlias = tuple[str, AclResourceType, AclOperation, AclPermission]
"""What the ACLs of a pattern say, wherever from."""


class AclMatch(NamedTuple):
    """What the ACLs say about an access; both are None if no ACL matches it."""

    pattern: ResourcePattern | None
    entry: AclEntry | None
    is_covered: bool
    """Whether any ACL is about the resource, for whomever."""

    @property
    def allowed(self) -> bool | None:
        """Return the verdict; None if no ACL matches."""
        return None if self.entry is None else self.entry.permission is _ALLOW


class AclIndex:
    """All ACLs of a cluster."""

    def __init__(self) -> None:
        self._of: dict[ResourcePattern, _Entries] = {}
        self._prefix_lengths: dict[AclResourceType, Counter[int]] = {
            kind: Counter() for kind in AclResourceType
        }
        self._saying: dict[_Rule, dict[ResourcePattern, None]] = {}

    def patterns(self) -> list[ResourcePattern]:
        return list(self._of)

    def entries(self, pattern: ResourcePattern) -> list[AclEntry]:
        """Return the ACLs of a pattern; none if it has none."""
        return [entry for some in self._of.get(pattern, {}).values() for entry in some]

    def replace(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Set all ACLs of a pattern."""
        by_principal: dict[str, list[AclEntry]] = {}
        for entry in dict.fromkeys(entries):
            by_principal.setdefault(entry.principal, []).append(entry)
        self._remove(pattern)
        if not by_principal:
            return
        self._of[pattern] = {who: tuple(some) for who, some in by_principal.items()}
        if pattern.pattern_type is _PREFIXED:
            self._prefix_lengths[pattern.resource_type][len(pattern.name)] += 1
        for rule in _rules(pattern, self._of[pattern]):
            self._saying.setdefault(rule, {})[pattern] = None

    def _remove(self, pattern: ResourcePattern) -> None:
        former = self._of.pop(pattern, None)
        if former is None:
            return
        if pattern.pattern_type is _PREFIXED:
            lengths = self._prefix_lengths[pattern.resource_type]
            lengths[len(pattern.name)] -= 1
            if not lengths[len(pattern.name)]:
                del lengths[len(pattern.name)]
        for rule in _rules(pattern, former):
            patterns = self._saying[rule]
            del patterns[pattern]
            if not patterns:
                del self._saying[rule]

    # -- one resource

    def find(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> AclMatch:
        """Find the ACL that decides: the first denial, else an allowance."""
        host = canonical_host(host)
        allowance: tuple[ResourcePattern, AclEntry] | None = None
        is_covered = False
        for pattern, entries in self._matching(resource_type, name):
            is_covered = True
            for who in (principal, EVERYONE):
                for entry in entries.get(who, ()):
                    if not _applies(entry, host, operation):
                        continue
                    if entry.permission is _DENY:
                        return AclMatch(pattern, entry, True)
                    allowance = allowance or (pattern, entry)
        if allowance is None:
            return AclMatch(None, None, is_covered)
        return AclMatch(*allowance, True)

    def _matching(
        self, resource_type: AclResourceType, name: str
    ) -> Iterator[tuple[ResourcePattern, _Entries]]:
        for literal in dict.fromkeys((WILDCARD, name)):
            pattern = ResourcePattern(resource_type, _LITERAL, literal)
            entries = self._of.get(pattern)
            if entries is not None:
                yield pattern, entries
        for pattern in self._prefixes(resource_type, name):
            entries = self._of.get(pattern)
            if entries is not None:
                yield pattern, entries

    # -- any resource of a type

    def allows_some(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Return whether an ACL allows the operation on names that no denial covers.

        Neither this nor Kafka considers that several denials may cover a prefix together.
        """
        host = canonical_host(host)

        def saying(permission: AclPermission) -> Iterator[ResourcePattern]:
            for who in dict.fromkeys((principal, EVERYONE)):
                for one in (operation, AclOperation.ALL):
                    yield from self._saying.get((who, resource_type, one, permission), ())

        def says(permission: AclPermission, pattern: ResourcePattern) -> bool:
            return any(
                entry.permission is permission
                and entry.operation in (operation, AclOperation.ALL)
                and _is_from(entry, host)
                for who in (principal, EVERYONE)
                for entry in self._of[pattern].get(who, ())
            )

        denied = {pattern for pattern in saying(_DENY) if says(_DENY, pattern)}
        everything = ResourcePattern(resource_type, _LITERAL, WILDCARD)
        if everything in denied:
            return False
        prefixes = {pattern.name for pattern in denied if pattern.pattern_type is _PREFIXED}
        lengths = {len(prefix) for prefix in prefixes}

        for pattern in saying(_ALLOW):
            name = pattern.name
            for length in lengths:
                if name[:length] in prefixes and pattern != everything:
                    break
            else:
                if pattern not in denied and says(_ALLOW, pattern):
                    return True
        return False

    def _prefixes(self, resource_type: AclResourceType, name: str) -> Iterator[ResourcePattern]:
        """Yield the prefixed patterns that may cover a name: one for each length that some have."""
        for length in self._prefix_lengths[resource_type]:
            if length <= len(name):
                yield ResourcePattern(resource_type, _PREFIXED, name[:length])

    # -- many

    def select(self, wanted: AclFilter) -> Iterator[tuple[ResourcePattern, AclEntry] | None]:
        """Yield the selected ACLs, and None after each pattern, so that the caller can pause."""
        if wanted.name is not None and wanted.pattern_type in (_LITERAL, _PREFIXED):
            kinds = AclResourceType if wanted.resource_type is AclResourceType.ANY else ()
            patterns = [
                ResourcePattern(kind, wanted.pattern_type, wanted.name)
                for kind in kinds or (wanted.resource_type,)
            ]
        else:
            patterns = list(self._of)
        for pattern in patterns:
            if wanted.selects_pattern(pattern):
                for entry in self.entries(pattern):
                    if wanted.selects_entry(entry):
                        yield pattern, entry
            yield None


def _applies(entry: AclEntry, host: str, operation: AclOperation) -> bool:
    if not _is_from(entry, host):
        return False
    if entry.operation in (operation, AclOperation.ALL):
        return True
    return entry.permission is _ALLOW and entry.operation in _IMPLYING.get(operation, ())


def _is_from(entry: AclEntry, host: str) -> bool:
    return entry.host == WILDCARD or canonical_host(entry.host) == host


def _rules(pattern: ResourcePattern, entries: _Entries) -> set[_Rule]:
    return {
        (who, pattern.resource_type, entry.operation, entry.permission)
        for who, some in entries.items()
        for entry in some
    }


@lru_cache(maxsize=4096)
def canonical_host(host: str) -> str:
    """Return an address in one form, however it was written; another text as it is."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
