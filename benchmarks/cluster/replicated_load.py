"""acks=all to three replicas, of which two must be in sync: batches, and single records.

A topic has one partition for each broker, so that every broker leads one and follows two.
Requests are what a Java 4 client sends: Produce 13, idempotent.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from benchmarks.cluster.clusters import BROKERS, ThreeBrokers
from benchmarks.load import encode, generator
from benchmarks.load.encode import Topic
from benchmarks.load.generator import Load, Sample
from benchmarks.load.rounds import Samples, Scale, touch_memory
from benchmarks.load.targets import Figure, Limit, at_least, at_most


@dataclass(frozen=True)
class ReplicatedLoad:
    """One kind of request, and what it must reach beside Apache Kafka."""

    records: int
    connections: int
    depth: int
    rate: Limit
    rate_unit: str

    def rate_of(self, sample: Sample) -> float:
        """Requests or megabytes a second."""
        single = self.rate_unit == "req/s"
        return sample.requests_per_second if single else sample.megabytes_per_second

    def requests(self, server: ThreeBrokers, topic: Topic, scale: Scale) -> Load:
        """One producer for each connection; connection i writes to partition i modulo three."""
        frames = []
        for i in range(self.connections):
            batch = encode.batch(self.records, 100, server.producer())
            frames.append(encode.produce_request(13, -1, topic, [i % BROKERS], batch))
        return Load(
            tuple(frames),
            connections=self.connections,
            depth=self.depth,
            idempotent=True,
            seconds=scale.seconds,
            warmup=scale.warmup,
        )


_16_KIB = encode.record_count(encode.batch_of(16 << 10, 100))
_CPU = at_most(0.7)
LOADS: Mapping[str, ReplicatedLoad] = {
    "produce-16KiB": ReplicatedLoad(_16_KIB, 12, 2, at_least(1.2), "MB/s"),
    "produce-1rec-100c": ReplicatedLoad(1, 100, 1, at_least(1.0), "req/s"),
}


def _run_once(load: ReplicatedLoad, server: ThreeBrokers, scale: Scale) -> Sample:
    topic = server.fresh_topic(BROKERS)
    requests = load.requests(server, topic, scale)
    ports = server.leader_ports(topic)
    os.sync()
    if load.records > 1:
        touch_memory()
    try:
        sample = generator.run(requests, ports, server.pids)
        server.check(topic)
        return sample
    finally:
        server.drop(topic)
        os.sync()


def run_rounds(
    loads: Mapping[str, ReplicatedLoad],
    servers: Sequence[ThreeBrokers],
    scale: Scale,
    say: Callable[[str], None],
) -> Samples:
    """All rounds of all loads, with the clusters in another order each time."""
    samples: Samples = {name: {server.name: [] for server in servers} for name in loads}
    orders = list(permutations(servers))
    for number in range(scale.rounds):
        for place, (name, load) in enumerate(loads.items()):
            for server in orders[(number + place) % len(orders)]:
                if number == 0 and server.warms_up:
                    _run_once(load, server, _longer(scale))
                sample = _run_once(load, server, scale)
                samples[name][server.name].append(sample)
                say(
                    f"round {number + 1} {name} {server.name}: "
                    f"{load.rate_of(sample):,.0f} {load.rate_unit}, p99 {sample.p99_us:,.0f} µs, "
                    f"{sample.cpu_us_per_request:,.1f} µs CPU a request"
                )
    return samples


def _longer(scale: Scale) -> Scale:
    return Scale(seconds=scale.first_run, warmup=scale.warmup)


def figures(samples: Samples, subject: str) -> list[Figure]:
    """The ratios of ours to each other cluster, then the plain rates."""
    found = []
    for name, by_server in samples.items():
        load, ours = LOADS[name], by_server[subject]
        for rival, theirs in by_server.items():
            if rival == subject:
                continue
            pairs = list(zip(ours, theirs, strict=True))
            rates = [load.rate_of(a) / load.rate_of(b) for a, b in pairs]
            costs = [a.cpu_us_per_request / b.cpu_us_per_request for a, b in pairs]
            tails = [a.p99_us / b.p99_us for a, b in pairs]
            found += [
                Figure(name, f"rate ÷ {rival}", rates, load.rate),
                Figure(name, f"CPU per request, all processes ÷ {rival}", costs, _CPU),
                Figure(name, f"p99 ÷ {rival}", tails),
            ]
        for server, runs in by_server.items():
            rates = [load.rate_of(run) for run in runs]
            costs = [run.cpu_us_per_request for run in runs]
            found.append(Figure(name, f"rate of {server}, {load.rate_unit}", rates))
            found.append(Figure(name, f"CPU per request of {server}, µs", costs))
    return found
