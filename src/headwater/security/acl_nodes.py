"""Where ACLs are in the metadata store, and how: paths and content as Kafka 3.9 writes them.

One node per pattern, with all its ACLs; a literal pattern below /kafka-acl, a prefixed one below
/kafka-acl-extended. A change leaves a notification that names the pattern.
"""

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from headwater.security.acls import (
    EVERYONE,
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)

LITERAL_ROOT = "/kafka-acl"
PREFIXED_ROOT = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
PREFIXED_CHANGES = "/kafka-acl-extended-changes"
CHANGE_PREFIX = "acl_changes_"
MAX_NODE_BYTES = 256 * 1024
"""The ACLs of one pattern; ZooKeeper ends the connection of a client that sends 1 MiB."""

DENIES_ALL = (AclEntry(EVERYONE, WILDCARD, AclOperation.ALL, AclPermission.DENY),)
"""Stands for a node that cannot be read: it may hold denials."""


def _camel(name: str) -> str:
    return name.title().replace("_", "")


_TYPE_NAMES: dict[AclResourceType, str] = {
    kind: _camel(kind.name) for kind in AclResourceType if kind is not kind.ANY
}
_TYPES = {name: kind for kind, name in _TYPE_NAMES.items()}
_OPERATIONS = {_camel(one.name): one for one in AclOperation if one is not one.ANY}
_PERMISSIONS = {"Allow": AclPermission.ALLOW, "Deny": AclPermission.DENY}
_ROOTS = {
    AclPatternType.LITERAL: (LITERAL_ROOT, LITERAL_CHANGES),
    AclPatternType.PREFIXED: (PREFIXED_ROOT, PREFIXED_CHANGES),
}

BASE_PATHS = (
    LITERAL_ROOT,
    *(f"{LITERAL_ROOT}/{name}" for name in _TYPES),
    LITERAL_CHANGES,
    "/kafka-acl-extended",
    PREFIXED_ROOT,
    *(f"{PREFIXED_ROOT}/{name}" for name in _TYPES),
    PREFIXED_CHANGES,
)
"""The paths to create first; parents come before their children."""

TYPE_PATHS = {
    f"{root}/{name}": (pattern_type, kind)
    for pattern_type, (root, _) in _ROOTS.items()
    for kind, name in _TYPE_NAMES.items()
}
"""The parents of the nodes, and what they hold."""

_UNSAFE = re.compile("[/%\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|^\\.{1,2}$")
"""What ZooKeeper does not take in a path; Kafka's names of topics have none of it."""


def node_path(pattern: ResourcePattern) -> str:
    """Return the path of the node with a pattern's ACLs."""
    root, _ = _ROOTS[pattern.pattern_type]
    return f"{root}/{_TYPE_NAMES[pattern.resource_type]}/{_quoted(pattern.name)}"


def pattern_of(parent: str, segment: str) -> ResourcePattern:
    """Return the pattern of the node `segment` below one of `TYPE_PATHS`."""
    pattern_type, kind = TYPE_PATHS[parent]
    return ResourcePattern(kind, pattern_type, unquote(segment))


def _quoted(name: str) -> str:
    return _UNSAFE.sub(lambda at: "".join(f"%{byte:02X}" for byte in at[0].encode()), name)


def encode_entries(entries: Iterable[AclEntry]) -> bytes:
    """Return the content of a pattern's node."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _camel(entry.permission.name),
            "operation": _camel(entry.operation.name),
            "host": entry.host,
        }
        for entry in entries
    ]
    return json.dumps({"version": 1, "acls": acls}, separators=(",", ":")).encode()


def decode_entries(data: bytes) -> tuple[AclEntry, ...]:
    """Return the ACLs of a pattern's node.

    Leave out operations that this broker does not know. A node that cannot be read denies everything.
    """
    try:
        acls: list[Any] = json.loads(data)["acls"] if data else []
        return tuple(
            AclEntry(
                str(row["principal"]),
                str(row["host"]),
                _OPERATIONS[row["operation"]],
                _PERMISSIONS[row["permissionType"]],
            )
            for row in acls
            if row["operation"] in _OPERATIONS
        )
    except (ValueError, KeyError, TypeError):
        return DENIES_ALL


def change_path(pattern: ResourcePattern) -> str:
    """Return the path of a notification without its number."""
    _, changes = _ROOTS[pattern.pattern_type]
    return f"{changes}/{CHANGE_PREFIX}"


def encode_change(pattern: ResourcePattern) -> bytes:
    """Return the content of the notification that a pattern's ACLs changed."""
    name = _TYPE_NAMES[pattern.resource_type]
    if pattern.pattern_type is AclPatternType.LITERAL:
        return f"{name}:{pattern.name}".encode()
    value = {
        "version": 1,
        "resourceType": name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_change(data: bytes) -> ResourcePattern:
    """Return the pattern that a notification names; ValueError if it cannot be read."""
    try:
        if not data.startswith(b"{"):
            kind, _, name = data.decode().partition(":")
            return ResourcePattern(_TYPES[kind], AclPatternType.LITERAL, name)
        value = json.loads(data)
        pattern_type = AclPatternType[value["patternType"].upper()]
        return ResourcePattern(_TYPES[value["resourceType"]], pattern_type, str(value["name"]))
    except (KeyError, TypeError, AttributeError) as unknown:
        raise ValueError(f"a notification of changed ACLs names no pattern: {unknown}") from unknown
