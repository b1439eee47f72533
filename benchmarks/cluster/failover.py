"""How long writes pause when a leader is killed or stopped: python -m benchmarks.cluster.failover.

One producer of ours writes one record after the other to a partition with three replicas (acks=all,
min.insync.replicas=2, default settings of the client). A pause is the time from the SIGKILL, or from
the last acknowledgment before the longest silence of an orderly stop, to the next acknowledgment.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import headwater
from headwater.testing import Cluster

TOPIC = "paused"
SESSION_TIMEOUT_MS = 1500
PAUSE_S = 0.002
TIMEOUT_S = 120.0
CALM_S = 0.5
"""Within which a stop's effects on writes have ended once the broker's process has."""


class Target(NamedTuple):
    """The longest pauses, in milliseconds."""

    p50_ms: float
    p99_ms: float


KILL = Target(SESSION_TIMEOUT_MS + 300, SESSION_TIMEOUT_MS + 1000)
STOP = Target(300, 300)


def main() -> None:
    """Measure both kinds of faults and print a table; '!' marks what misses its target."""
    options = argparse.ArgumentParser(prog="benchmarks.cluster.failover")
    options.add_argument("--kills", type=int, default=100, help="how often a leader is killed")
    options.add_argument("--stops", type=int, default=100, help="how often a leader is stopped")
    chosen = options.parse_args()
    print(f"session {SESSION_TIMEOUT_MS} ms; milliseconds; '!' marks what misses its target")
    print(f"{'writes pause after':28} {'times':>6} {'p50':>6}  {'p90':>6} {'p99':>6}  {'most':>6}")
    if chosen.kills:
        print(row("kill -9 of the leader", measure(chosen.kills, kill), KILL), flush=True)
    if chosen.stops:
        print(row("orderly stop of the leader", measure(chosen.stops, stop), STOP), flush=True)


def row(title: str, pauses_ms: list[float], target: Target) -> str:
    """One line of the table."""
    p50, p90, p99 = (percentile(pauses_ms, percent) for percent in (50, 90, 99))
    return (
        f"{title:28} {len(pauses_ms):6} {p50:6.0f}{'!' if p50 > target.p50_ms else ' '} {p90:6.0f} "
        f"{p99:6.0f}{'!' if p99 > target.p99_ms else ' '} {max(pauses_ms):6.0f}"
    )


def percentile(values: list[float], percent: int) -> float:
    """The smallest value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def kill(cluster: Cluster, writes: "Writes", leader: int) -> float:
    """Seconds from the kill to the next acknowledged write."""
    killed = time.monotonic()
    cluster.kill(leader)
    return writes.wait_for_one_sent_after(time.monotonic()) - killed


def stop(cluster: Cluster, writes: "Writes", leader: int) -> float:
    """The longest time without an acknowledged write, in seconds, while the leader stops."""
    writes.begin_interval()
    cluster.stop(leader)
    writes.wait_for_one_sent_after(time.monotonic() + CALM_S)
    return writes.longest_pause_s


def measure(times: int, fault: Callable[[Cluster, "Writes", int], float]) -> list[float]:
    """The pauses of this many faults, in milliseconds; each also on standard error."""
    pauses_ms = []
    with Cluster(3, {"zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS}) as cluster:
        cluster.create_topic(TOPIC, configs={"min.insync.replicas": "2"})
        with Writes(cluster.bootstrap) as writes:
            for number in range(times):
                cluster.wait_until_in_sync()
                writes.wait_for_one_sent_after(time.monotonic())
                leader = cluster.leader(TOPIC)
                pauses_ms.append(1000 * fault(cluster, writes, leader))
                print(f"{number + 1:4}: {pauses_ms[-1]:.0f} ms", file=sys.stderr, flush=True)
                cluster.start_broker(leader)
    return pauses_ms


class Writes:
    """A producer that sends one record after the other, and knows when each was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.longest_pause_s = 0.0
        self._last_acknowledged = time.monotonic()
        self._newest_sent = 0.0
        self._changed = threading.Condition()
        self._producer = headwater.Producer(bootstrap_servers=bootstrap)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writes", daemon=True)

    def __enter__(self) -> "Writes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close()

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_S):
            sent = time.monotonic()
            self._producer.send(TOPIC, b"." * 100).result(TIMEOUT_S)
            with self._changed:
                now = time.monotonic()
                self.longest_pause_s = max(self.longest_pause_s, now - self._last_acknowledged)
                self._last_acknowledged, self._newest_sent = now, sent
                self._changed.notify_all()

    def begin_interval(self) -> None:
        """Forget the pauses so far."""
        with self._changed:
            self.longest_pause_s = 0.0

    def wait_for_one_sent_after(self, moment: float) -> float:
        """When the first record that was sent after this moment was acknowledged."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._newest_sent > moment, TIMEOUT_S):
                raise TimeoutError(f"nothing is acknowledged for {TIMEOUT_S:.0f} s")
            return self._last_acknowledged


if __name__ == "__main__":
    main()
