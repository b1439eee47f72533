"""Simulated schedules by the thousand: `python -m tools.simulate clusters --seeds 2000`.

`images` plays with the storage code and starts it from a crash image at each file operation, until
`--images` are checked; it prints how many of each kind. `disks` runs one broker through crashes, power cuts and failing disks; `clusters` runs three brokers,
ZooKeeper and the real clients through crashes, partitions and pauses. For a seed that breaks a
promise, it prints what broke and, for clusters, the shortest schedule that still breaks it;
`--seed S --trace FILE` runs it again and writes all events to a file.

`--hunt` plants each bug (or that of `--buggy`) and counts the schedules until it is found;
`--hash-seeds` runs every seed under two values of PYTHONHASHSEED and compares the traces.
"""

import argparse
import logging
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from simulator.bugs import BUGS, simulate_buggy
from simulator.cluster_bugs import CLUSTER_BUGS, simulate_buggy_cluster
from simulator.cluster_plan import ClusterPlan
from simulator.cluster_run import ClusterVerdict, simulate_cluster
from simulator.images.mistakes import MISTAKES
from simulator.images.run import PlayVerdict, run_mistaken_play, run_play
from simulator.run import Verdict, simulate
from simulator.shrinking import shortest

SLOWEST = 5
PLAYS_AT_ONCE = 32
PROGRESS = 100
"""The number of schedules between two progress lines of a long run."""
FINDS = 3
"""How often a hunt searches for each bug."""


class Asked(NamedTuple):
    """One seed to run, and its options."""

    world: str
    seed: int
    buggy: str | None
    trace: bool
    secured: bool = False
    """Whether clients of clusters log in, whatever the seed says."""


class Ran(NamedTuple):
    """The result of one seed."""

    verdict: Verdict | ClusterVerdict
    took_s: float


def main() -> int:
    """Run the requested seeds; return 1 if a promise was broken."""
    options = _options()
    if options.world == "images":
        return _check_images(options)
    if options.digests:
        return _print_digests(options.world, options.digests)
    if options.hunt:
        return _hunt([options.buggy] if options.buggy else list(CLUSTER_BUGS), options.seeds)
    if options.hash_seeds:
        return _compare_hash_seeds(options.world, options.first, options.seeds)
    first = options.first if options.seed is None else options.seed
    count = options.seeds if options.seed is None else 1
    asked = [
        Asked(options.world, seed, options.buggy, options.trace is not None, options.secured)
        for seed in range(first, first + count)
    ]
    began, broken, runs = time.perf_counter(), 0, []
    faults: Counter[str] = Counter()
    events = 0
    for verdict, took_s in _run_all(asked, options.jobs):
        runs.append((took_s, verdict.seed))
        events += verdict.events
        faults.update(_faults(verdict))
        broken += not verdict.good
        if not verdict.good or options.seed is not None:
            _tell(verdict)
            if not verdict.good and options.shrink and isinstance(verdict, ClusterVerdict):
                _tell_shortest(verdict)
        if options.trace is not None:
            options.trace.write_text("\n".join(verdict.trace) + "\n")
        if len(runs) % PROGRESS == 0:
            _say(f"{len(runs)} schedules, {broken} broken, {sum(faults.values())} faults")
    took = time.perf_counter() - began
    _say(
        f"{count} schedules, {events} events, {broken} broken, {took:.1f} s, "
        f"{count / took * 60:.0f} schedules per minute"
    )
    _say("faults: " + ", ".join(f"{kind} {times}" for kind, times in faults.most_common()))
    slowest = sorted(runs, reverse=True)[:SLOWEST]
    _say("slowest seeds: " + ", ".join(f"{seed} ({took:.1f} s)" for took, seed in slowest))
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.simulate", description=__doc__)
    parser.add_argument("world", choices=("images", "disks", "clusters"))
    parser.add_argument("--images", type=int, default=20_000, help="how many crash images")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run only this one and tell about it")
    parser.add_argument(
        "--buggy",
        choices=[*BUGS, *CLUSTER_BUGS, *MISTAKES],
        help="plant this bug, to see that it is found",
    )
    parser.add_argument("--secured", action="store_true", help="clients log in, in every run")
    parser.add_argument("--hunt", action="store_true", help="count schedules until a bug is found")
    parser.add_argument("--hash-seeds", action="store_true", help="compare traces")
    parser.add_argument("--digests", type=int, nargs="+", help="print the traces of these seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    parser.add_argument("--trace", type=Path, help="write the last run's events to this file")
    return parser.parse_args()


def _check_images(options: argparse.Namespace) -> int:
    """Check crash images from play `--first` (or `--seed`) on; return 1 if one is wrong."""
    began, images, operations, broken = time.perf_counter(), Counter[str](), 0, 0
    plan = partial(_play, buggy=options.buggy)
    first = options.first if options.seed is None else options.seed
    count = PLAYS_AT_ONCE if options.seed is None else 1
    seeds = range(first, first)
    with ProcessPoolExecutor(options.jobs) as pool:
        while images.total() < options.images and (options.seed is None or not seeds):
            seeds = range(seeds.stop, seeds.stop + count)
            for verdict in pool.map(plan, seeds):
                images.update(verdict.images)
                operations += verdict.operations
                broken += bool(verdict.complaints)
                for complaint in verdict.complaints:
                    _say(f"play {verdict.seed}: {complaint}")
            _say(f"{images.total()} images, plays {first} to {seeds[-1]}, {broken} broken")
    took = time.perf_counter() - began
    _say(
        f"{images.total()} images before {operations} operations of plays {first} to {seeds[-1]}, "
        f"{broken} plays broken, {took:.1f} s"
    )
    _say("images: " + ", ".join(f"{kind} {count}" for kind, count in images.most_common()))
    return 1 if broken else 0


def _play(seed: int, buggy: str | None) -> PlayVerdict:
    logging.disable(logging.CRITICAL)  # thousands of starts find damage
    return run_mistaken_play(seed, buggy) if buggy else run_play(seed)


def _hunt(names: list[str], most: int) -> int:
    """Search for each planted bug several times; return 1 if `most` schedules do not find one."""
    missed = 0
    for name in names:
        needed, since, told = [], 0, ""
        for seed in range(most):
            since += 1
            verdict = simulate_buggy_cluster(seed, name)
            if not verdict.good:
                needed.append(since)
                since, told = 0, told or verdict.complaints[0].partition(" s: ")[2]
            if len(needed) == FINDS:
                break
        missed += not needed
        median = f"{statistics.median(needed):g}" if needed else f"more than {most}"
        _say(f"{name}: median {median} schedules {needed}, first told as {told[:60]!r}")
    return 1 if missed else 0


def _compare_hash_seeds(world: str, first: int, count: int) -> int:
    """Run the seeds in two processes with different set orders; return 1 if a trace differs."""
    seeds = [str(seed) for seed in range(first, first + count)]
    command = [sys.executable, "-m", "tools.simulate", world, "--digests", *seeds]
    processes = [
        subprocess.Popen(command, env={**os.environ, "PYTHONHASHSEED": value}, stdout=-1, text=True)
        for value in ("1", "2")
    ]
    one, other = (process.communicate()[0].split() for process in processes)
    same = sum(a == b for a, b in zip(one, other, strict=True))
    _say(f"{same} of {count} seeds have the same trace under two values of PYTHONHASHSEED")
    return 0 if same == count else 1


def _print_digests(world: str, seeds: list[int]) -> int:
    for seed in seeds:
        _say(_simulate(Asked(world, seed, None, False)).digest)
    return 0


def _run_all(asked: list[Asked], jobs: int) -> Iterator[Ran]:
    if jobs == 1 or len(asked) == 1:
        yield from map(_run, asked)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_run, asked, chunksize=4)


