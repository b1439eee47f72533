import errno
import os

import pytest

from headwater.errors import E, KafkaError
from headwater.log.checkpoints import LOG_CHECKPOINT, read_log_rows, write_log_rows
from headwater.log.compaction.passes import CleaningPass
from headwater.log.log_dirs import BrokerIdentity, LogDirs
from headwater.log.log_segments import rename_all
from headwater.log.segment import SWAP
from headwater.log.settings import LogSettings
from headwater.log.slices import PLAIN_SOCKET, SliceStream
from headwater.log.time_lookup import TimeLookup
from headwater.log.verify import verify_log
from headwater.records.batch import batches
from headwater.seams.files import OsFiles
from headwater.seams.randomness import SystemRandomness
from tests.unit.log.compaction.support import (
    COMPACTED,
    cleaned,
    contents,
    end_transaction,
    job_of,
    write,
)
from tests.unit.log.support import (
    NOW,
    PARTITION,
    append,
    created,
    flush,
    opened,
    reopened,
    stored,
)


class Crash(Exception):
    pass


class CrashingFiles(OsFiles):
    """Dies before the change of names number `crash_before`."""

    def __init__(self, crash_before=None):
        self.changes = 0
        self.crash_before = crash_before

    def _change(self):
        if self.changes == self.crash_before:
            raise Crash
        self.changes += 1

    def rename(self, old, new):
        self._change()
        super().rename(old, new)

    def unlink(self, path):
        self._change()
        super().unlink(path)


def ready_to_swap(path, files=None):
    """A log with three sealed segments, of which a pass has made one."""
    dirs, log = created(path, COMPACTED, files)
    write(log, (b"a", b"1"), (b"b", b"1"))
    write(log, (b"x", b"no"), producer_id=7, base_sequence=0, transactional=True)
    end_transaction(log, 7, commit=False)
    log.roll(NOW)
    write(log, (b"a", b"2"), now=NOW + 1)
    log.roll(NOW)
    write(log, (b"a", b"3"), (b"c", b"3"), now=NOW + 2)
    log.roll(NOW)
    write(log, (b"d", b"4"))
    flush(log, dirs)
    (group,) = CleaningPass(OsFiles(), job_of(log)).run()
    return dirs, log, group


BEFORE = [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"x", b"no"), (4, b"a", b"2"), (5, b"a", b"3")]
AFTER = [(1, b"b", b"1"), (5, b"a", b"3")]
TAIL = [(6, b"c", b"3"), (7, b"d", b"4")]


def leftovers(directory):
    return [name for name in os.listdir(directory) if name.endswith((".cleaned", ".swap"))]


