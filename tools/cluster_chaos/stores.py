"""The metadata store of a run, which can be killed and started again: ours, or a ZooKeeper."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from headwater.processes.child import store_process
from headwater.processes.local_nodes import unused_port
from tools.zookeeper_server import ZooKeeperServer


class Store(Protocol):
    """A process that brokers keep their metadata in."""

    address: str

    def start(self) -> None:
        """Start it where it was, and wait until it serves."""

    def kill(self) -> None:
        """End it with SIGKILL; nothing happens if it does not run."""


class OwnStore:
    """`headwater store`."""

    def __init__(self, folder: Path) -> None:
        port = unused_port()
        self.address = f"127.0.0.1:{port}"
        self._child = store_process(folder, port)
        self.start()

    def start(self) -> None:
        self._child.launch()
        self._child.wait_ready()

    def kill(self) -> None:
        self._child.kill()


class ZooKeeperStoreProcess:
    """A ZooKeeper alone."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._server = ZooKeeperServer(folder, unused_port())
        self.address = self._server.address
        self._server.wait_until_serving()

    def start(self) -> None:
        self._server.start()
        self._server.wait_until_serving()

    def kill(self) -> None:
        self._server.kill()


@contextmanager
def running_store(folder: Path, *, zookeeper: bool) -> Iterator[Store]:
    """A store that serves until the end of the block."""
    store: Store = ZooKeeperStoreProcess(folder) if zookeeper else OwnStore(folder)
    try:
        yield store
    finally:
        store.kill()