def _run(asked: Asked) -> Ran:
    began = time.process_time()
    return Ran(_simulate(asked), time.process_time() - began)


def _simulate(asked: Asked) -> Verdict | ClusterVerdict:
    if asked.world == "disks":
        if asked.buggy:
            return simulate_buggy(asked.seed, asked.buggy)
        return simulate(asked.seed, keep_trace=asked.trace)
    if asked.buggy:
        return simulate_buggy_cluster(asked.seed, asked.buggy)
    plan = ClusterPlan.of(asked.seed)
    if asked.secured:
        plan = replace(plan, secured=True)
    return simulate_cluster(asked.seed, plan=plan, keep_trace=asked.trace)


def _faults(verdict: Verdict | ClusterVerdict) -> Iterable[str]:
    if isinstance(verdict, ClusterVerdict):
        return verdict.injected.elements()
    return verdict.fault_plan.kinds


def _tell(verdict: Verdict | ClusterVerdict) -> None:
    plan = verdict.plan if isinstance(verdict, ClusterVerdict) else verdict.fault_plan
    _say(
        f"seed {verdict.seed}: {'good' if verdict.good else 'BROKEN'}, trace {verdict.digest}, "
        f"{verdict.acknowledged} records acknowledged, {plan}"
    )
    for complaint in verdict.complaints[:10]:
        _say(f"    {complaint}")


def _tell_shortest(verdict: ClusterVerdict) -> None:
    short = shortest(verdict)
    plan = short.plan
    _say(
        f"    the shortest schedule that breaks it: {plan.producers} producers of {plan.records} "
        f"records, {plan.members} members{', a topic created again' if plan.recreated else ''}, "
        f"{plan.transactors} transactional ids with {plan.transactions} transactions each, "
        f"{plan.transformers} transformers, old protocol {plan.old_protocol:g}"
        f"{', clients that log in' if plan.secured else ''}"
    )
    for trouble in (*plan.troubles, *plan.moves):
        _say(f"        {trouble}")
    for complaint in short.complaints[:3]:
        _say(f"        {complaint}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
