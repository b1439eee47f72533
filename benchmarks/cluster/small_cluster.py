"""`headwater.testing.Cluster(3)`: how soon a test can use it, and how much memory it takes."""

import time
from pathlib import Path

from benchmarks.load.processes import resident_mebibytes
from benchmarks.load.rounds import Scale
from benchmarks.load.targets import Figure, at_most
from headwater.testing import Cluster

_CASE = "testing-cluster"


def testing_cluster(scale: Scale) -> list[Figure]:
    """The time of `with Cluster(3)`, and the memory of the brokers and their store after it."""
    ready = Figure(_CASE, "Cluster(3) until ready, s", limit=at_most(2))
    resident = Figure(_CASE, "RSS of all processes, MiB", limit=at_most(150))
    proportional = Figure(_CASE, "the same with shared pages counted once (PSS), MiB")
    for _ in range(scale.rounds):
        began = time.perf_counter()
        with Cluster(3) as cluster:
            ready.values.append(time.perf_counter() - began)
            pids = [cluster.pid(broker) for broker in cluster.broker_ids]
            pids += [pid for pid in _children() if pid not in pids]  # the store
            resident.values.append(sum(map(resident_mebibytes, pids)))
            proportional.values.append(sum(map(_proportional_mebibytes, pids)))
    return [ready, resident, proportional]


def _children() -> list[int]:
    lists = Path("/proc/self/task").glob("*/children")  # by the thread that started them
    return [int(pid) for one in lists for pid in one.read_text().split()]


def _proportional_mebibytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)
