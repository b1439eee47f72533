"""A Spark standalone cluster on loopback: one master and some small workers, from PySpark's jars.

    with SparkCluster(workers=2) as cluster:
        print(cluster.url)  # spark://127.0.0.1:PORT

By hand: `python -m tools.spark_cluster`, which runs until Ctrl-C.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from urllib.error import URLError

from pyspark.find_spark_home import _find_spark_home

from headwater.pipelines.java import java_home
from tools.free_ports import free_port
from tools.process_guard import dismiss, kill_with_parent

PATIENCE_S = 60.0
_LOOPBACK = "127.0.0.1"


class SparkCluster:
    """A context manager around the processes of one cluster; they are killed at its end."""

    def __init__(self, workers: int = 2, *, cores: int = 1, memory: str = "1g") -> None:
        self._workers = workers
        self._cores = cores
        self._memory = memory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._guards: list[subprocess.Popen[bytes]] = []
        self._folder = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
        self._port, self._page = free_port(), free_port()

    @property
    def url(self) -> str:
        """The value for `--master`."""
        return f"spark://{_LOOPBACK}:{self._port}"

    def start(self) -> "SparkCluster":
        """Start everything and wait until all workers have joined."""
        self._run("master.Master", "--port", str(self._port), "--webui-port", str(self._page))
        for number in range(self._workers):
            self._run(
                "worker.Worker",
                *("--webui-port", str(free_port()), "--cores", str(self._cores)),
                *("--memory", self._memory, "--work-dir", str(self._folder / f"work-{number}")),
                self.url,
            )
        self._wait()
        return self

    def close(self) -> None:
        """Kill all processes, including executors, and remove their files."""
        for guard in self._guards:
            dismiss(guard)
        for process in reversed(self._processes):
            process.kill()
            process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def wait(self) -> None:
        """Wait until the master ends."""
        self._processes[0].wait()

    def logs(self) -> str:
        """Return the output of the processes."""
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*.log")))

    def _run(self, name: str, *arguments: str) -> None:
        """Start a process; `spark-class` replaces itself by Java, so the process id is Java's."""
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": _LOOPBACK,
            "PYSPARK_PYTHON": sys.executable,
        }
        script = Path(_find_spark_home()) / "bin" / "spark-class"
        command = [str(script), f"org.apache.spark.deploy.{name}", "--host", _LOOPBACK, *arguments]
        with (self._folder / f"{len(self._processes)}.log").open("wb") as out:
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        self._processes.append(process)
        self._guards.append(kill_with_parent(process.pid, self._folder))

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._joined() < self._workers:
            if time.monotonic() > deadline or any(p.poll() is not None for p in self._processes):
                said = self.logs()
                self.close()
                raise RuntimeError(f"the Spark cluster did not come up:\n{said}")
            time.sleep(0.1)

    def _joined(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{_LOOPBACK}:{self._page}/json/") as page:
                return int(json.load(page)["aliveworkers"])
        except (URLError, OSError, ValueError):
            return 0

    def __enter__(self) -> "SparkCluster":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def main() -> None:
    """Run a cluster until Ctrl-C."""
    with SparkCluster() as cluster:
        print(cluster.url, flush=True)
        with suppress(KeyboardInterrupt):
            cluster.wait()


if __name__ == "__main__":
    main()
