"""What a large log costs to have: memory for its indexes, and time to verify it."""

import resource
import subprocess
import sys

from benchmarks.load import encode, generator
from benchmarks.load.cold_read import reading
from benchmarks.load.processes import private_bytes
from benchmarks.load.rounds import Scale
from benchmarks.load.servers import Headwater
from benchmarks.load.targets import Figure, at_least, at_most

_GIB, _MIB = 1 << 30, 1 << 20


def index_memory(scale: Scale) -> list[Figure]:
    """The private memory of a broker that has read a log, beyond one that has read next to none."""
    batch = encode.batch_of(16 << 10, 100)
    copies = scale.log_bytes // len(batch)
    grown = Figure("index-memory", "MiB per GiB of log", limit=at_most(1.0))
    small = _after_reading(batch, 100)
    for _ in range(scale.rounds):
        used = _after_reading(batch, copies) - small
        grown.values.append(used / _MIB / (copies * len(batch) / _GIB))
    return [grown]


def _after_reading(batch: bytes, copies: int) -> int:
    with Headwater() as server:
        topic = server.filled_topic(1, batch, copies)
        server.stop()
        server.start()
        server.wait_until_ready()
        server.topics.wait_until_led(topic.name, 1)
        generator.run(reading(topic, batch, copies), server.port, server.pid)
        return private_bytes(server.pid)


def log_verify(scale: Scale) -> list[Figure]:
    """`headwater log verify` over a log in the page cache."""
    batch = encode.batch_of(16 << 10, 100)
    copies = scale.log_bytes // len(batch)
    speed = Figure("log-verify", "GB per second of CPU", limit=at_least(1.0))
    with Headwater() as server:
        topic = server.filled_topic(1, batch, copies)
        server.stop()
        folder = str(server.data / f"{topic.name}-0")
        for _ in range(scale.rounds):
            before = _cpu_of_children()
            subprocess.run(
                [sys.executable, "-m", "headwater", "log", "verify", folder],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            speed.values.append(copies * len(batch) / (_cpu_of_children() - before) / 1e9)
    return [speed]


def _cpu_of_children() -> float:
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime
