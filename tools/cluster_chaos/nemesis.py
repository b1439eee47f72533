"""Brings faults to a cluster by seed, one or two at a time, and undoes them."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError

from headwater.processes.child import NotStarted
from tools.cluster_chaos.faults import FAULTS, SURVIVED, NothingToHit, Target
from tools.cluster_chaos.history import History

START_TIMEOUT_S = 180.0
END_TIMEOUT_S = 60.0
SECOND_FAULT = 0.35
"""How often a second fault comes before the first is undone."""


class Nemesis:
    """Hits, waits and undoes."""

    def __init__(
        self,
        target: Target,
        history: History,
        wait_for_progress: Callable[[str], None],
        kinds: Sequence[str] | None = None,
    ) -> None:
        """`wait_for_progress` returns when writes go on during a fault of a kind."""
        self._target = target
        self._history = history
        self._wait_for_progress = wait_for_progress
        self._kinds = self._in_turn(list(kinds or FAULTS))

    def _in_turn(self, kinds: list[str]) -> Iterator[str]:
        """Every kind once, then all again in another order."""
        while True:
            self._target.chance.shuffle(kinds)
            yield from kinds

    def strike(self) -> None:
        """One fault or two, until their time is over and everything is undone."""
        chance = self._target.chance
        kind = next(self._kinds)
        until = time.monotonic() + self._hit(kind)
        self._target.healthy = False
        if chance.random() < SECOND_FAULT:
            time.sleep(chance.uniform(0, 1))
            until = max(until, time.monotonic() + self._hit(next(self._kinds)))
        time.sleep(max(0.0, until - time.monotonic()))
        self.undo()

    def strike_once(self) -> None:
        """One fault of a cluster that is in sync, which goes on meanwhile if it can."""
        self._target.cluster.wait_until_in_sync(timeout_s=START_TIMEOUT_S)
        kind = next(self._kinds)
        self._hit(kind)
        if kind in SURVIVED:
            self._wait_for_progress(kind)
            self._history.note("survived", kind=kind)
        self.undo()

    def _hit(self, kind: str) -> float:
        try:
            hit = FAULTS[kind](self._target)
        except subprocess.TimeoutExpired as slow:
            # Whatever else is cut or down makes an orderly stop slow; then it was killed.
            self._target.ended |= {one for one in self._brokers() if not self._runs(one)}
            self._history.note("slow stop", kind=kind, error=str(slow))
            return 0.0
        except NothingToHit:
            return 0.0
        self._history.note("fault", kind=kind, target=hit.target, lasts_s=round(hit.lasts_s, 2))
        return hit.lasts_s

    # -- back to normal

    def undo(self) -> None:
        """Repair everything, and start what does not run."""
        target = self._target
        target.cluster.heal()
        for broker in target.paused:
            target.cluster.resume(broker)
        target.paused.clear()
        if target.store_down:
            target.store.start()
            target.store_down = False
        self._end_broken()
        for broker in target.altered:
            if self._runs(broker):
                target.shim.set(target.cluster.pid(broker))
        target.altered.clear()
        self._start_ended()
        target.healthy = True
        self._history.note("undone")

    def _end_broken(self) -> None:
        """A broker whose only disk has failed ends; one that had nothing to write is killed."""
        target = self._target
        deadline = time.monotonic() + END_TIMEOUT_S
        while any(map(self._runs, target.broken)):
            if time.monotonic() > deadline:
                running = [one for one in target.broken if self._runs(one)]
                self._problem(f"brokers {running} go on without a disk")
                target.kill(*running)
            time.sleep(0.05)
        target.ended |= target.broken
        target.broken.clear()

    def _start_ended(self) -> None:
        target = self._target
        dead = [one for one in self._brokers() if not self._runs(one)]
        for broker in set(dead) - target.ended:
            log = target.cluster.data_dir / f"broker-{broker}" / "broker.stderr"
            last = log.read_text(errors="replace").splitlines()[-10:]
            self._problem(f"broker {broker} ended by itself: " + "\n".join(last))
        target.ended.clear()
        if not dead:
            return
        with ThreadPoolExecutor(1) as threads:
            starting = threads.submit(target.cluster.start_broker, *dead)
            try:
                starting.result(START_TIMEOUT_S)
            except FutureTimeoutError:
                self._problem(f"brokers {dead} do not start within {START_TIMEOUT_S:.0f} s")
                target.cluster.kill(*dead)  # which ends the wait for them
                raise
            except NotStarted as failure:
                self._problem(str(failure))
                raise

    def _problem(self, text: str) -> None:
        self._history.note("problem", text=text)

    def _brokers(self) -> list[int]:
        return self._target.cluster.broker_ids

    def _runs(self, broker: int) -> bool:
        return self._target.cluster.runs(broker)
