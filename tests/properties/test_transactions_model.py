"""Transactions of one log against a list of its batches: what is stable, and what was aborted.

The model answers by scanning everything; the log has a table of open transactions, indexes of aborted
ones and snapshots. Both must agree after failed writes, truncations, crashes, clean stops, lost
files, DeleteRecords and retention.
"""

import errno
import pathlib
import shutil
import tempfile
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.log.settings import LogSettings
from headwater.records.control import Marker, build_marker
from tests.unit.log.support import (
    NOW,
    PARTITION,
    TOPIC_ID,
    LossyFiles,
    batch,
    flush,
    opened,
    stage,
)

LIMITS = LogSettings(segment_bytes=700, index_interval_bytes=150, retention_ms=-1)
PRODUCERS = st.integers(1, 5)
DATA, PLAIN, COMMIT, ABORT = "data", "plain", "commit", "abort"


class Row(NamedTuple):
    """One batch of the model."""

    base: int
    last: int
    kind: str
    producer: int


class Ended(NamedTuple):
    """A transaction of the model; it is open while its marker is None."""

    producer: int
    first: int
    marker: int | None
    aborted: bool


def transactions(rows: list[Row]) -> list[Ended]:
    first: dict[int, int] = {}
    found = []
    for row in rows:
        if row.kind == DATA:
            first.setdefault(row.producer, row.base)
        elif row.kind in (COMMIT, ABORT) and row.producer in first:
            found.append(Ended(row.producer, first.pop(row.producer), row.base, row.kind == ABORT))
    return found + [Ended(producer, base, None, False) for producer, base in first.items()]


class LogWithTransactions(RuleBasedStateMachine):
    """A log with five producers, some of them in transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(prefix="headwater-transactions-")
        self.files = LossyFiles()
        self.dirs = opened(self.path, LIMITS, self.files)
        self.log = self.dirs.create(PARTITION, TOPIC_ID, LIMITS, NOW)
        self.rows: list[Row] = []
        self.high_watermark = 0
        # The end of the log when it was loaded: what was replicated before is not known exactly.
        self.loaded_end = 0

    def teardown(self) -> None:
        self.dirs.abandon()
        shutil.rmtree(self.path)

    @property
    def end(self) -> int:
        return self.rows[-1].last + 1 if self.rows else self.log.log_end_offset

    # -- writing

    def stage(self, kind: str, producer: int, count: int) -> Row:
        if kind in (COMMIT, ABORT):
            marker = build_marker(Marker(producer, 0, kind == COMMIT, 0), now=NOW)
            base, last = self.log.staging.stage_marker(marker, 0, NOW)
            return Row(base, last, kind, producer)
        state = self.log.producers.get(producer)
        sequence = 0 if state is None else state.last_sequence + 1
        data = batch(count, producer=producer, sequence=sequence, transactional=kind == DATA)
        return Row(*stage(self.log, data), kind, producer)

    def kind_of(self, wanted: str, producer: int, staged: list[Row]) -> str:
        """A producer writes plain batches only outside of a transaction."""
        inside = any(
            it.producer == producer and it.marker is None for it in transactions(self.rows + staged)
        )
        return DATA if wanted == PLAIN and inside else wanted

    WRITES = st.lists(
        st.tuples(
            st.sampled_from((DATA, DATA, PLAIN, COMMIT, ABORT)), PRODUCERS, st.integers(1, 3)
        ),
        min_size=1,
        max_size=6,
    )

    def stage_all(self, writes) -> list[Row]:
        staged: list[Row] = []
        for wanted, producer, count in writes:
            staged.append(self.stage(self.kind_of(wanted, producer, staged), producer, count))
        return staged

    @rule(writes=WRITES)
    def write(self, writes) -> None:
        staged = self.stage_all(writes)
        self.log.write_staged()
        self.rows += staged

    @rule(writes=WRITES)
    def fail_to_write(self, writes) -> None:
        self.stage_all(writes)
        self.files.fail_write = OSError(errno.ENOSPC, "full")
        with pytest.raises(OSError, match="full"):
            self.log.write_staged()

    @rule(writes=WRITES)
    def drop_staged(self, writes) -> None:
        self.stage_all(writes)
        self.log.drop_staged()

    @rule(by=st.integers(1, 20))
    def replicate(self, by) -> None:
        self.high_watermark = min(self.end, self.high_watermark + by)

    # -- files

    @rule()
    def sync(self) -> None:
        flush(self.log, self.dirs)

    @rule(back=st.integers(1, 25))
    def truncate(self, back) -> None:
        offset = max(self.log.log_start_offset, self.end - back)
        self.log.truncate_to(offset)
        self.rows = [row for row in self.rows if row.last < offset]
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    @rule(clean=st.booleans())
    def start_again(self, clean) -> None:
        self.reopen(clean=clean)

    @rule(data=st.data(), clean=st.booleans())
    def start_again_with_a_torn_index(self, data, clean) -> None:
        self.stop(clean=clean)
        for path in sorted(pathlib.Path(self.path).rglob("*.txnindex")):
            content = path.read_bytes()
            kept = data.draw(st.integers(0, len(content)), label=path.name)
            # A file that ends with whole entries looks intact.
            path.write_bytes(content[:kept] + b"\0" * (kept != len(content)))
        self.start()

    @rule(clean=st.booleans())
    def start_again_without_snapshots(self, clean) -> None:
        self.stop(clean=clean)
        for path in pathlib.Path(self.path).rglob("*.snapshot"):
            path.unlink()
        self.start()

    def reopen(self, *, clean: bool) -> None:
        self.stop(clean=clean)
        self.start()

    def stop(self, *, clean: bool) -> None:
        if clean:
            self.dirs.close({})
        else:
            self.dirs.abandon()

    def start(self) -> None:
        self.dirs = opened(self.path, LIMITS, self.files)
        self.log = self.dirs.logs[PARTITION]
        self.loaded_end = self.log.log_end_offset
        assert self.loaded_end == self.end

    # -- deletion

    @rule(by=st.integers(1, 15))
    def delete_records(self, by) -> None:
        offset = min(self.high_watermark, self.log.log_start_offset + by)
        self.log.advance_start(offset)
        self.log.retain(NOW, self.high_watermark)

    # -- what must hold
    # Snapshots may or may not know of batches in segments that are gone: both answers are good.

    @property
    def kept(self) -> list[Row]:
        return [row for row in self.rows if row.last >= self.log.segments.start_offset]

    def stable(self, rows: list[Row]) -> int:
        mark = self.high_watermark
        unstable = [it.first for it in transactions(rows) if it.marker is None or it.marker >= mark]
        return max(min([mark, *unstable]), min(mark, self.log.log_start_offset))

    @invariant()
    def the_last_stable_offset_is_that_of_a_scan(self) -> None:
        stable = self.log.last_stable_offset(self.high_watermark)
        assert stable <= self.stable(self.kept)
        if self.high_watermark >= self.loaded_end:
            assert stable >= self.stable(self.rows)

    @invariant()
    def open_transactions_are_those_of_a_scan(self) -> None:
        known = {
            it.producer_id: it.transaction_start
            for it in self.log.producers
            if it.transaction_start >= 0
        }
        in_segments, ever = (
            {it.producer: it.first for it in transactions(rows) if it.marker is None}
            for rows in (self.kept, self.rows)
        )
        assert in_segments.keys() <= known.keys() <= ever.keys()
        for producer, first in known.items():
            assert ever[producer] <= first <= in_segments.get(producer, first)

    @rule(start=st.integers(0, 60), length=st.integers(1, 60))
    def look_up_aborted(self, start, length) -> None:
        stable = self.log.last_stable_offset(self.high_watermark)
        start = min(self.log.log_start_offset + start, stable)
        end = min(start + length, stable)
        in_segments, ever = (
            {
                (it.producer, it.marker)
                for it in transactions(rows)
                if it.aborted and it.first < end and it.marker >= start
            }
            for rows in (self.kept, self.rows)
        )
        found = self.log.aborted_transactions(start, end)
        pairs = [(it.producer_id, it.last_offset) for it in found]
        assert in_segments <= set(pairs) <= ever
        assert len(pairs) == len(set(pairs))
        assert found == sorted(found, key=lambda it: it.first_offset)


TestLogWithTransactions = LogWithTransactions.TestCase
TestLogWithTransactions.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
