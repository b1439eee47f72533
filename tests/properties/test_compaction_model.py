"""Compaction against a model of the last value of each key: transactions, truncations, restarts."""

import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.log.compaction.passes import CleaningPass
from headwater.log.settings import LogSettings
from headwater.log.verify import verify_log
from headwater.records.batch import read_header
from headwater.records.compression import Codec
from headwater.records.record import decode_records
from headwater.seams.files import OsFiles
from tests.unit.log.compaction.support import (
    BOTH_MAPS,
    end_transaction,
    job_of,
    use_key_map,
    write,
)
from tests.unit.log.support import NOW, PARTITION, TOPIC_ID, flush, opened, stored

LIMITS = LogSettings(
    segment_bytes=900, index_interval_bytes=150, cleanup_policy="compact", retention_ms=-1
)
RETENTION = 1_000
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e" * 20])
PRODUCERS = st.sampled_from([3, 4])
VALUES = st.one_of(st.none(), st.integers(0, 99).map(lambda n: b"%d" % n))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)


class CompactionMachine(RuleBasedStateMachine):
    bytes_per_key = 24

    def __init__(self):
        super().__init__()
        self.path = tempfile.mkdtemp(prefix="headwater-compaction-")
        self.dirs = opened(self.path, LIMITS)
        self.log = self.dirs.create(PARTITION, TOPIC_ID, LIMITS, NOW)
        self.now = NOW
        self.dirty = 0
        # Below it a pass may have cleaned, and nothing is truncated.
        self.high_watermark = 0
        # (offset, producer, rows or whether it commits), for what is left after a truncation.
        self.history = []
        # Offset -> (key, value) of what consumers may see: committed records.
        self.committed = {}
        self.open = {}
        self.sequences = {}
        self.aborted = set()

    def teardown(self):
        self.dirs.abandon()
        verdict = verify_log(f"{self.path}/topic-0", gaps=True)
        shutil.rmtree(self.path)
        assert [row for row in verdict.problems if "epochs are missing" not in row] == []

    def rows(self, pairs):
        start = self.log.log_end_offset
        return {start + at: pair for at, pair in enumerate(pairs)}

    def happened(self, offset, producer, what):
        self.history.append((offset, producer, what))
        self.apply(producer, what)

    def apply(self, producer, what):
        if producer is None:
            self.committed |= what
        elif isinstance(what, dict):
            self.open.setdefault(producer, {}).update(what)
        elif what:
            self.committed |= self.open.pop(producer)
        else:
            self.aborted |= self.open.pop(producer).keys()

    @rule(pairs=PAIRS, codec=st.sampled_from(list(Codec)))
    def send(self, pairs, codec):
        self.happened(self.log.log_end_offset, None, self.rows(pairs))
        write(self.log, *pairs, codec=codec, now=self.now)

    @rule(pairs=PAIRS, producer=PRODUCERS)
    def send_in_transaction(self, pairs, producer):
        self.happened(self.log.log_end_offset, producer, self.rows(pairs))
        first = self.sequences.get(producer, 0)
        self.sequences[producer] = first + len(pairs)
        write(
            self.log,
            *pairs,
            producer_id=producer,
            base_sequence=first,
            transactional=True,
            now=self.now,
        )

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans(), data=st.data())
    def end(self, commit, data):
        producer = data.draw(st.sampled_from(sorted(self.open)))
        self.happened(self.log.log_end_offset, producer, commit)
        end_transaction(self.log, producer, commit=commit, now=self.now)

    @precondition(lambda self: self.log.log_end_offset > self.high_watermark)
    @rule(data=st.data())
    def truncate(self, data):
        """A new leader has less: markers may be gone, and their transactions are open again."""
        offset = data.draw(st.integers(self.high_watermark, self.log.log_end_offset - 1))
        self.log.truncate_to(offset)
        end = self.log.log_end_offset
        assert self.high_watermark <= end <= offset
        self.history = [row for row in self.history if row[0] < end]
        self.committed, self.open, self.aborted = {}, {}, set()
        for _, producer, what in self.history:
            self.apply(producer, what)
        begun = {row.producer_id for row in self.log.producers if row.transaction_start >= 0}
        assert begun == set(self.open)
        self.sequences = {row.producer_id: row.last_sequence + 1 for row in self.log.producers}

    @rule(ms=st.sampled_from([1, RETENTION - 1, RETENTION, 3 * RETENTION]))
    def wait(self, ms):
        self.now += ms

    @rule()
    def forget_producers(self):
        self.log.producers.expire(self.now + 1)
        for producer in list(self.sequences):
            if producer not in self.open:
                del self.sequences[producer]

    @rule(keys=st.integers(1, 12))
    def clean(self, keys):
        """Clean what a broker would: sealed and flushed segments below the last stable offset."""
        if self.log.segments.active.size:
            self.log.roll(self.now)
        flush(self.log, self.dirs)
        self.high_watermark = self.log.log_end_offset
        stable = self.log.last_stable_offset(self.log.log_end_offset)
        job = job_of(
            self.log,
            self.dirty,
            self.now,
            map_bytes=keys * self.bytes_per_key,
            delete_retention_ms=RETENTION,
        )
        ends = [segment.base_offset for segment in self.log.segments][1:]
        job.segments = [row for row, end in zip(job.segments, ends, strict=True) if end <= stable]
        if not job.segments:
            return
        job.end_offset = ends[len(job.segments) - 1]
        job.later_aborted = self.log.segments.aborted_transactions(job.end_offset, job.end_offset)
        if self.dirty >= job.end_offset:
            return
        cleaning = CleaningPass(OsFiles(), job)
        for group in cleaning.run():
            assert self.log.replace_segments(*group)
        assert cleaning.cleaned_to > self.dirty
        self.dirty = cleaning.cleaned_to

    @rule(clean=st.booleans())
    def restart(self, clean):
        end, states = (
            self.log.log_end_offset,
            {row.producer_id: row[1:3] for row in self.log.producers},
        )
        if clean:
            self.dirs.close({})
        else:
            self.dirs.abandon()
        self.dirs = opened(self.path, LIMITS)
        self.log = self.dirs.logs[PARTITION]
        assert self.log.failure is None
        assert self.log.log_end_offset == end
        found = {row.producer_id: row[1:3] for row in self.log.producers}
        assert {producer: found.get(producer) for producer in states} == states
        # A restart may find producers in the log again that had expired.
        self.sequences = {row.producer_id: row.last_sequence + 1 for row in self.log.producers}

    @invariant()
    def consumers_see_the_last_value_of_each_key(self):
        end = self.log.log_end_offset
        begun = [min(rows) for rows in self.open.values()]
        assert self.log.last_stable_offset(end) == min(begun, default=end)
        rows = self.log.aborted_transactions(self.log.log_start_offset, end)
        hidden = [(row.producer_id, row.first_offset, row.last_offset) for row in rows]
        seen = {}
        for base, _, data in stored(self.log):
            header = read_header(data)
            aborted = header.transactional and any(
                producer == header.producer_id and first <= base <= last
                for producer, first, last in hidden
            )
            if header.control or aborted:
                continue
            for record in decode_records(data):
                seen[record.offset] = (record.key, record.value)
        pending = {offset for rows in self.open.values() for offset in rows}
        visible = {at: row for at, row in seen.items() if at not in pending}
        # Nothing is invented, moved or resurrected.
        assert visible.items() <= self.committed.items()
        assert not visible.keys() & self.aborted
        # Nothing above the clean point is missing.
        assert {at for at in self.committed if at >= self.dirty} <= visible.keys()
        # Below it, a key has one value: an older one would come back once its tombstone is gone.
        clean = [key for at, (key, _) in visible.items() if at < self.dirty]
        assert len(clean) == len(set(clean))
        wanted, found = _last_values(self.committed), _last_values(visible)
        assert {key: value for key, value in wanted.items() if value is not None} == {
            key: value for key, value in found.items() if value is not None
        }


def _last_values(rows):
    return {key: value for _, (key, value) in sorted(rows.items())}


@pytest.mark.parametrize("name", BOTH_MAPS)
def test_compaction_keeps_the_last_value_of_each_key(name, monkeypatch):
    module = use_key_map(monkeypatch, name)
    machine = type("Machine", (CompactionMachine,), {"bytes_per_key": module.BYTES_PER_KEY})
    case = machine.TestCase
    case.settings = settings(
        max_examples=40,
        stateful_step_count=40,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    case().runTest()
