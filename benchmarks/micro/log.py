"""Costs of the log: staging, writing, looking up, recovering, loading many partitions.

Run: `python benchmarks/micro/log.py [--partitions N]`. Medians of several rounds, one JSON line.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable

from headwater.log.log_dirs import BrokerIdentity, LogDirs
from headwater.log.partition_log import PartitionLog
from headwater.log.settings import LogSettings
from headwater.model import TopicPartition
from headwater.records.batch import HEADER
from headwater.records.builder import build_batch
from headwater.records.header_fields import RECORD_COUNT
from headwater.records.record import Record
from headwater.seams.files import OsFiles, run_side_by_side
from headwater.seams.randomness import SystemRandomness

SETTINGS = LogSettings()
NOW = 1_700_000_000_000
PARTITION = TopicPartition("bench", 0)


def opened(path: str) -> LogDirs:
    """The log dirs at `path`, loaded."""
    dirs = LogDirs(OsFiles(), SystemRandomness(), [path], BrokerIdentity(0, "bench"))
    dirs.open()
    dirs.load(lambda _: SETTINGS, NOW)
    return dirs


def batch_of(size: int, producer_id: int = -1, sequence: int = -1) -> bytearray:
    """A batch of one record of about `size` bytes."""
    return build_batch(
        [Record(key=None, value=b"v" * max(0, size - 70))],
        now=NOW,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


def median_us(work: Callable[[], float], rounds: int = 7) -> float:
    """The median of several measurements, in microseconds."""
    return round(statistics.median(work() for _ in range(rounds)) * 1e6, 3)


def stage_costs(log: PartitionLog, group: int = 50) -> dict[str, float]:
    """Microseconds per staged batch, plain and idempotent, and per written group."""
    views = [memoryview(batch_of(200)) for _ in range(group)]
    header = HEADER.unpack_from(views[0])
    written: list[float] = []

    def plain() -> float:
        total = 0.0
        for _ in range(200):
            start = time.perf_counter()
            for view in views:
                log.staging.stage(view, header, 1, NOW)
            total += time.perf_counter() - start
            start = time.perf_counter()
            log.write_staged()
            written.append((time.perf_counter() - start) / group)
        return total / 200 / group

    sequences = iter(range(1 << 30))

    def idempotent() -> float:
        total = 0.0
        for _ in range(100):
            headers = [
                (*header[:9], 7, 0, next(sequences), header[RECORD_COUNT]) for _ in range(group)
            ]
            start = time.perf_counter()
            for view, row in zip(views, headers, strict=True):
                log.staging.stage(view, row, 1, NOW)
            total += time.perf_counter() - start
            log.write_staged()
        return total / 100 / group

    return {
        "stage": median_us(plain),
        "stage_idempotent": median_us(idempotent),
        "write_per_batch_of_50": round(statistics.median(written) * 1e6, 3),
    }


def read_costs(log: PartitionLog) -> dict[str, float]:
    """Microseconds of a lookup at the tail and of one in the middle."""

    def at(offset: int) -> Callable[[], float]:
        def work() -> float:
            start = time.perf_counter()
            for step in range(200):
                log.read(offset - step, log.log_end_offset, 1 << 20, True)
            return (time.perf_counter() - start) / 200

        return work

    return {
        "read_tail": median_us(at(log.log_end_offset - 10)),
        "read_middle": median_us(at(20_000)),
    }


def recovery_seconds(size: int, dirty: int, producer_id: int = -1) -> float:
    """Seconds to load a log with `dirty` bytes of batches of `size` that no flush has seen."""
    path = tempfile.mkdtemp(prefix="headwater-bench-")
    dirs = opened(path)
    log = dirs.create(PARTITION, bytes(16), SETTINGS, NOW)
    sequence = 0
    while log.log_end_offset == 0 or log.size < dirty:
        for _ in range(500 if size < 10_000 else 50):
            batch = batch_of(size, producer_id, sequence if producer_id >= 0 else -1)
            log.staging.stage_built(batch, 1, NOW)
            sequence += 1
        log.write_staged()
    dirs.abandon()
    start = time.perf_counter()
    dirs = opened(path)
    seconds = time.perf_counter() - start
    dirs.abandon()
    shutil.rmtree(path)
    return round(seconds, 3)


def many_partitions(count: int) -> dict[str, float]:
    """Seconds to create, close and load `count` partitions, and KiB of memory for each."""
    path = tempfile.mkdtemp(prefix="headwater-bench-")
    dirs = opened(path)
    start = time.perf_counter()
    for number in range(count):
        log = dirs.create(TopicPartition("bench", number), bytes(16), SETTINGS, NOW)
        log.staging.stage_built(batch_of(100), 1, NOW)
        log.write_staged()
    created = time.perf_counter()
    dirs.close({}, run_all=run_side_by_side)
    closed = time.perf_counter()
    begun = time.perf_counter()
    dirs = opened(path)
    loaded = time.perf_counter() - begun
    dirs.close({})
    tracemalloc.start()
    dirs = opened(path)
    memory = tracemalloc.get_traced_memory()[0] / 1024 / count
    tracemalloc.stop()
    dirs.abandon()
    shutil.rmtree(path)
    return {
        "create_and_write_s": round(created - start, 2),
        "clean_stop_s": round(closed - created, 2),
        "clean_load_s": round(loaded, 2),
        "kib_each": round(memory, 1),
    }


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=10_000)
    chosen = parser.parse_args()
    results: dict[str, object] = {"many": many_partitions(chosen.partitions)}
    path = tempfile.mkdtemp(prefix="headwater-bench-")
    dirs = opened(path)
    log = dirs.create(PARTITION, bytes(16), SETTINGS, NOW)
    results["stage_us"] = stage_costs(log)
    results["read_us"] = read_costs(log)
    dirs.abandon()
    shutil.rmtree(path)
    results["recover_64MiB_s"] = {
        "1-record batches": recovery_seconds(70, 64 << 20),
        "1-record idempotent": recovery_seconds(70, 64 << 20, producer_id=1),
        "16 KiB batches": recovery_seconds(16 << 10, 64 << 20),
    }
    sys.stdout.write(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
