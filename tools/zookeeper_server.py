"""Runs a ZooKeeper process, for tests and chaos runs."""

import contextlib
import socket
import subprocess
import time
from pathlib import Path

from tools.jars import jars

PATIENCE_S = 60


class ZooKeeperServer:
    """One member of a ZooKeeper ensemble, or a ZooKeeper alone."""

    def __init__(self, folder: Path, port: int, extra: str = "") -> None:
        self.address = f"127.0.0.1:{port}"
        self._port = port
        self._config = folder / "zoo.cfg"
        self._config.write_text(
            f"tickTime=200\nmaxSessionTimeout=60000\ndataDir={folder}\nclientPort={port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
            + extra
        )
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["java", "-Xmx96M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
             f"{jars('zookeeper-3.9.5')}/*",
             "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._config)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def report(self) -> str:
        """Return its answer to `srvr`; empty while it does not serve."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._port), timeout=5) as stream,
        ):
            stream.sendall(b"srvr")
            answer = b""
            while piece := stream.recv(4096):
                answer += piece
            return answer.decode() if b"Mode:" in answer else ""
        return ""

    def wait_until_serving(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.report():
            ended = self._process.poll()
            assert ended is None, f"ZooKeeper has ended with exit code {ended}"
            assert time.monotonic() < deadline, "ZooKeeper does not serve"
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
