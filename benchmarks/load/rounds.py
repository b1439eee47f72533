"""Rounds: every server gets every load once a round, one right after the other.

A neighbor's burst or a warm CPU then touches all servers of a case alike, and the ratio of one
round says more than the ratio of two averages.
"""

import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from benchmarks.load.cases import Case, Produce
from benchmarks.load.generator import LoadFailed, Sample
from benchmarks.load.servers import Server
from benchmarks.load.targets import Figure, at_most

Samples = dict[str, dict[str, list[Sample]]]  # by case, by server, one each round


@dataclass(frozen=True)
class Scale:
    """How much of everything: the full run, or a quick look."""

    rounds: int = 5
    seconds: float = 1.5
    warmup: float = 0.3
    first_run: float = 4.0  # seconds of each load that a JIT sees before the first round
    latency_samples: int = 30_000
    log_bytes: int = 4 << 30
    partitions: int = 10_000
    client_messages: int = 500_000


FULL = Scale()
QUICK = Scale(
    rounds=2,
    seconds=0.7,
    first_run=2.0,
    latency_samples=3_000,
    log_bytes=1 << 30,
    partitions=2_000,
    client_messages=100_000,
)


def touch_memory(size: int = 6 << 30) -> None:
    """Makes a virtual machine own the memory that files will be cached in.

    A guest gives free pages back to its host after seconds, and the next write to such a page
    waits for the host: a cost of the machine, several times that of the write itself, which would
    fall on whichever server happens to run. The size is more than the fastest server writes in a
    run: with less, a server pays for being faster than the others.
    """
    with mmap.mmap(-1, size) as memory:
        memory[:: mmap.PAGESIZE] = bytes(size // mmap.PAGESIZE)


def _run_once(case: Case, server: Server, seconds: float, warmup: float) -> Sample:
    """One run over a fresh topic; the disk has nothing else to do when it begins."""
    topic = case.prepare(server)
    os.sync()
    if case.bulky:
        touch_memory()
    load = replace(case.load(server, topic), seconds=seconds, warmup=max(warmup, case.settling))
    try:
        sample = server.measure(load)
        server.check(topic)
        return sample
    finally:
        server.drop(topic)
        os.sync()


@dataclass
class Outcome:
    """What the rounds gave: samples, and the cases that a server could not bear."""

    samples: Samples
    failures: dict[str, str] = field(default_factory=dict)


def run_rounds(
    cases: Sequence[Case], servers: Sequence[Server], scale: Scale, say: Callable[[str], None]
) -> Outcome:
    """All rounds of all loads, with the servers in another order each time.

    No server always runs after the same other one. Kafka keeps deleted files for a minute, so who
    runs after it finds less memory that the machine owns: with a fixed cycle the same broker wrote
    1 MiB batches at 0.65 or at 2.1 times Kafka's rate, depending on its place in the cycle.

    A warm-up for a JIT is a run of its own: within the measured run it would leave gigabytes for
    the disk to write during the measurement, and only with the servers that need it.
    """
    outcome = Outcome({case.name: {server.name: [] for server in servers} for case in cases})
    orders = list(permutations(servers))
    for number in range(scale.rounds):
        for place, case in enumerate(cases):
            for server in orders[(number + place) % len(orders)]:
                if case.name in outcome.failures:
                    continue
                try:
                    if number == 0 and server.warms_up:
                        _run_once(case, server, scale.first_run, scale.warmup)
                    sample = _run_once(case, server, scale.seconds, scale.warmup)
                except LoadFailed as failure:
                    outcome.failures[case.name] = f"{server.name}: {failure}"
                    del outcome.samples[case.name]
                    say(f"failed {case.name} {server.name}: {failure}\n{server.last_words()}")
                else:
                    outcome.samples[case.name][server.name].append(sample)
                    say(f"round {number + 1} {case.name} {server.name}: {_short(case, sample)}")
    return outcome


def rate(case: Case, sample: Sample) -> float:
    """Requests or megabytes a second, whichever the case is about."""
    if case.rate_unit == "req/s":
        return sample.requests_per_second
    return sample.megabytes_per_second


def _short(case: Case, sample: Sample) -> str:
    return (
        f"{rate(case, sample):,.0f} {case.rate_unit}, p99 {sample.p99_us:,.0f} µs, "
        f"{sample.cpu_us_per_request:,.2f} µs CPU a request"
    )


def figures(
    cases: Sequence[Case], samples: Samples, subject: str, rivals: Sequence[str]
) -> list[Figure]:
    """The ratios of the measured server to its rivals, round by round."""
    found = []
    for case in cases:
        if case.name not in samples:
            continue
        ours = samples[case.name][subject]
        for rival in rivals:
            theirs = samples[case.name][rival]
            pairs = list(zip(ours, theirs, strict=True))
            rates = [rate(case, a) / rate(case, b) for a, b in pairs]
            costs = [a.cpu_us_per_request / b.cpu_us_per_request for a, b in pairs]
            tails = [a.p99_us / b.p99_us for a, b in pairs]
            limit = case.limits.of
            found += [
                Figure(case.name, f"rate ÷ {rival}", rates, limit("rate", rival)),
                Figure(case.name, f"CPU per request ÷ {rival}", costs, limit("cpu", rival)),
                Figure(case.name, f"p99 ÷ {rival}", tails),
            ]
        if isinstance(case, Produce) and case.baseline in samples:
            found.append(_cost_of_a_partition(case, ours, samples[case.baseline][subject]))
    return found


def _cost_of_a_partition(case: Produce, several: list[Sample], one: list[Sample]) -> Figure:
    shares = [
        a.cpu_us_per_request / case.partitions_per_request / b.cpu_us_per_request
        for a, b in zip(several, one, strict=True)
    ]
    return Figure(case.name, "CPU per partition ÷ one partition", shares, at_most(1.0))
