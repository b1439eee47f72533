"""Index answers equal a full scan, and the idempotence window equals a naive memory."""

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import E, KafkaError
from headwater.log.settings import LogSettings
from headwater.log.time_lookup import TimeLookup
from tests.unit.log.support import append, batch, created, stage

SEQUENCES = 1 << 31


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=60),
    interval=st.integers(1, 900),
    segment=st.integers(300, 5_000),
    times=st.lists(st.integers(0, 500), min_size=60, max_size=60),
)
def test_offset_and_time_lookups_equal_a_scan(counts, interval, segment, times):
    limits = LogSettings(segment_bytes=segment, index_interval_bytes=interval)
    with tempfile.TemporaryDirectory() as path:
        dirs, log = created(path, limits)
        rows = []
        for count, time in zip(counts, times, strict=False):
            base, last = append(log, count, now=1_000 + time)
            rows.append((base, last, 1_000 + time))
        for part in log.segments:
            part.drop_tail_cache()
        for offset in range(log.log_end_offset):
            part = log.segments[log.segments.rank(offset)]
            _, header = part.find(part.read_blocking, offset)
            assert header[0] == next(base for base, last, _ in rows if last >= offset)
        for time in {*times, 250}:
            expected = next(((t, base, 0) for base, _, t in rows if t >= 1_000 + time), None)
            assert TimeLookup(log, log.log_end_offset).at_or_after(1_000 + time) == expected
        dirs.abandon()


class NaiveWindow:
    """What each producer wrote, in full, with the rule applied the slow way."""

    def __init__(self):
        self.epochs = {}
        self.batches = {}

    def expect(self, producer, epoch, first, count, base):
        known = self.epochs.get(producer)
        last = (first + count - 1) % SEQUENCES
        if known is None:
            return self.accept(producer, epoch, first, last, base, count)
        if epoch < known:
            return E.INVALID_PRODUCER_EPOCH
        if epoch > known:
            if first != 0:
                return E.OUT_OF_ORDER_SEQUENCE_NUMBER
            return self.accept(producer, epoch, first, last, base, count)
        recent = self.batches[producer][-5:]
        if first == (recent[-1][1] + 1) % SEQUENCES:
            return self.accept(producer, epoch, first, last, base, count)
        for old_first, old_last, old_base, old_count in recent:
            if (old_first, old_last) == (first, last):
                return old_base, old_base + old_count - 1
        return E.OUT_OF_ORDER_SEQUENCE_NUMBER

    def accept(self, producer, epoch, first, last, base, count):
        if self.epochs.get(producer) != epoch:
            self.batches[producer] = []
        self.epochs[producer] = epoch
        self.batches[producer].append((first, last, base, count))
        return base, base + count - 1


def answer(log, data):
    try:
        return stage(log, data)
    except KafkaError as refused:
        return refused.code


@settings(max_examples=60, deadline=None)
@given(
    start=st.sampled_from([0, 5, SEQUENCES - 4]),
    sends=st.lists(
        st.tuples(
            st.integers(0, 1),
            st.integers(0, 2),
            st.integers(-8, 2),
            st.integers(1, 3),
            st.booleans(),
        ),
        max_size=40,
    ),
)
def test_the_idempotence_window_equals_a_naive_memory(start, sends):
    naive = NaiveWindow()
    with tempfile.TemporaryDirectory() as path:
        dirs, log = created(path)
        for producer, epoch, shift, count, write in sends:
            known = naive.batches.get(producer)
            first = (known[-1][1] + 1 + shift) % SEQUENCES if known else start
            if known and shift == -8:
                first = 0
            data = batch(count, producer=producer, epoch=epoch, sequence=first)
            expected = naive.expect(producer, epoch, first, count, log.staging.end_offset)
            assert answer(log, data) == expected
            if write:
                log.write_staged()
        dirs.abandon()
