"""What it costs to acknowledge after fsync: one flush a tick for all connections."""

import os
from dataclasses import replace

from benchmarks.load import generator
from benchmarks.load.cases import CASES, Produce
from benchmarks.load.rounds import Scale
from benchmarks.load.servers import Headwater
from benchmarks.load.targets import Figure, at_least

_CASE = "fsync"
_SYNCED, _NOT_SYNCED = {"flush.messages": "1"}, {}


def acknowledged_after_fsync(scale: Scale) -> list[Figure]:
    """Requests a second of 100 connections with `flush.messages=1`, over those without."""
    ratio = Figure(_CASE, "rate ÷ without sync, 100 connections", limit=at_least(0.5))
    synced, plain = Figure(_CASE, "with sync, req/s"), Figure(_CASE, "without sync, req/s")
    with Headwater() as server:
        for _ in range(scale.rounds):
            plain.values.append(_rate(server, scale, _NOT_SYNCED))
            synced.values.append(_rate(server, scale, _SYNCED))
            ratio.values.append(synced.values[-1] / plain.values[-1])
    return [ratio, synced, plain]


def _rate(server: Headwater, scale: Scale, settings: dict[str, str]) -> float:
    case = CASES["produce-1rec-100c-new"]
    assert isinstance(case, Produce)
    topic = case.prepare(server)
    if settings:
        server.topics.configure(topic, settings)
    os.sync()
    load = replace(case.load(server, topic), seconds=scale.seconds, warmup=scale.warmup)
    sample = generator.run(load, server.port, server.pid)
    server.drop(topic)
    return sample.requests_per_second
