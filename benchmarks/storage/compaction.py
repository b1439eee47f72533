"""How fast one worker compacts a log, beside Apache Kafka's cleaner with one thread."""

import time

from benchmarks.load.rounds import Scale
from benchmarks.load.servers import Broker, Headwater, Kafka
from benchmarks.load.targets import Figure, at_least
from benchmarks.storage.keyed_log import ONE_WORKER, KeyedLog, Shape


def compaction(scale: Scale) -> list[Figure]:
    """With the compiled key map."""
    return _beside_kafka("compaction", scale, {}, 1.0)


def compaction_pure(scale: Scale) -> list[Figure]:
    """In plain Python."""
    return _beside_kafka("compaction-pure", scale, {"HEADWATER_CODEC": "pure"}, 0.15)


def _beside_kafka(
    case: str, scale: Scale, environment: dict[str, str], least: float
) -> list[Figure]:
    shape = Shape.of(scale)
    ratio = Figure(case, "MB/s of a worker ÷ Kafka's thread", limit=at_least(least))
    ours, theirs = Figure(case, "headwater, MB/s"), Figure(case, "kafka, MB/s")
    with Kafka(ONE_WORKER) as kafka, Headwater(ONE_WORKER, environment) as headwater:
        _megabytes_per_second(kafka, shape)  # its JIT has seen the work
        for _ in range(scale.rounds):
            theirs.values.append(_megabytes_per_second(kafka, shape))
            ours.values.append(_megabytes_per_second(headwater, shape))
            ratio.values.append(ours.values[-1] / theirs.values[-1])
    return [ratio, ours, theirs]


def _megabytes_per_second(server: Broker, shape: Shape) -> float:
    """The sealed bytes over the time from the start to the last swap; at most 0.1 s are waiting."""
    log = KeyedLog(server, shape)
    began = time.perf_counter()
    log.start()
    log.wait()
    seconds = time.perf_counter() - began
    log.drop()
    return log.sealed_bytes / seconds / 1e6
