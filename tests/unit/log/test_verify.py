import struct

import pytest

from headwater.log.settings import LogSettings
from headwater.log.verify import verify_log
from tests.unit.log.support import append, batch, created, replicate

SETTINGS = LogSettings(segment_bytes=1_500, index_interval_bytes=300)


@pytest.fixture
def folder(tmp_path):
    dirs, log = created(tmp_path, SETTINGS)
    for number in range(60):
        append(log, 2, leader=number // 25, producer=3, sequence=2 * number, now=1_000 + number % 7)
    dirs.close({})
    return tmp_path / "topic-0"


def flip(path, place, bit=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def test_a_sound_log_has_no_problems(folder):
    verdict = verify_log(str(folder))
    assert verdict.problems == []
    assert (verdict.start_offset, verdict.end_offset) == (0, 120)
    assert (verdict.batches, verdict.records) == (60, 120)
    assert verdict.segments > 1


@pytest.mark.parametrize("place", range(0, 95, 3))
def test_damage_to_any_byte_of_a_batch_is_found(folder, place):
    flip(sorted(folder.glob("*.log"))[1], place)
    assert verify_log(str(folder)).problems


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_wrong_index_entry_is_found(folder, suffix):
    path = min(folder.glob(f"*.{suffix}"))
    flip(path, 7)
    assert any(suffix in problem for problem in verify_log(str(folder)).problems)


def test_a_missing_segment_is_found(folder):
    sorted(folder.glob("*.log"))[1].unlink()
    assert any("must be" in problem for problem in verify_log(str(folder)).problems)


def test_a_missing_end_is_found(folder):
    max(folder.glob("*.log")).unlink()
    assert any("but the log ends at" in problem for problem in verify_log(str(folder)).problems)


def test_a_batch_written_twice_is_found(folder):
    last = max(folder.glob("*.log"))
    content = last.read_bytes()
    size = struct.unpack_from(">i", content, 8)[0] + 12
    copy = bytearray(content[:size])
    struct.pack_into(">q", copy, 0, 120)
    last.write_bytes(content + copy)
    problems = verify_log(str(folder)).problems
    assert any("sequence" in problem for problem in problems)


def test_a_wrong_epoch_file_is_found(folder):
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    (folder / "leader-epoch-checkpoint.crc").unlink()
    assert any("epoch" in problem for problem in verify_log(str(folder)).problems)


@pytest.mark.parametrize(("epochs", "sound"), [((0, 0, 1, 1), True), ((0, 1, 0, 1), False)])
def test_batches_of_transactions_without_sequences_are_checked_by_epoch(tmp_path, epochs, sound):
    """As in __consumer_offsets, where a group's offsets are part of a transaction."""
    dirs, log = created(tmp_path, SETTINGS)
    for offset, epoch in enumerate(epochs):
        data = batch(offset=offset, leader=0, producer=3, epoch=epoch, transactional=True)
        replicate(log, data)
        log.write_staged()
    dirs.close({})
    assert (verify_log(str(tmp_path / "topic-0")).problems == []) is sound
