"""A simulated world from a seed: time, a network, machines, and a loop for their clients.

With `session_ms` the brokers share a simulated ZooKeeper and form one cluster. Without it each has a
metadata store of its own, in its process or, with `remote_store`, behind links to the host "store".
"""

import gc
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headwater.broker.lifecycle_loop import OpenStore
from headwater.broker.local_store import LocalStore
from headwater.errors import E, KafkaError
from simulator.clock import SimClock
from simulator.kazoo_client import open_zookeeper
from simulator.loop import Crashed, Scheduler, SimLoop
from simulator.network import SimNetwork
from simulator.node import Node
from simulator.randomness import stream
from simulator.store import open_remote_store
from simulator.trace import Trace
from simulator.zookeeper import SimZooKeeper

START_LIMIT_S = 120.0


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Collect no garbage: that happens at moments that no seed decides, and runs finalizers of clients.

    What was dropped is collected at the end, in one go; nobody hears what dead clients log then.
    """
    was_enabled, was_silenced = gc.isenabled(), logging.root.manager.disable
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            logging.disable()
            gc.collect(0)
            logging.disable(was_silenced)
            gc.enable()


class Cluster:
    """Everything that one run consists of. Use it as a context manager."""

    def __init__(
        self,
        seed: int,
        settings: Mapping[str, str] | None = None,
        *,
        slowest_network_ms: int = 5,
        slowest_thread_ms: int = 20,
        keep_trace: bool = False,
        brokers: int = 1,
        remote_store: bool = False,
        session_ms: int = 0,
        protocol: str = "PLAINTEXT",
    ) -> None:
        self.seed = seed
        self.trace = Trace(keep=keep_trace)
        self.scheduler = Scheduler(self.trace)
        self.network = SimNetwork(
            self.scheduler, stream(seed, "network"), slowest_network_ms,
            split=(0.0, 0.15) if session_ms else (0.6, 1.0),
        )  # fmt: skip
        chance = stream(seed, "zookeeper")
        self.zookeeper = SimZooKeeper(self.scheduler, self.network, chance) if session_ms else None
        open_store: OpenStore = LocalStore.open
        if self.zookeeper is not None:
            open_store = open_zookeeper(self.network, self.zookeeper, chance, session_ms)
        elif remote_store:
            open_store = open_remote_store(self.network)
        self.nodes = [
            Node(
                self.scheduler, self.network, seed, settings or {}, slowest_thread_ms, number,
                open_store, protocol,
            )
            for number in range(1, brokers + 1)
        ]  # fmt: skip
        self.clock = SimClock(self.scheduler)
        self.clients = SimLoop(self.scheduler, "clients")  # type: ignore[abstract]
        self.client_loops: list[SimLoop] = []
        """Clients that run as their own processes."""
        self.login: Callable[[str], dict[str, Any]] = lambda _: {}
        """The settings with which the client on a host logs in."""
        self.auditing = False
        """Whether ordinary clients are kept out during the audit after a power failure."""
        self.log = _Complaints(self.scheduler, self.nodes)

    def __enter__(self) -> "Cluster":
        self._pause = paused_garbage_collection()
        self._pause.__enter__()
        self.log.attach()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.crash()
        for loop in [self.clients, *self.client_loops]:
            loop.kill()
        self.log.detach()
        self._pause.__exit__(None, None, None)

    def run(self, work: Coroutine[Any, Any, Any], limit_s: float = 600.0) -> Any:
        """Run the world until a client's coroutine ends."""
        return self.clients.run(work, limit_s)

    def wait(self, done: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Run the world until `done`."""
        self.scheduler.run_until(done, limit_s)

    @property
    def node(self) -> Node:
        """The first broker's machine, which scripted clients talk to."""
        return self.nodes[0]

    def start(self, node: Node | None = None) -> bool:
        """Start a broker, by default the first; False if it crashed before it served."""
        node = node or self.node
        node.start()
        life = node.life
        assert life is not None
        self.wait(lambda: life.serving or life.ended or bool(self.complaints), START_LIMIT_S)
        return life.serving

    def stop(self) -> None:
        """Stop the broker cleanly and wait for it."""
        self.node.stop()
        self.wait(lambda: self.node.life is None or bool(self.complaints))

    @property
    def complaints(self) -> list[str]:
        """Everything that must not happen and did."""
        return self.scheduler.complaints


class _Complaints(logging.Handler):
    """Turns exceptions that the product logged into complaints, except for planned disk errors."""

    def __init__(self, scheduler: Scheduler, nodes: Sequence[Node]) -> None:
        super().__init__(logging.ERROR)
        self._scheduler = scheduler
        self._nodes = nodes
        self._secret: str | None = None
        self._before: tuple[int, bool] = (logging.NOTSET, True)

    def attach(self) -> None:
        """Take over the product's log."""
        product = logging.getLogger("headwater")
        self._before = (product.level, product.propagate)
        product.setLevel(logging.ERROR)
        product.propagate = False
        product.addHandler(self)

    def search(self, secret: str) -> None:
        """Take every line of the log from now on, and complain of those with this text."""
        self._secret = secret
        self.setLevel(logging.DEBUG)
        logging.getLogger("headwater").setLevel(logging.DEBUG)

    def detach(self) -> None:
        """Restore the log."""
        product = logging.getLogger("headwater")
        product.removeHandler(self)
        product.level, product.propagate = self._before

    def emit(self, record: logging.LogRecord) -> None:
        """Handle one line of the log."""
        if self._secret is not None and self._secret in self.format(record):
            self._scheduler.complain(f"S4: a line of the log has a password: {record.getMessage()}")
        if record.levelno < logging.ERROR:
            return
        self._scheduler.trace.note(f"log: {record.getMessage()}")
        failure = record.exc_info[1] if record.exc_info else None
        if failure is not None and not _of_the_disk(failure):
            self._scheduler.complain(f"{record.getMessage()}: {failure!r}")
        if record.levelno >= logging.CRITICAL and not any(
            node.faults.refusals for node in self._nodes
        ):
            self._scheduler.complain(f"I10: the disk is sound: {record.getMessage()}")


def _of_the_disk(failure: BaseException) -> bool:
    """Return whether the failure was a planned disk error, which the product may log."""
    if isinstance(failure, KafkaError):
        return failure.code is E.KAFKA_STORAGE_ERROR
    return isinstance(failure, OSError | Crashed)
