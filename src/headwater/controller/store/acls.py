"""ACLs of the store's nodes, by ZooKeeper's rules for the schemes world, auth, digest and ip."""

import base64
import hashlib
import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from headwater.controller.store.metadata_store import OPEN_ACL, Acl

MOST = 0xFFFF
"""The most entries of an ACL, and the most bytes of an identity: the journal counts both in two bytes."""


class Identity(NamedTuple):
    """A proven identity of a connection: its address, or a user and the digest of a password."""

    scheme: str
    name: str


def digest_identity(credentials: bytes) -> Identity | None:
    """The identity that `user:password` proves; None without a user."""
    user, found, _ = credentials.partition(b":")
    if not (user and found):
        return None
    digest = base64.b64encode(hashlib.sha1(credentials).digest()).decode()
    return Identity("digest", f"{user.decode(errors='replace')}:{digest}")


def checked(acl: Sequence[Acl], identities: Sequence[Identity]) -> tuple[Acl, ...] | None:
    """The ACL to store, with `auth` replaced by the identities of the client; None if it is invalid."""
    stored: list[Acl] = []
    for entry in acl:
        if entry.scheme == "auth":
            own = [who for who in identities if who.scheme == "digest"]
            if not own:
                return None
            stored += [Acl(entry.permissions, who.scheme, who.name) for who in own]
        elif _is_valid(entry):
            stored.append(entry)
        else:
            return None
    unique = tuple(dict.fromkeys(stored))
    if len(unique) > MOST or any(len(entry.identity.encode()) > MOST for entry in unique):
        return None
    return (OPEN_ACL if unique == OPEN_ACL else unique) or None


def _is_valid(entry: Acl) -> bool:
    match entry.scheme:
        case "world":
            return entry.identity == "anyone"
        case "digest":
            return entry.identity.count(":") == 1
        case "ip":
            return _network(entry.identity) is not None
        case _:
            return False


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def allows(acl: Sequence[Acl], permission: int, identities: Sequence[Identity]) -> bool:
    """Whether one of `identities` has one of the permission bits."""
    if acl is OPEN_ACL:
        return True
    return any(
        entry.permissions & permission
        and (entry.scheme == "world" or any(_matches(entry, who) for who in identities))
        for entry in acl
    )


def _matches(entry: Acl, who: Identity) -> bool:
    if entry.scheme != who.scheme:
        return False
    if entry.scheme == "ip":
        network = _network(entry.identity)
        return network is not None and ipaddress.ip_address(who.name) in network
    return entry.identity == who.name
