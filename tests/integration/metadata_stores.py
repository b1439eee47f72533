"""Every metadata store behind one driver: embedded, `headwater store`, ZooKeeper, an ensemble."""

import contextlib
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tools.free_ports import free_port
from tools.zookeeper_server import ZooKeeperServer

from headwater.controller.store.metadata_store import MetadataStore, SessionState
from headwater.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore
from headwater.seams.clock import SystemClock
from simulator.clock import SimClock
from simulator.kazoo_client import connect_store
from simulator.loop import Scheduler, SimLoop
from simulator.network import SimNetwork
from simulator.randomness import stream
from simulator.trace import Trace
from simulator.zookeeper import SimZooKeeper
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles, embedded

PATIENCE_S = 60


class EmbeddedCase:
    """An embedded store; `reopen` begins a new session on the same files."""

    def __init__(self, _: str) -> None:
        self.loop = FakeLoop()
        self.files = MemoryFiles()
        self.store: MetadataStore = embedded(self.loop, self.files)

    def reopen(self) -> None:
        self.store.close()
        self.loop.run()
        self.store = embedded(self.loop, self.files)

    def settle(self) -> None:
        self.loop.run()

    def close(self) -> None:
        self.store.close()


class SimulatedCase:
    """The simulated ZooKeeper, over the simulated network."""

    def __init__(self) -> None:
        self._scheduler = Scheduler(Trace())
        self._chance = stream(1, "network")
        self._network = SimNetwork(self._scheduler, self._chance, slowest_ms=5)
        self._server = SimZooKeeper(self._scheduler, self._network, self._chance)
        self._loop = SimLoop(self._scheduler, "broker", "broker")
        self.sessions: list[SessionState] = []
        self.store = self._open()

    def _open(self) -> ZooKeeperStore:
        async def connect() -> ZooKeeperStore:
            clock = SimClock(self._scheduler)
            return connect_store(self._network, self._server, self._chance, clock, 60_000)

        store: ZooKeeperStore = self._loop.run(connect())
        self.sessions.clear()
        store.on_session(self.sessions.append)
        self._until(lambda: self.sessions == [SessionState.OPEN])
        return store

    def _until(self, holds: Callable[[], bool]) -> None:
        self._scheduler.events = 0
        self._scheduler.run_until(holds, limit_s=10)
        assert self._scheduler.complaints == []

    def settle(self) -> None:
        answers: list[Any] = []
        self.store.exists("/", answers.append)
        self._until(lambda: bool(answers))

    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()

    def close(self) -> None:
        self.store.close()


class KazooCase:
    """A store behind kazoo, in a chroot of its own; the loop is a queue that `settle` empties."""

    _cases = 0

    def __init__(
        self, address: str, session_timeout_ms: int = 10_000, chroot: str = "", **security: Any
    ) -> None:
        KazooCase._cases += 1
        self.chroot = chroot or f"/case/{KazooCase._cases}-{time.monotonic_ns()}"
        self._settings = ZooKeeperSettings(address, self.chroot, session_timeout_ms, **security)
        self._events: queue.Queue[tuple[Callable[..., None], tuple[Any, ...]]] = queue.Queue()
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self.sessions: list[SessionState] = []
        self.store = self._open()

    def _open(self) -> ZooKeeperStore:
        store = ZooKeeperStore(self._settings, SystemClock(), self._call_soon, self._call_later)
        store.on_session(self.sessions.append)
        self.sessions.clear()
        self.until(lambda: self.sessions == [SessionState.OPEN])
        return store

    def _call_soon(self, call: Callable[..., None], *args: Any) -> None:
        self._events.put((call, args))

    def _call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._timers.append((time.monotonic() + delay_s, call))

    def until(self, holds: Callable[[], bool]) -> None:
        """Run events and timers until `holds`."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, "the store does not answer"
            with contextlib.suppress(queue.Empty):
                call, args = self._events.get(timeout=0.02)
                call(*args)
            due = [timer for timer in self._timers if timer[0] <= time.monotonic()]
            self._timers = [timer for timer in self._timers if timer not in due]
            for _, fire in due:
                fire()

    def settle(self) -> None:
        """Wait for an answer behind everything that was asked: all before it has arrived then."""
        answers: list[Any] = []
        self.store.exists("/", answers.append)
        self.until(lambda: bool(answers))

    def reopen(self) -> None:
        self.close()
        self.store = self._open()

    def close(self) -> None:
        self.store.close()
        self.store.wait_closed(PATIENCE_S)


class StoreProcess:
    """`headwater store` in a process of its own."""

    def __init__(self, folder: str, port: int = 0) -> None:
        self._folder, self._port = folder, port
        self.start()
        self._port = int(self.address.rpartition(":")[2])

    def start(self) -> None:
        """Start, or start again where it was."""
        command = [sys.executable, "-m", "headwater", "store", "--json", "--until-stdin-closes"]
        command += ["--data-dir", self._folder, "--port", str(self._port)]
        command += ["--log-level", "WARNING"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = json.loads(self._process.stdout.readline())["address"]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> int:
        self._process.terminate()
        self._process.communicate()
        return self._process.returncode


@contextlib.contextmanager
def zookeepers(count: int, config: str = "") -> Iterator[list[ZooKeeperServer]]:
    """An ensemble of `count` servers, serving, with more lines of `zoo.cfg`."""
    root = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    ports = [free_port() for _ in range(3 * count)]
    peers = "".join(
        f"server.{n + 1}=127.0.0.1:{ports[count + 2 * n]}:{ports[count + 2 * n + 1]}\n"
        for n in range(count)
    )
    extra = f"initLimit=50\nsyncLimit=20\nstandaloneEnabled=false\n{peers}" if count > 1 else ""
    members = []
    try:
        for n in range(count):
            folder = root / str(n + 1)
            folder.mkdir()
            (folder / "myid").write_text(f"{n + 1}\n")
            members.append(ZooKeeperServer(folder, ports[n], extra + config))
        for member in members:
            member.wait_until_serving()
        yield members
    finally:
        for member in members:
            member.kill()
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def _store_process() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        process = StoreProcess(folder)
        yield process.address
        process.stop()


@contextlib.contextmanager
def _one_zookeeper() -> Iterator[str]:
    with zookeepers(1) as (server,):
        yield server.address


SERVED_STORES = {"headwater store": _store_process, "zookeeper": _one_zookeeper}
"""What brokers can share, by name: each gives the address of a store of its own."""