def test_a_swap_replaces_the_segments_and_their_indexes(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    size = log.size
    assert log.replace_segments(*group)
    assert contents(log) == AFTER + TAIL
    assert [segment.base_offset for segment in log.segments] == [0, 7]
    assert log.size == sum(segment.size for segment in log.segments) < size
    assert leftovers(log.directory) == []
    assert [row.last_offset for row in log.aborted_transactions(0, 8)] == [3]
    dirs, log = reopened(dirs, tmp_path, COMPACTED)
    assert contents(log) == AFTER + TAIL
    assert not any(name.endswith(".deleted") for name in os.listdir(log.directory))
    dirs.abandon()
    assert verify_log(log.directory, gaps=True).problems == []


def crashed_images(path, run, most=60):
    """Yield an image for each change of names in `run`, crashed before it, and one of the whole."""
    for number in range(most):
        files = CrashingFiles()
        folder = path / str(number)
        dirs, log, group = ready_to_swap(folder, files)
        files.changes, files.crash_before = 0, number
        try:
            run(log, group)
        except Crash:
            dirs.abandon()
            yield folder
        else:
            dirs.abandon()
            yield folder
            return
    raise AssertionError("the run never ends")


def test_b17_a_crash_at_any_step_of_a_swap_leaves_a_whole_log(tmp_path):
    images = 0
    for folder in crashed_images(tmp_path, lambda log, g: log.replace_segments(*g)):
        images += 1
        dirs = opened(folder, COMPACTED)
        log = dirs.logs[PARTITION]
        assert contents(log) in (BEFORE + TAIL, AFTER + TAIL)
        assert leftovers(log.directory) == []
        assert (log.log_start_offset, log.log_end_offset, log.failure) == (0, 8, None)
        assert log.producers.get(7).last_sequence == 0
        assert append(log) == (8, 8)
        dirs.abandon()
        assert verify_log(log.directory, gaps=True).problems == []
    assert images > 15


def test_a_crash_at_any_step_of_a_swap_keeps_the_checksums_of_what_is_there(tmp_path):
    """Where compaction leaves gaps, only they show that an offset is wrong."""
    compacted = 0
    for folder in crashed_images(tmp_path, lambda log, g: log.replace_segments(*g)):
        dirs = opened(folder, COMPACTED)
        log = dirs.logs[PARTITION]
        for segment in log.segments:
            segment.checksums.load()
            assert segment is log.segments.active or not segment.checksums.absent
        compacted += contents(log) == AFTER + TAIL
        dirs.abandon()
    assert compacted > 4


def test_a_half_swapped_segment_with_a_wrong_offset_removes_no_later_one(tmp_path):
    kept = adopted = 0
    for folder in crashed_images(tmp_path, lambda log, g: log.replace_segments(*g)):
        for path in folder.glob("*/*.log.swap"):
            is_old_there = path.with_suffix("").exists()
            content = bytearray(path.read_bytes())
            last = [position for position, _ in batches(content)][-1]
            content[last + 4] ^= 1  # a higher base offset, in order
            path.write_bytes(content)
            dirs = opened(folder, COMPACTED)
            log = dirs.logs[PARTITION]
            assert (log.log_end_offset, log.failure) == (8, None)
            assert [row[0] for row in stored(log, start=7)] == [7]
            if is_old_there:
                kept += 1
                assert contents(log) == BEFORE + TAIL
            else:
                adopted += 1
                with pytest.raises(KafkaError, match="is damaged near byte"):
                    stored(log)
            dirs.abandon()
    assert min(kept, adopted) > 2


class FullFiles(OsFiles):
    """Has no room for the change of names number `full_at`."""

    full_at = None

    def rename(self, old, new):
        if self.full_at == 0:
            raise OSError(errno.ENOSPC, "No space left on device", old)
        if self.full_at is not None:
            self.full_at -= 1
        super().rename(old, new)


def test_a_disk_that_is_full_in_the_middle_of_a_swap_takes_it_offline(tmp_path):
    """Half of the names are changed: nothing may be read or removed before a start finishes it."""
    untouched = 0
    for step in range(60):
        folder, files = tmp_path / str(step), FullFiles()
        dirs, log, group = ready_to_swap(folder, files)
        files.full_at = step
        refused = None
        try:
            log.replace_segments(*group)
        except OSError as failure:
            refused = failure.errno
        if refused == errno.ENOSPC:
            untouched += 1
            assert (contents(log), log.failure) == (BEFORE + TAIL, None)
            files.full_at = None
            assert log.replace_segments(*group)
            assert contents(log) == AFTER + TAIL
        elif refused is not None:
            assert refused == errno.EIO
            assert "a swap of compaction failed in the middle" in log.failure
        dirs, log = reopened(dirs, folder, COMPACTED)
        assert contents(log) == AFTER + TAIL
        assert leftovers(log.directory) == []
        assert log.failure is None
        dirs.abandon()
        if refused is None:
            break
    assert 1 < untouched < 10 < step


def test_b17_a_crash_at_any_step_of_finishing_a_swap_is_recovered_too(tmp_path):
    """The start after a crash can crash as well, at each step of it."""

    def swapped_half(log, group):
        rename_all(OsFiles(), log.segments[0].stem, group.suffix, SWAP)

    for step in range(30):
        folder = tmp_path / str(step)
        dirs, log, group = ready_to_swap(folder)
        swapped_half(log, group)
        dirs.abandon()
        crashing = LogDirs(
            CrashingFiles(step), SystemRandomness(), [str(folder)], BrokerIdentity(1, "cluster")
        )
        crashing.open()
        try:
            crashing.load(lambda _: COMPACTED, NOW)
            done = True
        except Crash:
            done = False
        crashing.abandon()
        dirs = opened(folder, COMPACTED)
        assert contents(dirs.logs[PARTITION]) == AFTER + TAIL
        assert leftovers(log.directory) == []
        dirs.abandon()
        if done:
            break
    else:
        raise AssertionError("the start never ends")
    assert step > 8


def test_indexes_of_a_swap_that_had_not_begun_are_removed(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    stem = log.segments[0].stem
    os.rename(f"{stem}.index{group.suffix}", f"{stem}.index.swap")
    dirs, log = reopened(dirs, tmp_path, COMPACTED)
    assert contents(log) == BEFORE + TAIL
    assert leftovers(log.directory) == []
    dirs.abandon()


@pytest.mark.parametrize("size", [0, 69, 70, 71])
def test_a_damaged_new_segment_is_not_put_in_place_of_sound_ones(tmp_path, size):
    dirs, log, group = ready_to_swap(tmp_path)
    stem = log.segments[0].stem
    rename_all(OsFiles(), stem, group.suffix, SWAP)
    with open(f"{stem}.log.swap", "r+b") as file:
        file.truncate(size)
    dirs, log = reopened(dirs, tmp_path, COMPACTED)
    assert contents(log) == BEFORE + TAIL
    assert leftovers(log.directory) == []
    dirs.abandon()


def test_a_log_that_is_not_compacted_any_more_keeps_its_gaps(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    log.replace_segments(*group)
    log.cleaned_end = 7
    dirs.checkpoint({})()
    # The recovery point is wrong: recovery reads the whole log.
    path = f"{tmp_path}/{LOG_CHECKPOINT}"
    (row,) = read_log_rows(OsFiles(), path).values()
    write_log_rows(OsFiles(), path, {PARTITION: row._replace(recovery_point=0)})
    dirs, log = reopened(dirs, tmp_path, LogSettings(cleanup_policy="delete"))
    assert contents(log) == AFTER + TAIL
    dirs.abandon()


# -- races


def test_a_swap_of_segments_that_are_gone_changes_nothing(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    log.drop_first()
    assert not log.replace_segments(*group)
    assert contents(log) == [(4, b"a", b"2"), (5, b"a", b"3"), *TAIL]
    dirs.abandon()


def test_a_swap_without_its_new_segment_changes_nothing(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    os.unlink(f"{log.segments[0].stem}.log{group.suffix}")
    with pytest.raises(FileNotFoundError):
        log.replace_segments(*group)
    assert contents(log) == BEFORE + TAIL
    dirs, log = reopened(dirs, tmp_path, COMPACTED)
    assert contents(log) == BEFORE + TAIL
    dirs.abandon()


def test_a_swap_never_replaces_the_segment_that_grows(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    log.truncate_to(6)
    assert not log.replace_segments(*group)
    assert log.log_end_offset == 5
    dirs.abandon()


def test_reads_in_progress_continue_in_the_old_segment(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    slices = {segment.base_offset: log.read(segment.base_offset, 7, 1 << 20, True)
              for segment in list(log.segments)[:-1]}  # fmt: skip
    before = {base: bytes(found.load()) for base, found in slices.items()}
    stream = SliceStream(log.read(0, 7, 1 << 20, True))
    head = stream.load(10)
    unplaced = type(slices[0]).unplaced(OsFiles(), log.segments[0], (1, 7, 1 << 20, True))
    assert log.replace_segments(*group)
    # The old names belong to the new segment now.
    assert {base: found.load() for base, found in slices.items()} == before
    assert {base: bytes(found.load_now()) for base, found in slices.items()} == before
    assert slices[0].send_now(PLAIN_SOCKET, 1 << 20) == before[0]
    assert head + stream.load(stream.left) == before[0]
    assert unplaced.load() == before[0]
    for path in log.segments.pop_garbage():
        os.unlink(path)
    with pytest.raises(KafkaError) as gone:
        slices[0].load()
    assert gone.value.code is E.OFFSET_NOT_AVAILABLE
    assert contents(log) == AFTER + TAIL
    dirs.abandon()


def test_a_reader_thread_finds_a_file_in_the_middle_of_its_rename(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    segment = log.segments[0]
    found = log.read(0, 4, 1 << 20, True)
    before = bytes(found.load())
    aside = f"{segment.path}.9.deleted"
    segment.moving_to = aside
    os.rename(segment.path, aside)
    assert found.load() == before
    os.rename(aside, segment.path)
    segment.moving_to = ""

    class Renaming(OsFiles):
        """The swap happens between the lookup of the name and the open."""

        def open(self, path, **options):
            if not segment.moving_to and path == segment.path:
                segment._files = OsFiles()
                assert log.replace_segments(*group)
            return super().open(path, **options)

    segment._files = found._files = Renaming()
    assert found.load() == before
    dirs.abandon()


def test_lookups_by_time_agree_before_and_after_a_swap(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    lookup = TimeLookup(log, 8)
    assert lookup.at_or_after(NOW + 1)[1] == 4
    assert log.replace_segments(*group)
    assert lookup.at_or_after(NOW + 1)[1] == 4
    assert TimeLookup(log, 8).at_or_after(NOW + 1)[1] == 5
    assert TimeLookup(log, 8).newest()[:2] == (NOW + 2, 5)
    dirs.abandon()


def test_a_segment_replaced_twice_keeps_both_old_files(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    first = log.read(0, 4, 1 << 20, True)
    before = bytes(first.load())
    log.replace_segments(*group)
    second = log.read(0, 7, 1 << 20, True)
    between = bytes(second.load())
    write(log, (b"b", b"5"))
    cleaned(log, dirs)
    assert (first.load(), second.load()) == (before, between)
    dirs.abandon()


def test_a_flush_after_a_swap_counts_the_bytes_since_the_last_flush(tmp_path):
    dirs, log, group = ready_to_swap(tmp_path)
    log.replace_segments(*group)
    assert log._unflushed_from == log.size
    dirs.abandon()


def test_an_emptied_batch_has_no_record_at_any_time(tmp_path):
    dirs, log = created(tmp_path, COMPACTED)
    write(log, (b"a", b"1"), producer_id=7, base_sequence=0, timestamp_type=1, now=NOW + 5)
    write(log, (b"a", b"2"))
    cleaned(log, dirs)
    assert [first for first, _, _ in stored(log)] == [0, 1]
    assert TimeLookup(log, 2).at_or_after(NOW + 1) is None
    dirs.abandon()
