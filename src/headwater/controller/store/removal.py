"""Removes the nodes of a cluster that is no longer needed from a ZooKeeper."""

import logging
from ssl import SSLContext

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from headwater.controller.store.kazoo_adapter import OrderedHandler

# kazoo warns with every attempt to connect; the caller reports what remains.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)


def remove_nodes(
    hosts: str, path: str, login: str | None, tls: SSLContext | None, timeout_s: float
) -> str | None:
    """Delete a node with everything below it; return why nodes may remain, None if none do."""
    client = KazooClient(
        hosts=hosts,
        timeout=timeout_s,
        handler=OrderedHandler(tls),
        auth_data=[("digest", login)] if login else None,
        logger=_kazoo_log,
    )
    try:
        client.start(timeout=timeout_s)
        if client.exists(path) is not None:
            client.delete(path, recursive=True)
    except (KazooException, KazooTimeoutError) as failure:
        return f"{type(failure).__name__} {failure}".rstrip()
    finally:
        client.stop()
        client.close()
    return None
