"""Several brokers over one metadata store, each a thread of this process or a process of its own."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headwater.testing import Broker
from tests.integration.metadata_stores import StoreProcess

PATIENCE_S = 60
SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
}


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition; what raises has not come true yet."""
    deadline = time.monotonic() + PATIENCE_S
    failure: Exception | None = None
    while True:
        try:
            if condition():
                return
        except Exception as problem:  # noqa: BLE001 - it may hold at the next try
            failure = problem
        assert time.monotonic() < deadline, f"waited in vain for {what} ({failure!r})"
        time.sleep(0.02)


class Brokers:
    """Brokers 1 to `count` of one cluster."""

    def __init__(self, address: str, count: int, *, subprocess: bool, **settings: str) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="brokers-"))
        self.address = address
        self.subprocess = subprocess
        self.settings = {**SETTINGS, **settings, "zookeeper.connect": address}
        self.all = {number: self.make(number) for number in range(1, count + 1)}

    def make(self, number: int, folder: str = "", **settings: str) -> Broker:
        return Broker(
            {**self.settings, "node.id": str(number), **settings},
            data_dir=self._root / (folder or str(number)),
            subprocess=self.subprocess,
        )

    def log_of(self, number: int) -> Path:
        """What a broker with a process of its own has logged."""
        return self._root / str(number) / "broker.stderr"

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.all.values() if broker.bootstrap)

    def close(self) -> None:
        for broker in self.all.values():
            broker.stop()
        shutil.rmtree(self._root, ignore_errors=True)


@contextlib.contextmanager
def store_process() -> Iterator[StoreProcess]:
    """`headwater store` with data of its own."""
    folder = tempfile.mkdtemp(prefix="store-")
    store = StoreProcess(folder)
    try:
        yield store
    finally:
        store.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running(
    address: str, count: int = 3, *, subprocess: bool = True, **settings: str
) -> Iterator[Brokers]:
    """`count` brokers that serve."""
    brokers = Brokers(address, count, subprocess=subprocess, **settings)
    try:
        for broker in brokers.all.values():
            broker.start()
        yield brokers
    finally:
        brokers.close()
