"""Finds nodes in ZooKeeper that anyone but the brokers may change, or read although they hold secrets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from headwater.config.keys import ConfigError
from headwater.controller.store.acls import digest_identity
from headwater.controller.store.kazoo_adapter import OrderedHandler
from headwater.controller.store.metadata_store import READ, Acl
from headwater.controller.store.znodes import is_sensitive

_AT_A_TIME = 500
_OF_ZOOKEEPER = "/zookeeper"
_STRANGERS = ("world", "ip")
"""Schemes that do not prove knowledge of the brokers' login."""


class NodeAcl(NamedTuple):
    """A node whose ACL can be seen."""

    path: str
    acl: tuple[Acl, ...]


class _Access(NamedTuple):
    """What a stranger may do."""

    who: str
    may: str


@dataclass(eq=False, slots=True)
class OpenNode:
    """A node that others may access, and how many below it they may access alike."""

    path: str
    who: str
    may: str
    below: int = 0

    def __str__(self) -> str:
        nodes = "node" if self.below == 1 else "nodes"
        more = f" and {self.below} {nodes} below" if self.below else ""
        return f"ZooKeeper lets {self.who} {self.may} {self.path}{more}"


def open_nodes(nodes: Iterable[NodeAcl], login: str | None) -> list[OpenNode]:
    """Return the topmost open nodes; parents come before their children.

    `login` is the brokers' `user:password`. Without it, only the world and addresses are strangers.
    """
    own = digest_identity(login.encode()) if login else None
    found: list[OpenNode] = []
    by_path: dict[str, dict[_Access, OpenNode]] = {}
    for path, acl in nodes:
        above = by_path.get(path.rpartition("/")[0] or "/", {})
        here = by_path[path] = {}
        for access in dict.fromkeys(_accesses(path, acl, own and own.name)):
            top = above.get(access)
            if top is None:
                top = OpenNode(path, *access)
                found.append(top)
            else:
                top.below += 1
            here[access] = top
    return found


def _accesses(path: str, acl: Iterable[Acl], own: str | None) -> Iterator[_Access]:
    for permissions, scheme, identity in acl:
        is_stranger = scheme in _STRANGERS or (scheme == "digest" and own not in (None, identity))
        if is_stranger:
            # The hash of a password is of no use to the reader, and could be guessed from.
            name = identity.partition(":")[0] if scheme == "digest" else identity
            who = "everyone" if scheme == "world" else f"{scheme}:{name}"
            if permissions & ~READ:
                yield _Access(who, "change")
            if permissions & READ and is_sensitive(path):
                yield _Access(who, "read")


def read_acls(
    address: tuple[str, str], login: str | None, tls: SSLContext | None, timeout_s: float
) -> list[NodeAcl]:
    """Return the nodes of a cluster with their ACLs, without those that this login may not read.

    `address` has the servers and the root path. ConfigError if no server answers.
    """
    hosts, root = address
    client = KazooClient(
        hosts=hosts,
        timeout=timeout_s,
        handler=OrderedHandler(tls),
        auth_data=[("digest", login)] if login else None,
    )
    try:
        client.start(timeout=timeout_s)
        nodes = list(_below(client, root))
    except KazooTimeoutError:
        raise ConfigError(
            f"no ZooKeeper server answers at {hosts} within {timeout_s:.0f} s: check the address "
            "(--zookeeper, or zookeeper.connect)"
        ) from None
    finally:
        client.stop()
        client.close()
    if not nodes:
        raise ConfigError(
            f"ZooKeeper at {hosts} has no {root or '/'} that this login may read: check the address, "
            "and name the brokers' settings with --config"
        )
    return nodes


def _below(client: Any, root: str) -> Iterator[NodeAcl]:
    """Yield the nodes level by level, with paths from the cluster's root."""
    level = ["/"]
    while level:
        children: list[str] = []
        for begin in range(0, len(level), _AT_A_TIME):
            asked = level[begin : begin + _AT_A_TIME]
            whole = [f"{root}{path}".rstrip("/") or "/" for path in asked]
            acls = [client.get_acls_async(path) for path in whole]
            names = [client.get_children_async(path) for path in whole]
            for path, acl, below in zip(asked, acls, names, strict=True):
                rows = _answer(acl)
                if rows is not None:
                    yield NodeAcl(path, tuple(Acl(one.perms, *one.id) for one in rows[0]))
                prefix = path.rstrip("/")
                children += (f"{prefix}/{name}" for name in _answer(below) or ())
        level = [path for path in children if path != _OF_ZOOKEEPER]


def _answer(asked: Any) -> Sequence[Any] | None:
    """Return an answer; None for a node that is gone or may not be read."""
    try:
        answer: Sequence[Any] = asked.get()
    except (NoNodeError, NoAuthError):
        return None
    return answer
