"""The log against a plain list, through everything that can happen to it."""

import errno
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.log.settings import LogSettings
from headwater.log.time_lookup import TimeLookup
from headwater.log.verify import verify_log
from tests.unit.log.support import (
    NOW,
    PARTITION,
    TOPIC_ID,
    LossyFiles,
    append,
    batch,
    flush,
    opened,
    stage,
    stored,
)

LIMITS = LogSettings(
    segment_bytes=1_200, index_interval_bytes=150, retention_ms=-1, segment_index_bytes=120
)


class LogMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.path = tempfile.mkdtemp(prefix="headwater-log-")
        self.files = LossyFiles()
        self.dirs = opened(self.path, LIMITS, self.files)
        self.log = self.dirs.create(PARTITION, TOPIC_ID, LIMITS, NOW)
        self.rows = []
        self.end = 0
        self.start = 0
        self.flushed = 0
        self.leader = 0
        self.time = NOW

    def teardown(self):
        self.dirs.abandon()
        verdict = verify_log(f"{self.path}/topic-0")
        shutil.rmtree(self.path)
        # These files are written without a sync: after a loss of power they are made again.
        torn = ("partition.metadata", ".checksums", ".snapshot", ".window", "epochs are missing")
        assert [row for row in verdict.problems if not any(one in row for one in torn)] == []

    def accept(self, rows):
        self.rows += rows
        self.end = self.rows[-1][1] + 1

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=6), size=st.integers(0, 300))
    def write(self, counts, size):
        sent = []
        for count in counts:
            self.time += 7
            data = batch(count, value=b"v" * size, now=self.time)
            base, last = stage(self.log, data, self.leader)
            sent.append((base, last, bytes(data)))
        assert self.log.log_end_offset == self.end
        self.log.write_staged()
        self.accept(sent)

    @rule(count=st.integers(1, 4))
    def write_idempotent_twice(self, count):
        state = self.log.producers.get(5)
        first = 0 if state is None else state.last_sequence + 1
        data = batch(count, producer=5, sequence=first, now=self.time)
        offsets = stage(self.log, data, self.leader)
        again = batch(count, producer=5, sequence=first, now=self.time)
        assert stage(self.log, again, self.leader) == offsets
        self.log.write_staged()
        assert append(self.log, count, leader=self.leader, producer=5, sequence=first) == offsets
        self.accept([(*offsets, bytes(data))])

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=8))
    def fail_to_write(self, counts):
        for count in counts:
            stage(self.log, batch(count, value=b"v" * 200), self.leader)
        self.files.fail_write = OSError(errno.ENOSPC, "full")
        with pytest.raises(OSError, match="full"):
            self.log.write_staged()

    @rule(offset=st.integers(0, 400), max_bytes=st.integers(1, 2_000))
    def read(self, offset, max_bytes):
        offset = min(self.start + offset, self.end)
        assert stored(self.log, max_bytes, offset) == [row for row in self.rows if row[1] >= offset]

    @rule(
        offset=st.integers(0, 400),
        upper=st.integers(0, 400),
        max_bytes=st.integers(1, 2_000),
        at_least_one=st.booleans(),
    )
    def read_below(self, offset, upper, max_bytes, at_least_one):
        offset, upper = min(self.start + offset, self.end), min(self.start + upper, self.end)
        piece = self.log.read(offset, upper, max_bytes, at_least_one)
        expected = [row for row in self.rows if row[1] >= offset and row[1] < upper]
        data = piece.load() if piece is not None else b""
        assert b"".join(row[2] for row in expected).startswith(data)
        fits = bool(expected) and (at_least_one or len(expected[0][2]) <= max_bytes)
        assert bool(data) == fits

    @rule(age=st.integers(0, 2_000))
    def look_up_a_time(self, age):
        wanted = max(NOW, self.time - age)
        found = TimeLookup(self.log, self.end).at_or_after(wanted)
        newest = [row for row in self.rows if self.newest(row) >= wanted and row[1] >= self.start]
        if newest:
            assert found[1] == max(newest[0][0], self.start)
        else:
            assert found is None

    @staticmethod
    def newest(row):
        return int.from_bytes(row[2][35:43], "big")

    @rule(back=st.integers(0, 30))
    def truncate(self, back):
        offset = max(self.start, self.end - back)
        self.log.truncate_to(offset)
        self.rows = [row for row in self.rows if row[1] < offset]
        if back:
            self.end = self.rows[-1][1] + 1 if self.rows else self.log.log_end_offset
        self.start = min(self.start, self.end)
        self.flushed = min(self.flushed, self.end)

    @rule()
    def a_new_leader(self):
        self.leader += 1
        self.log.staging.begin_epoch(self.leader)

    @rule(by=st.integers(0, 10))
    def delete_records(self, by):
        self.start = min(self.end, self.start + by)
        self.log.advance_start(self.start)
        self.log.retain(self.time, self.end)
        self.start = self.log.log_start_offset
        self.rows = [row for row in self.rows if row[1] >= self.start]

    @rule()
    def sync(self):
        flush(self.log, self.dirs)
        self.flushed = self.end

    @rule()
    def stop_and_start(self):
        self.dirs.close({})
        self.reopen()
        self.flushed = self.end
        assert self.dirs.recovered == {}

    @rule()
    def crash_and_start(self):
        self.dirs.abandon()
        self.reopen()

    @precondition(lambda self: self.start == self.log.segments[0].base_offset)
    @rule(share=st.floats(0, 1))
    def lose_power_and_start(self, share):
        self.dirs.abandon()
        self.files.lose_power(self.path, lambda unsynced: int(unsynced * share))
        self.reopen()
        kept = [row for row in self.rows if row[1] < self.log.log_end_offset]
        assert self.log.log_end_offset >= self.flushed
        self.rows, self.end = kept, self.log.log_end_offset
        self.leader += 1

    def reopen(self):
        self.dirs = opened(self.path, LIMITS, self.files)
        self.log = self.dirs.logs[PARTITION]
        # Without a checkpoint a crash brings back what DeleteRecords had only hidden.
        self.log.advance_start(min(self.start, self.log.log_end_offset))
        assert self.log.failure is None
        if self.leader <= self.log.epochs.latest:
            self.leader = self.log.epochs.latest

    @invariant()
    def the_ends_agree(self):
        assert self.log.log_end_offset == self.log.staging.end_offset == self.end
        assert self.log.recovery_point <= self.end
        assert self.log.size == sum(segment.size for segment in self.log.segments)

    @invariant()
    def a_full_read_gives_the_list(self):
        assert stored(self.log) == self.rows


LogMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLogAgainstAList = LogMachine.TestCase
