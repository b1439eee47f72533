"""What producers feel while a log is compacted."""

from dataclasses import replace

from benchmarks.load import encode, generator
from benchmarks.load.generator import Load, RunningLoad
from benchmarks.load.rounds import Scale
from benchmarks.load.servers import Headwater
from benchmarks.load.targets import Figure, at_most
from benchmarks.storage.keyed_log import ONE_WORKER, KeyedLog, Shape

_CASE = "produce-while-compacting"
_UNTIL_STOPPED = 600.0


def produce_while_compacting(scale: Scale) -> list[Figure]:
    """Produce p99 at half the saturated rate, with and without a compaction."""
    tails = Figure(_CASE, "produce p99 ÷ without compaction", limit=at_most(2))
    alone = Figure(_CASE, "produce p99 without compaction, µs")
    shape = Shape.of(scale)
    with Headwater(ONE_WORKER) as server:
        topic = server.fresh_topic(1)
        frame = encode.produce_request(13, -1, topic, [0], encode.batch(1, 100))
        load = Load((frame,), connections=10, depth=5, warmup=scale.warmup, seconds=scale.seconds)
        saturated = generator.run(load, server.port, server.pid).requests_per_second
        paced = replace(load, depth=16, rate=saturated / 2)
        for _ in range(scale.rounds):
            log = KeyedLog(server, shape)
            quiet = generator.run(paced, server.port, server.pid)
            producers = RunningLoad(replace(paced, seconds=_UNTIL_STOPPED), server.port, server.pid)
            log.start()
            log.wait()
            producers.stop()
            tails.values.append(producers.result().p99_us / quiet.p99_us)
            alone.values.append(quiet.p99_us)
            log.drop()
    return [tails, alone]
