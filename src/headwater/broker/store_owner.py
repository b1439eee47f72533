"""Refuses nodes of the store that may have been written without the brokers' login.

Everyone who may change a node may delete its children and create others in their place, whatever their
ACLs are. So with `zookeeper.set.acl` a broker that starts looks at the ACLs of what it trusts, and of
the root of the cluster.
"""

import hmac
import logging
from collections.abc import Iterable
from functools import partial

from headwater.broker.callbacks import wait_for_reply
from headwater.broker.registration import JoinError
from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    READ,
    Acl,
    AclAndStat,
    AclReader,
    StoreError,
    StoreFailure,
    Znode,
)
from headwater.controller.store.znodes import CLUSTER_SECRET, FIRST_USERS, TIME_PREFIX

log = logging.getLogger(__name__)

_STRANGERS = ("world", "ip")
"""Schemes that do not prove knowledge of the brokers' login."""


async def refuse_foreign_nodes(store: AclReader, chroot: str, secret: bytes) -> None:
    """Raise JoinError unless the secret and the list of first users belong to the brokers.

    `secret` is what was read before. A root that others may change is a warning; where brokers log in
    with a certificate, anybody can give a node below such a root to the certificate's name.
    """
    own = await _own_names(store)
    await _warn_of_open_root(store, chroot)
    for path in (CLUSTER_SECRET, FIRST_USERS):
        node, acl = await _node_and_acl(store, path)
        if node is None:
            continue
        others = [one for one in acl if (one.scheme, one.identity) not in own]
        if others:
            raise JoinError(_foreign_text(path, chroot, f"lets {_named(others)} use {path}"))
        if path != FIRST_USERS and not hmac.compare_digest(node.data, secret.hex().encode()):
            raise JoinError(_foreign_text(path, chroot, f"had another {path} a moment ago"))


async def _own_names(store: AclReader) -> set[tuple[str, str]]:
    """The names to which a node of this broker belongs: those of its login and its certificate."""
    while True:
        try:
            made = partial(store.create, TIME_PREFIX, b"", ephemeral=True, sequential=True)
            path = await wait_for_reply(made)
            found: AclAndStat = await wait_for_reply(partial(store.acl, path))
        except StoreError as failure:
            # A node whose creation has an unknown outcome ends with the session.
            if failure.kind not in (StoreFailure.CONNECTION_LOSS, StoreFailure.NO_NODE):
                raise
            continue
        store.delete(path, ANY_VERSION, lambda _: None)
        return {(one.scheme, one.identity) for one in found.acl if one.scheme not in _STRANGERS}


async def _warn_of_open_root(store: AclReader, chroot: str) -> None:
    try:
        root: AclAndStat = await wait_for_reply(partial(store.acl, "/"))
    except StoreError as refusal:
        if refusal.kind is not StoreFailure.NOT_AUTHORIZED:
            raise
        return  # its owner, who is not the world, keeps it to himself
    others = [one for one in root.acl if one.scheme in _STRANGERS and one.permissions & ~READ]
    if others:
        log.warning(
            "zookeeper.set.acl=true, but ZooKeeper lets %s change %s, and so delete and replace nodes "
            "of the brokers: %s",
            _named(others),
            chroot or "/",
            _how_to_close(chroot),
        )


async def _node_and_acl(store: AclReader, path: str) -> tuple[Znode | None, tuple[Acl, ...]]:
    """A node and the ACL of this very node, not of one that has replaced it since."""
    while True:
        try:
            node: Znode = await wait_for_reply(partial(store.get, path))
            found: AclAndStat = await wait_for_reply(partial(store.acl, path))
        except StoreError as failure:
            if failure.kind is not StoreFailure.NO_NODE:
                raise
            return None, ()
        if found.stat.czxid == node.stat.czxid:
            return node, found.acl


def _foreign_text(path: str, chroot: str, found: str) -> str:
    whole = chroot + path
    then = "restart all brokers"
    if path == FIRST_USERS:
        then = "remove from sasl.scram.users.file the users that must not come back"
    return (
        f"ZooKeeper {found}, so it may have been written without the brokers' login. "
        f"If zookeeper.set.acl=true is new here, type `setAcl {whole} auth::cdrwa` in zkCli.sh after "
        "`addauth digest USER:PASSWORD`, and start again. Otherwise "
        f"{_how_to_close(chroot)}; then `delete {whole}` and {then}"
    )


def _how_to_close(chroot: str) -> str:
    command = (
        f"type `setAcl {chroot or '/'} auth::cdrwa,world:anyone:r` in zkCli.sh after `addauth`"
    )
    if chroot:
        return command
    return f"{command}, or give the brokers a path of their own (zookeeper.connect=HOST:PORT/PATH)"


def _named(others: Iterable[Acl]) -> str:
    """Return their names, without the hashes of passwords."""
    names = [
        "everyone" if one.scheme == "world" else f"{one.scheme}:{one.identity.partition(':')[0]}"
        for one in others
    ]
    return ", ".join(dict.fromkeys(names))
