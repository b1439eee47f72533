"""How long writes pause when a leader is killed or stopped.

One producer of ours writes one record after the other to a partition with three replicas (acks=all,
min.insync.replicas=2, default settings of the client). A pause is the time from the SIGKILL, or from
the last acknowledgment before the longest silence of an orderly stop, to the next acknowledgment.
"""

import threading
import time
from collections.abc import Callable

import headwater
from headwater.testing import Cluster

TOPIC = "paused"
SESSION_TIMEOUT_MS = 1500
PAUSE_S = 0.002
TIMEOUT_S = 120.0
CALM_S = 0.5
"""Within which a stop's effects on writes have ended once the broker's process has."""


def measure_kills(kills: int, tell: Callable[[str], None]) -> str:
    """Percentiles of the time from kill -9 of the leader to the next acknowledged write."""

    def kill(cluster: Cluster, writes: "_Writes", leader: int) -> float:
        killed = time.monotonic()
        cluster.kill(leader)
        return writes.wait_for_one_sent_after(time.monotonic()) - killed

    return _measure("kill -9 of the leader", kills, kill, tell)


def measure_stops(stops: int, tell: Callable[[str], None]) -> str:
    """Percentiles of the longest time without an acknowledged write while the leader stops."""

    def stop(cluster: Cluster, writes: "_Writes", leader: int) -> float:
        writes.begin_interval()
        cluster.stop(leader)
        writes.wait_for_one_sent_after(time.monotonic() + CALM_S)
        return writes.longest_pause_s

    return _measure("orderly stop of the leader", stops, stop, tell)


def _measure(
    title: str,
    times: int,
    fault: Callable[[Cluster, "_Writes", int], float],
    tell: Callable[[str], None],
) -> str:
    pauses = []
    with Cluster(3, {"zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS}) as cluster:
        cluster.create_topic(TOPIC, configs={"min.insync.replicas": "2"})
        with _Writes(cluster.bootstrap) as writes:
            for number in range(times):
                cluster.wait_until_in_sync()
                writes.wait_for_one_sent_after(time.monotonic())
                leader = cluster.leader(TOPIC)
                pauses.append(fault(cluster, writes, leader))
                tell(f"{number + 1:4}: {pauses[-1] * 1000:.0f} ms")
                cluster.start_broker(leader)
    return (
        f"{title}, {times} times, session {SESSION_TIMEOUT_MS} ms: writes paused for p50 "
        f"{_percentile(pauses, 50):.0f} ms, p90 {_percentile(pauses, 90):.0f} ms, p99 "
        f"{_percentile(pauses, 99):.0f} ms, at most {max(pauses) * 1000:.0f} ms"
    )


def _percentile(pauses: list[float], percent: int) -> float:
    ordered = sorted(pauses)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] * 1000


class _Writes:
    """A producer that sends one record after the other, and knows when each was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.longest_pause_s = 0.0
        self._last_acknowledged = time.monotonic()
        self._newest_sent = 0.0
        self._changed = threading.Condition()
        self._producer = headwater.Producer(bootstrap_servers=bootstrap)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writes", daemon=True)

    def __enter__(self) -> "_Writes":
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
