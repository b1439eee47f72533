"""Which segments a flush covers: all that lack something, however earlier flushes ended, and few others."""

import random
from pathlib import Path

import pytest

from headwater.log.segment import LOG
from headwater.log.settings import LogSettings
from tests.unit.log.support import NOW, LossyFiles, append, created, flush

SMALL = LogSettings(segment_bytes=700, index_interval_bytes=100)


def covered(work, log):
    bases = [segment.base_offset for segment in log.segments]
    return bases[bases.index(work.first_offset) :]


@pytest.fixture
def long(tmp_path):
    dirs, log = created(tmp_path, SMALL)
    while len(log.segments) < 40:
        append(log)
    flush(log, dirs)
    append(log)
    return log


@pytest.mark.parametrize("back", [1, 30])
def test_the_flush_after_a_truncation_begins_at_the_segment_that_was_cut(long, back):
    log = long
    log.truncate_to(log.log_end_offset - back)
    cut = log.segments.active.base_offset
    log.roll(NOW)
    append(log)
    assert covered(log.unflushed(), log)[-2:] == [cut, log.segments.active.base_offset]
    assert len(covered(log.unflushed(), log)) <= 3


def test_the_flush_after_a_failed_one_begins_where_that_began(long):
    log = long
    failed = log.unflushed()
    log.roll(NOW)
    append(log)
    log.postpone_flush()
    work = log.unflushed()
    assert work.first_offset == failed.first_offset
    assert len(covered(work, log)) <= 3


class Play:
    """A log whose flushes fail, are overtaken by repairs and end after truncations."""

    def __init__(self, path, seed):
        self.files = LossyFiles()
        self.dirs, self.log = created(path, SMALL, self.files)
        self.random = random.Random(seed)
        self.work = None

    def step(self):
        log, draw = self.log, self.random
        kind = draw.choice(
            ["append"] * 5 + ["roll", "flush", "flush", "end", "cut", "cut", "rebuild"]
        )
        if kind == "append":
            append(log, draw.randint(1, 3), value=b"v" * draw.randint(1, 200))
        elif kind == "roll" and log.segments.active.size:
            log.roll(NOW)
        elif kind == "flush" and self.work is None:
            self.work = log.unflushed()
        elif kind == "end":
            self.end(full=draw.random() < 0.5)
        elif kind == "cut" and log.segments.start_offset < log.log_end_offset:
            if self.work is not None:
                self.work.run()  # a truncation waits for that, as the log's owner does
            bases = [segment.base_offset for segment in log.segments][1:]
            offset = draw.randint(log.segments.start_offset, log.log_end_offset)
            log.truncate_to(draw.choice([offset, *bases[-3:]]))
            if self.work is not None:
                log.mark_flushed(self.work)
                self.work = None
        elif kind == "rebuild":
            segment = draw.choice(list(log.segments))
            if segment.size and segment is not log.segments.active:
                log.segments.rebuild(segment)

    def end(self, *, full):
        work, self.work = self.work, None
        if work is None:
            return
        self.files.full = full
        try:
            work.run()
        except OSError:
            self.log.postpone_flush()
        else:
            self.log.mark_flushed(work)
        self.files.full = False

    def lacking(self):
        """Return the files of the log that the disk lacks."""
        for segment in self.log.segments:
            for index in segment.indexes:
                if index.unsaved() is not None or index.unsynced:
                    yield index.path
            for path in (segment.stem + LOG, *(index.path for index in segment.indexes)):
                there = Path(path)
                if there.exists() and self.files.synced.get(path, b"") != there.read_bytes():
                    yield path


@pytest.mark.parametrize("seed", range(60))
def test_after_a_flush_the_disk_has_every_segment_and_index(tmp_path, seed):
    play = Play(tmp_path, seed)
    for _ in range(8):
        for _ in range(play.random.randint(5, 30)):
            play.step()
        play.end(full=play.random.random() < 0.5)
        append(play.log)
        flush(play.log, play.dirs)
        assert sorted(set(play.lacking())) == []
    play.dirs.abandon()
