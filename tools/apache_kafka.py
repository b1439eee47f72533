"""Runs a real Apache Kafka: KRaft nodes on free loopback ports, each in its own folder.

Benchmarks compare with it, and every compatibility check must pass on it first.

    with ApacheKafka({"group.initial.rebalance.delay.ms": "0"}) as kafka:
        ... kafka.bootstrap ...
    with ApacheCluster(3) as cluster:
        cluster.kill(2)

`python -m tools.apache_kafka` runs one until interrupted.
"""

import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tools.free_ports import free_port
from tools.java import SHORT_LIVED, TOOLS, java
from tools.process_guard import dismiss, kill_with_parent

_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
}
_SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class ApacheKafka:
    """One node of Apache Kafka 4.3.1, running within a `with` block.

    A node of a cluster is given its ports and `controller.quorum.voters`. `measured` is what
    benchmarks need: all compiler tiers, which cost tests more than they save.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        ports: Sequence[int] = (),
        heap: str = "1G",
        options: Sequence[str] = (),
        start_timeout: float = 60,
        measured: bool = True,
    ) -> None:
        """`options` are those of the JVM."""
        self._extra = dict(settings or {})
        self._java_options = (*(() if measured else SHORT_LIVED), *options)
        self._ports = ports
        self._heap = heap
        self._start_timeout = start_timeout
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.bootstrap = ""

    @property
    def home(self) -> Path:
        """The temporary folder with its settings, its output and its logs."""
        if self._home is None:
            raise RuntimeError("Apache Kafka is not running")
        return self._home

    @property
    def log_dir(self) -> Path:
        """The folder with its partitions: `log_dir/<topic>-<partition>/`."""
        return self.home / "logs"

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        if self._process is None:
            raise RuntimeError("Apache Kafka is not running")
        return self._process.pid

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _start(self) -> None:
        port, controller_port = self._ports or [free_port(), free_port()]
        self.bootstrap = f"127.0.0.1:{port}"
        properties = self.home / "server.properties"
        properties.write_text(self._properties(controller_port))
        self._format(properties)
        self.launch()

    def launch(self) -> None:
        """Start or restart the process, and wait until it answers."""
        properties = self.home / "server.properties"
        self._output = (self.home / "output.txt").open("ab")
        heap = f"-Xmx{self._heap}", f"-Xms{self._heap}"
        command = java(*self._java_options, *heap, "kafka.Kafka", str(properties))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupt of the terminal must reach this process first
        )
        self._guard = kill_with_parent(self._process.pid, self.home)
        self._wait_until_it_answers(int(self.bootstrap.rpartition(":")[2]))

    def kill(self) -> None:
        """End the process with SIGKILL; `launch` starts it again with its data."""
        self._end(signal.SIGKILL)

    def _properties(self, controller_port: int) -> str:
        settings = {
            **_NODE,
            **(
                {}
                if self._in_cluster
                else {
                    **_SINGLE_NODE,
                    "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
                }
            ),
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.log_dir),
            **self._extra,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _format(self, properties: Path) -> None:
        cluster_id = "headwaterPeerCluster00"  # 22 characters of URL-safe base64
        storage = [*SHORT_LIVED, TOOLS["kafka-storage"], "format", "-t", cluster_id]
        alone = [] if self._in_cluster else ["--standalone"]
        command = java(*storage, *alone, "-c", str(properties))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"formatting storage failed:\n{done.stdout}{done.stderr}")

    def _wait_until_it_answers(self, port: int) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout
        while not _answers_api_versions(port):
            if self._process.poll() is not None:
                raise RuntimeError(f"Apache Kafka ended at start:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"Apache Kafka is not up:\n{self._tail()}")

    def _tail(self) -> str:
        return (self.home / "output.txt").read_text(errors="replace")[-4000:]

    @property
    def _in_cluster(self) -> bool:
        return "controller.quorum.voters" in self._extra

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._guard is not None:
            dismiss(self._guard)
        if self._output is not None:
            self._output.close()
        self._process = self._guard = self._output = None

    def _stop(self) -> None:
        self._end(signal.SIGTERM)
        shutil.rmtree(self.home, ignore_errors=True)
        self._home = None


class ApacheCluster:
    """Nodes 1 to N of one cluster, each broker and controller at once."""

    def __init__(
        self, nodes: int = 3, settings: Mapping[str, str] | None = None, *, heap: str = "512M"
    ) -> None:
        ports = {node: [free_port(), free_port()] for node in range(1, nodes + 1)}
        voters = ",".join(f"{node}@127.0.0.1:{voter}" for node, (_, voter) in ports.items())
        shared = {"controller.quorum.voters": voters, **(settings or {})}
        self._nodes = {
            node: ApacheKafka({**shared, "node.id": str(node)}, ports=pair, heap=heap)
            for node, pair in ports.items()
        }

    def __enter__(self) -> Self:
        with ThreadPoolExecutor(len(self._nodes)) as threads:
            starts = [threads.submit(node.__enter__) for node in self._nodes.values()]
        failures = [start.exception() for start in starts if start.exception()]
        if failures:
            self.__exit__(None, None, None)
            raise RuntimeError("Apache Kafka did not start") from failures[0]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self._nodes.values():
            node.kill()  # a clean stop would wait for the other nodes
            node.__exit__(None, None, None)

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes."""
        return ",".join(node.bootstrap for node in self._nodes.values())

    @property
    def broker_ids(self) -> list[int]:
        """The ids of the nodes."""
        return list(self._nodes)

    def address(self, node: int) -> str:
        """The address of one node."""
        return self._nodes[node].bootstrap

    @property
    def pids(self) -> list[int]:
        """The processes of all nodes."""
        return [node.pid for node in self._nodes.values()]

    def kill(self, *nodes: int) -> None:
        """End nodes with SIGKILL."""
        for node in nodes:
            self._nodes[node].kill()

    def start_broker(self, *nodes: int) -> None:
        """Start nodes that were killed."""
        for node in nodes:
            self._nodes[node].launch()


def _answers_api_versions(port: int) -> bool:
    """Return whether a whole ApiVersions response arrived: an open port is not enough."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
            peer.sendall(_API_VERSIONS_V0)
            return len(peer.recv(4, socket.MSG_WAITALL)) == 4
    except OSError:
        time.sleep(0.1)  # the kernel refuses at once: do not spin on it
        return False


def main(arguments: list[str]) -> int:
    """Runs a node with `key=value` settings until interrupted."""
    settings = dict(argument.split("=", 1) for argument in arguments)
    with ApacheKafka(settings) as kafka:
        sys.stdout.write(f"{kafka.bootstrap} pid {kafka.pid} logs {kafka.log_dir}\n")
        sys.stdout.flush()
        ends = {signal.SIGINT, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # only now: a child would inherit it
        signal.sigwait(ends)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
