"""Closes the root of a store that belongs to one cluster: others can only read what is below it."""

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id

from headwater.controller.store.acls import digest_identity
from headwater.controller.store.kazoo_adapter import OrderedHandler

_ALL = 31


def close_root(hosts: str, login: str, timeout_s: float) -> str | None:
    """Give `/` to the brokers' login, `user:password`; return why it stays open, None if it does not.

    A root that has an owner stays as it is.
    """
    own = digest_identity(login.encode())
    if own is None:
        return "zookeeper.digest.username is empty"
    client = KazooClient(
        hosts=hosts,
        timeout=timeout_s,
        handler=OrderedHandler(None),
        auth_data=[("digest", login)],
    )
    try:
        client.start(timeout=timeout_s)
        acl, _ = client.get_acls("/")
        if acl == OPEN_ACL_UNSAFE:
            client.set_acls("/", [ACL(_ALL, Id(own.scheme, own.name)), *READ_ACL_UNSAFE])
    except NoAuthError:
        return None  # it has an owner, who keeps it to himself
    except (KazooException, KazooTimeoutError) as failure:
        return f"{type(failure).__name__} {failure}".rstrip()
    finally:
        client.stop()
        client.close()
    return None
