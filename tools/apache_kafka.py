"""A real Apache Kafka beside ours: one KRaft node on free loopback ports in a folder of its own.

Benchmarks compare with it and every compatibility check is proved on it first.

    with ApacheKafka({"group.initial.rebalance.delay.ms": "0"}) as kafka:
        ... kafka.bootstrap ...

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
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tools.java import SHORT_LIVED, TOOLS, java
from tools.process_guard import dismiss, kill_with_parent

_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class ApacheKafka:
    """One node of Apache Kafka 4.3.1, up for the length of a `with` block."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        heap: str = "1G",
        start_timeout: float = 60,
    ) -> None:
        self._extra = dict(settings or {})
        self._heap = heap
        self._start_timeout = start_timeout
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.bootstrap = ""

    @property
    def home(self) -> Path:
        """The temporary folder that holds its settings, its output and its logs."""
        if self._home is None:
            raise RuntimeError("Apache Kafka is not running")
        return self._home

    @property
    def log_dir(self) -> Path:
        """Where its partitions are: `log_dir/<topic>-<partition>/`."""
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
        port, controller_port = _free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        properties = self.home / "server.properties"
        properties.write_text(self._properties(controller_port))
        self._format(properties)
        self._output = (self.home / "output.txt").open("wb")
        command = java(f"-Xmx{self._heap}", f"-Xms{self._heap}", "kafka.Kafka", str(properties))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupt of the terminal reaches us first, then it
        )
        self._guard = kill_with_parent(self._process.pid, self.home)
        self._wait_until_it_answers(port)

    def _properties(self, controller_port: int) -> str:
        settings = {
            **_SINGLE_NODE,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "log.dirs": str(self.log_dir),
            **self._extra,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _format(self, properties: Path) -> None:
        cluster_id = "headwaterPeerCluster00"  # 22 characters of URL-safe base64
        storage = [*SHORT_LIVED, TOOLS["kafka-storage"], "format", "--standalone"]
        command = java(*storage, "-t", cluster_id, "-c", str(properties))
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

    def _stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._guard is not None:
            dismiss(self._guard)
        if self._output is not None:
            self._output.close()
        shutil.rmtree(self.home, ignore_errors=True)
        self._process = self._guard = self._output = self._home = None


def _free_ports(count: int) -> list[int]:
    """Ports free a moment ago, all different: the sockets are held together until all are known."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def _answers_api_versions(port: int) -> bool:
    """Whether a whole ApiVersions answer came: an open port alone does not mean a ready broker."""
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
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # not earlier: a child would inherit it
        signal.sigwait(ends)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
