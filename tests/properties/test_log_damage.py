"""Whatever happens to the files beside the batches, the log starts and serves what was written."""

import pathlib
import shutil
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.settings import LogSettings
from tests.unit.log.support import PARTITION, LossyFiles, append, created, flush, opened, stored

LIMITS = LogSettings(segment_bytes=900, index_interval_bytes=200)
UNTOUCHED = {"meta.properties", ".lock"}


@st.composite
def damages(draw):
    """Which file, and what happens to its content."""
    kind = draw(st.sampled_from(["flip", "cut", "zero", "junk", "gone"]))
    return draw(st.integers(0, 99)), kind, draw(st.integers(0, 4_000)), draw(st.binary(max_size=40))


def damage(path, kind, place, junk):
    content = bytearray(path.read_bytes())
    if kind == "gone":
        path.unlink()
        return
    if kind == "flip" and content:
        content[place // 8 % len(content)] ^= 1 << place % 8
    elif kind == "cut":
        del content[place % (len(content) + 1) :]
    elif kind == "zero":
        content = bytearray(len(content))
    elif kind == "junk":
        content = bytearray(junk)
    path.write_bytes(content)


def make_log(path):
    dirs, log = created(path, LIMITS, LossyFiles())
    for number in range(40):
        append(log, 2, leader=number // 9, producer=3, sequence=2 * number)
        if number in {5, 13}:
            flush(log, dirs)
    return dirs, log


@settings(max_examples=80, deadline=None)
@given(clean=st.booleans(), harm=st.lists(damages(), min_size=1, max_size=3))
def test_damage_to_anything_but_the_batches_costs_no_record(clean, harm):
    path = pathlib.Path(tempfile.mkdtemp(prefix="headwater-damage-"))
    dirs, log = make_log(path)
    rows = stored(log)
    if clean:
        dirs.close({})
    else:
        dirs.abandon()
    for number, kind, place, junk in harm:
        files = sorted(
            file
            for file in path.rglob("*")
            if file.is_file() and file.suffix != ".log" and file.name not in UNTOUCHED
        )
        damage(files[number % len(files)], kind, place, junk)
    log = opened(path, LIMITS, LossyFiles()).logs[PARTITION]
    assert log.failure is None or len(harm) > 1
    if log.failure is None:
        assert stored(log) == rows
        assert append(log, 1, leader=9) == (80, 80)
    shutil.rmtree(path)


@settings(max_examples=60, deadline=None)
@given(harm=damages())
def test_damage_to_unflushed_batches_cuts_the_log_and_never_changes_it(harm):
    path = pathlib.Path(tempfile.mkdtemp(prefix="headwater-damage-"))
    dirs, log = make_log(path)
    rows, flushed = stored(log), log.recovery_point
    dirs.abandon()
    number, kind, place, junk = harm
    unflushed = [file for file in sorted(path.rglob("*.log")) if int(file.stem) >= flushed]
    damage(unflushed[number % len(unflushed)], kind, place, junk)
    log = opened(path, LIMITS, LossyFiles()).logs[PARTITION]
    kept = stored(log)
    assert log.failure is None
    assert kept == rows[: len(kept)]
    assert log.log_end_offset >= flushed
    shutil.rmtree(path)
