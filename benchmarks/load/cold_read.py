"""What producers feel while a consumer reads a log that is no longer in memory."""

from benchmarks.load import encode, generator
from benchmarks.load.cases import FETCH_BYTES
from benchmarks.load.encode import Topic
from benchmarks.load.generator import Load, RunningLoad, Sample
from benchmarks.load.processes import bytes_read_from_disk, evict
from benchmarks.load.rounds import Scale
from benchmarks.load.servers import Headwater
from benchmarks.load.targets import Figure, at_least, at_most

_CASE = "cold-read"
_RATE = 2000.0  # an open loop well below what the broker can do, so that only waiting shows
_UNTIL_STOPPED = 600.0


def _producing(server: Headwater, seconds: float) -> Load:
    topic = server.fresh_topic(1)
    frame = encode.produce_request(13, -1, topic, [0], encode.batch(1, 100))
    return Load((frame,), connections=10, depth=16, rate=_RATE, warmup=0.5, seconds=seconds)


def reading(topic: Topic, batch: bytes, copies: int) -> Load:
    """One reader of a partition that holds `copies` of `batch`; it discards what it gets."""
    records = encode.record_count(batch)
    return Load(
        (encode.fetch_request(18, topic, 0, FETCH_BYTES),),
        once=True,
        fetch_end=copies * records,
        batch_bytes=len(batch),
        batch_records=records,
    )


def _produce_while_reading(server: Headwater, reading: Load) -> tuple[Sample, Sample]:
    producers = RunningLoad(_producing(server, _UNTIL_STOPPED), server.port, server.pid)
    read = generator.run(reading, server.port, server.pid)
    producers.stop()
    return producers.result(), read


def _unmap(server: Headwater, topic: Topic) -> None:
    """Starts the broker again: pages that a process has mapped cannot be evicted."""
    server.stop()
    server.start()
    server.wait_until_ready()
    server.topics.wait_until_led(topic.name, topic.partitions)


def cold_read(scale: Scale) -> list[Figure]:
    """Produce p99 with and without a reader of evicted log, and that the log was indeed cold."""
    batch = encode.batch_of(64 << 10, 1000)
    copies = scale.log_bytes // len(batch)
    tails = Figure(_CASE, "produce p99 ÷ without the reader", limit=at_most(2))
    cold = Figure(_CASE, "share of the log read from disk", limit=at_least(0.9))
    alone = Figure(_CASE, "produce p99 without the reader, µs")
    speed = Figure(_CASE, "reader, MB/s")
    with Headwater() as server:
        topic = server.filled_topic(1, batch, copies)
        for _ in range(scale.rounds):
            _unmap(server, topic)
            quiet = generator.run(_producing(server, 4.0), server.port, server.pid)
            evict(server.data / f"{topic.name}-0")
            before = bytes_read_from_disk(server.pid)
            disturbed, read = _produce_while_reading(server, reading(topic, batch, copies))
            cold.values.append((bytes_read_from_disk(server.pid) - before) / read.bytes)
            tails.values.append(disturbed.p99_us / quiet.p99_us)
            alone.values.append(quiet.p99_us)
            speed.values.append(read.megabytes_per_second)
    return [tails, cold, alone, speed]
