"""Restart after kill -9: how long, and how much of the log was read again.

The log is filled until only a known tail lies beyond the recovery point, which the broker's
background flush moves; what is scanned at the next start should be that tail and little more.
"""

import re
import signal
import time
from dataclasses import dataclass

from benchmarks.load import encode
from benchmarks.load.encode import Topic
from benchmarks.load.lifecycle import seconds_to_first_acknowledgement
from benchmarks.load.rounds import Scale
from benchmarks.load.servers import Headwater
from benchmarks.load.targets import Figure, at_most

_DIRTY = 62 << 20  # just under the 64 MiB at which the broker flushes
_NEARLY_CLEAN = 4 << 20
_STEP = 4 << 20
_FLUSH_TIMEOUT = 120.0
_SCANNED = re.compile(r"recovered (\d+) partitions?, scanned (\d+) bytes")


@dataclass
class _Filling:
    """What went into the one partition: a bulk of large batches, then a tail of the case's own."""

    bulk: bytes
    bulk_copies: int
    tail: bytes
    tail_copies: int = 0

    def dirty_bytes(self, recovery_point: int) -> int:
        """Bytes of the log beyond an offset."""
        bulk_records = encode.record_count(self.bulk)
        in_bulk = max(self.bulk_copies - recovery_point // bulk_records, 0)
        beyond = max(recovery_point - self.bulk_copies * bulk_records, 0)
        in_tail = self.tail_copies - beyond // encode.record_count(self.tail)
        return in_bulk * len(self.bulk) + in_tail * len(self.tail)


def recovery(scale: Scale) -> list[Figure]:
    """With a dirty tail of 16 KiB batches, and with one of single records."""
    large = encode.batch_of(16 << 10, 100)
    return [
        *_after_kill(scale, "recovery-16KiB", large, at_most_seconds=1.0),
        *_after_kill(scale, "recovery-1rec", encode.batch(1, 100), at_most_seconds=3.0),
    ]


def _after_kill(scale: Scale, case: str, tail: bytes, *, at_most_seconds: float) -> list[Figure]:
    bulk = encode.batch_of(16 << 10, 100)
    filling = _Filling(bulk, scale.log_bytes // len(bulk), tail)
    with Headwater() as server:
        topic = server.fresh_topic(1)
        server.fill(topic, 0, bulk, filling.bulk_copies)
        _fill_until_flushed(server, topic, filling)
        missing = _DIRTY - filling.dirty_bytes(recovery_point(server, topic))
        filling.tail_copies = max(missing // len(tail), 1)
        server.fill(topic, 0, tail, filling.tail_copies, connections=10)
        dirty = filling.dirty_bytes(recovery_point(server, topic))
        server.stop(signal.SIGKILL)
        seconds = seconds_to_first_acknowledgement(server, topic)
        scanned = _scanned_bytes(server)
        server.check(topic)
    return [
        Figure(case, "restart after kill -9, s", [seconds], at_most(at_most_seconds)),
        Figure(case, "scanned ÷ dirty bytes", [scanned / dirty], at_most(1.1)),
        Figure(case, "dirty, MiB", [dirty / (1 << 20)]),
        Figure(
            case,
            "of it in batches of this size, MiB",
            [filling.tail_copies * len(tail) / (1 << 20)],
        ),
    ]


def recovery_point(server: Headwater, topic: Topic) -> int:
    """The flushed end as the checkpoint file has it: lines of topic, partition, offset."""
    path = server.data / "recovery-point-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        words = line.split()
        if words[:2] == [topic.name, "0"]:
            return int(words[2])
    return 0


def _fill_until_flushed(server: Headwater, topic: Topic, filling: _Filling) -> None:
    """Goes on with the bulk until a flush leaves next to nothing dirty: the tail is the case's."""
    deadline = time.perf_counter() + _FLUSH_TIMEOUT
    while filling.dirty_bytes(recovery_point(server, topic)) > _NEARLY_CLEAN:
        if time.perf_counter() > deadline:
            raise TimeoutError("the recovery point did not follow the log")
        copies = _STEP // len(filling.bulk)
        server.fill(topic, 0, filling.bulk, copies)
        filling.bulk_copies += copies
        time.sleep(0.5)


def _scanned_bytes(server: Headwater) -> int:
    found = _SCANNED.search(server.messages.read_text())
    if found is None:
        raise RuntimeError(f"no line matches {_SCANNED.pattern!r} in the broker's messages")
    return int(found[2])
