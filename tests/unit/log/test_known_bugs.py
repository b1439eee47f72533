"""Bugs that other brokers have had, each as a scenario; B-numbers as in docs/reliability.md."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from headwater.log import snapshots
from headwater.log.epochs import FILE_NAME
from headwater.log.folders import METADATA
from headwater.log.log_dirs import BrokerIdentity, LogDirs
from headwater.log.truncation_note import FILE_NAME as LIMIT
from headwater.log.truncation_note import START
from headwater.model import ZERO_UUID
from headwater.records.batch import batches
from headwater.records.control import Marker, build_marker
from headwater.replication.cleaning import _last_batches
from headwater.seams.randomness import SystemRandomness
from simulator.disk import Disk
from simulator.files import FileFaults, SimFiles
from simulator.images.cleaning import clean
from simulator.images.storage import PlayClock
from simulator.loop import Crashed
from simulator.randomness import stream
from simulator.trace import Trace
from tests.unit.log.support import (
    NOW,
    PARTITION,
    SETTINGS,
    TOPIC_ID,
    LossyFiles,
    append,
    batch,
    created,
    flush,
    reopened,
    stage,
    stored,
)


def test_b10_a_read_ends_where_it_was_to_end_though_the_log_grows_meanwhile(tmp_path):
    _, log = created(tmp_path)
    append(log, 2)
    append(log, 2)
    found = log.read(0, 2, 1 << 20, True)
    append(log, 2)
    assert [header.last_offset for _, header in batches(bytes(found.load()))] == [1]


def test_b11_a_read_below_the_last_stable_offset_stays_there_though_the_marker_comes(tmp_path):
    _, log = created(tmp_path)
    append(log)
    append(log, 2, producer=5, sequence=0, transactional=True)
    stable = log.last_stable_offset(3)
    found = log.read(0, stable, 1 << 20, True)
    log.staging.stage_marker(build_marker(Marker(5, 0, False, 0), now=1), 0, 1)
    log.write_staged()
    assert log.last_stable_offset(4) == 4
    assert [header.last_offset for _, header in batches(bytes(found.load()))] == [0]


def test_b13_an_index_that_cannot_be_written_gives_no_offset_twice(tmp_path):
    files = LossyFiles()
    dirs, log = created(tmp_path, files=files)
    append(log, 1, producer=5, sequence=0, transactional=True)
    log.staging.stage_marker(build_marker(Marker(5, 0, False, 0), now=1), 0, 1)
    log.write_staged()
    files.full = True
    work = log.unflushed()
    with pytest.raises(OSError, match="no space"):
        work.run()
    log.postpone_flush()
    files.full = False
    assert append(log) == (2, 2)
    flush(log, dirs)
    _, log = reopened(dirs, tmp_path, files=files)
    assert [row[0] for row in stored(log)] == [0, 1, 2]
    assert [row[:3] for row in log.aborted_transactions(0, 3)] == [(5, 0, 1)]


def test_a_log_does_not_begin_in_the_folder_of_an_earlier_one_that_could_not_be_renamed(tmp_path):
    dirs, log = created(tmp_path)
    append(log, 2)
    records = (tmp_path / "topic-0" / "00000000000000000000.log").read_bytes()
    dirs.name_freed(PARTITION, dirs.delete(PARTITION))  # its rename has failed
    with pytest.raises(FileExistsError, match="records of an earlier log"):
        dirs.create(PARTITION, bytes(range(1, 17)), SETTINGS, NOW)
    assert (tmp_path / "topic-0" / "00000000000000000000.log").read_bytes() == records


def test_b15_a_flush_syncs_the_epochs_and_damaged_ones_are_rebuilt(tmp_path):
    files = LossyFiles()
    dirs, log = created(tmp_path, files=files)
    append(log, 2, leader=3)
    append(log, 2, leader=7)
    flush(log, dirs)
    path = tmp_path / "topic-0" / FILE_NAME
    assert files.synced[str(path)] == path.read_bytes()
    path.write_bytes(bytes(len(path.read_bytes())))
    _, log = reopened(dirs, tmp_path, files=files)
    assert (log.epochs.epochs, log.epochs.starts) == ([3, 7], [0, 2])


def test_epochs_are_not_rebuilt_from_a_torn_batch(tmp_path):
    """It lacks its first sector: its base offset is 0."""
    dirs, log = created(tmp_path)
    append(log, 2, leader=3)
    append(log, 2, leader=7)
    flush(log, dirs)
    size = log.size
    append(log, leader=8)
    path = tmp_path / "topic-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[size : size + 8] = bytes(8)
    path.write_bytes(data)
    (tmp_path / "topic-0" / FILE_NAME).unlink()
    _, log = reopened(dirs, tmp_path)
    assert (log.epochs.epochs, log.epochs.starts, log.log_end_offset) == ([3, 7], [0, 2], 4)


def test_b19_compaction_keeps_the_last_flushed_batch_of_a_producer(tmp_path):
    """A power cut takes the later ones; then the flushed one is what recognizes a repetition."""
    dirs, log = created(tmp_path)
    append(log, 1, producer=5, sequence=0)
    flush(log, dirs)
    append(log, 1, producer=5, sequence=1)
    states = log.producers.written_states()
    assert _last_batches(states, log.recovery_point)[5].last_offset == 0
    assert _last_batches(states, log.log_end_offset)[5].last_offset == 1
    assert _last_batches(states, 0)[5].last_offset == -2, "any may be the last one"


def test_a_producer_is_known_after_a_truncation_of_a_compacted_log(tmp_path):
    """Its last batch is flushed, but not replicated: a follower may have to give it up."""
    machine = Machine("/data")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, replace(SETTINGS, cleanup_policy="compact"), NOW)
    append(log, producer=5, sequence=0)
    append(log)
    log.roll(NOW)
    append(log, producer=5, sequence=1)
    flush(log, dirs)
    clean(SimpleNamespace(clock=PlayClock(), files=machine.files), log, 2, bytes(16))
    assert log.cleaned_end == 2
    for offset in snapshots.offsets(machine.files, log.directory):  # a power cut may take them
        snapshots.remove(machine.files, snapshots.stem(log.directory, offset))
    log.truncate_to(2)
    assert log.producers.get(5).last_sequence == 0


@pytest.mark.parametrize("how", ["written", "started again", "truncated"])
def test_a_marker_that_is_not_flushed_decides_nothing_for_compaction(how):
    """A power cut takes the marker: the transaction may then be aborted, and the older value counts."""
    machine = Machine("/data")
    settings = replace(SETTINGS, cleanup_policy="compact")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, settings, NOW)
    append(log, value=b"old")
    append(log, value=b"new", producer=5, sequence=0, transactional=True)
    log.roll(NOW)
    append(log)

    def commit():
        log.staging.stage_marker(build_marker(Marker(5, 0, True, 0), now=NOW), 0, NOW)
        log.write_staged()

    if how == "truncated":
        commit()
    flush(log, dirs)
    if how == "truncated":
        log.truncate_to(3)
    commit()
    if how == "started again":
        machine.files.die()
        dirs = machine.start()
        log = dirs.logs[PARTITION]
        log.configure(settings)

    def compact():
        clean(SimpleNamespace(clock=PlayClock(), files=machine.files), log, 4, bytes(16))

    compact()
    assert log.cleaned_end == 0
    image = Machine("/data")
    image.disk = machine.disk.copy()
    image.disk.lose_power(stream(0, "cut"), ("none",))
    loaded = image.start().logs[PARTITION]
    assert [first for first, *_ in stored(loaded)] == [0, 1, 2]
    assert loaded.last_stable_offset(3) == 1
    work = log.unflushed()
    work.run()
    log.mark_flushed(work)
    compact()
    assert log.cleaned_end == 2
    assert [first for first, *_ in stored(log)] == [1, 2, 3]


# -- power cuts


class Machine:
    """Log dirs on a simulated disk, through crashes and power cuts."""

    def __init__(self, *paths: str) -> None:
        self.disk, self.faults, self.paths = Disk(), FileFaults(), paths
        for path in paths:
            self.disk.make_folders(path)
        self.disk.sync_all()
        self.boot = 0
        self.files: SimFiles

    def start(self) -> LogDirs:
        self.files = SimFiles(self.disk, PlayClock(), stream(1, "x"), Trace(), self.faults)
        dirs = LogDirs(
            self.files, SystemRandomness(), self.paths, BrokerIdentity(1, "c", f"boot {self.boot}")
        )
        dirs.open()
        dirs.load(lambda _: SETTINGS, NOW)
        return dirs

    def cut_power(self) -> None:
        self.boot += 1
        self.files.die()
        self.disk.lose_power(stream(1, "cut"), ("none",))


def test_what_a_failed_sync_lost_is_written_again_before_it_counts_as_stored():
    machine = Machine("/data")
    dirs = machine.start()
    dirs.registered(1)()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, 2)
    machine.faults.broken = "fdatasync"
    with pytest.raises(OSError, match="broken"):
        log.unflushed().run()
    machine.faults.broken = ""
    machine.files.die()
    dirs = machine.start()
    assert [row[:2] for row in stored(dirs.logs[PARTITION])] == [(0, 1)], "the machine still runs"
    flush(dirs.logs[PARTITION], dirs)
    machine.cut_power()
    assert [row[:2] for row in stored(machine.start().logs[PARTITION])] == [(0, 1)]


def test_a_deleted_start_is_stored_only_up_to_what_is_flushed():
    """Otherwise it would hide what is written in place of lost records."""
    machine = Machine("/data")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, 2)
    flush(log, dirs)
    append(log, 2)
    log.advance_start(4)
    dirs.checkpoint({})()
    assert log.durable_start == 2
    machine.cut_power()
    dirs = machine.start()
    log = dirs.logs[PARTITION]
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    append(log, 2)
    log.advance_start(4)
    flush(log, dirs)
    assert log.durable_start == 4
    machine.cut_power()
    assert machine.start().logs[PARTITION].log_start_offset == 4


@pytest.mark.parametrize("flushed", [False, True])
def test_a_later_truncation_does_not_take_back_the_note_of_an_earlier_one(flushed):
    """The checkpoint has a recovery point and a start above the end of the first truncation."""
    machine = Machine("/data")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    for _ in range(4):
        append(log, 2)
    log.advance_start(4)
    flush(log, dirs)
    log.truncate_to(2)
    append(log, 2)
    log.roll(NOW)
    append(log, 2)
    append(log, 2)
    if flushed:
        machine.files.die()
        log = machine.start().logs[PARTITION]
        work = log.unflushed()
        work.run()
        log.mark_flushed(work)
    log.truncate_to(6)
    machine.files.die()
    log = machine.start().logs[PARTITION]
    assert [row[:2] for row in stored(log)] == [(2, 3), (4, 5)], "the old start hides nothing"
    machine.cut_power()
    dirs = machine.start()
    log = dirs.logs[PARTITION]
    assert [row[:2] for row in stored(log)] == ([(2, 3), (4, 5)] if flushed else [])
    assert log.log_end_offset == (6 if flushed else 2), "what was not flushed is gone without a gap"
    for _ in range(2):
        append(log)
        flush(log, dirs)
    assert not machine.files.exists(f"{log.directory}/{LIMIT}"), "the checkpoint is right"


@pytest.mark.parametrize("power", [False, True])
def test_a_note_that_outlives_the_next_checkpoint_does_not_take_back_a_deleted_start(power):
    """Its removal waits for a flush, and a power cut may undo the removal."""
    machine = Machine("/data")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    for _ in range(2):
        append(log, 4)
    flush(log, dirs)
    log.truncate_to(4)
    append(log, 4)
    work = log.unflushed()
    work.run()
    log.mark_flushed(work)
    dirs.checkpoint({})()
    log.advance_start(8)
    dirs.checkpoint({})()
    assert log.durable_start == 8
    assert machine.files.exists(f"{log.directory}/{LIMIT}")
    machine.cut_power() if power else machine.files.die()
    dirs = machine.start()
    log = dirs.logs[PARTITION]
    assert (log.log_start_offset, log.log_end_offset) == (8, 8)
    append(log, 4)
    flush(log, dirs)
    log.truncate_to(10)
    machine.files.die()
    assert machine.start().logs[PARTITION].log_end_offset == 8, "a later note counts again"


def copied(machine, dirs, log):
    """A complete and marked copy of a log in the other log dir."""
    target = next(row for row in dirs.dirs if row is not dirs.dir_of(PARTITION))
    future = dirs.futures.create(log, target, NOW)
    while future.log.log_end_offset < log.log_end_offset:
        future.append(stored(log, start=future.log.log_end_offset)[0][2], NOW)
    future.mark(machine.files, log.log_start_offset)
    return target


def test_a_copy_that_a_start_takes_for_the_log_stays_the_log():
    """Only the copy was ever synced: the first power cut takes the log, the second the new name."""
    machine = Machine("/data", "/data2")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, 2)
    copied(machine, dirs, log)
    for _ in range(3):
        machine.cut_power()
        assert [row[:2] for row in stored(machine.start().logs[PARTITION])] == [(0, 1)]


def test_a_moved_log_knows_its_start_before_a_checkpoint_has_it():
    machine = Machine("/data", "/data2")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, 2)
    append(log, 2)
    log.advance_start(2)
    flush(log, dirs)
    target = copied(machine, dirs, log)
    moved, former = dirs.replace_by_future(PARTITION)
    target.sync_renames()
    former.free_name()
    machine.cut_power()
    dirs = machine.start()
    moved = dirs.logs[PARTITION]
    assert (moved.directory, moved.log_start_offset) == (f"{target.path}/topic-0", 2)
    append(moved)
    flush(moved, dirs)
    append(moved)
    flush(moved, dirs)
    assert not machine.files.exists(f"{moved.directory}/{START}"), "the checkpoint has it"


def moved(machine, dirs, log):
    """The log after a move to the other log dir, and the retirement of the former one."""
    target = copied(machine, dirs, log)
    new, former = dirs.replace_by_future(PARTITION)
    target.sync_renames()
    former.free_name()
    dirs.name_freed(PARTITION, former)
    return new


def test_a_log_that_moves_away_and_back_is_not_taken_for_what_it_was_before():
    """The checkpoint still has the recovery point and the start of the log's first stay."""
    machine = Machine("/data", "/data2")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, 2)
    append(log, 2)
    log.advance_start(4)
    flush(log, dirs)
    log = moved(machine, dirs, log)
    log.truncate_to(2)
    log = moved(machine, dirs, log)
    assert log.directory == "/data/topic-0"
    machine.files.die()
    log = machine.start().logs[PARTITION]
    assert (log.failure, log.log_start_offset, log.log_end_offset) == (None, 2, 2)


def test_a_moved_log_forgets_its_start_when_it_is_truncated_below():
    machine = Machine("/data", "/data2")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    for _ in range(3):
        append(log, 2)
    log.advance_start(4)
    flush(log, dirs)
    log = moved(machine, dirs, log)
    log.truncate_to(2)
    append(log, 4)
    machine.files.die()
    log = machine.start().logs[PARTITION]
    assert (log.log_start_offset, log.log_end_offset) == (2, 6)
    log.truncate_to(0)
    append(log, 6)
    machine.files.die()
    assert machine.start().logs[PARTITION].log_start_offset == 0


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_replica_that_is_removed_and_added_again_is_not_taken_for_the_old_one(checkpointing):
    """The checkpoint still has the recovery point of the removed log, which had the same topic id."""
    machine = Machine("/data")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, 4)
    if not checkpointing:
        flush(log, dirs)
    else:
        work = log.unflushed()
        work.run()
        log.mark_flushed(work)
    write = dirs.checkpoint({})
    retirement = dirs.delete(PARTITION)
    retirement.free_name()
    dirs.name_freed(PARTITION, retirement)
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, 2)
    if checkpointing:
        write()
    machine.files.die()
    dirs = machine.start()
    log = dirs.logs[PARTITION]
    assert (log.failure, log.log_end_offset) == (None, 2)
    flush(log, dirs)
    append(log)
    flush(log, dirs)
    assert not machine.files.exists(f"{log.directory}/{LIMIT}"), "the checkpoint is right"


OTHER_ID = bytes(16 * [7])


def created_again(machine):
    """A log of a topic whose name an earlier one had: that one starts at 3 in the checkpoint."""
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, 4)
    log.advance_start(3)
    flush(log, dirs)
    retirement = dirs.delete(PARTITION)
    retirement.free_name()
    dirs.name_freed(PARTITION, retirement)
    log = dirs.create(PARTITION, OTHER_ID, SETTINGS, NOW)
    append(log, 2)
    append(log, 4)
    return dirs, log


def test_a_topic_that_is_created_again_does_not_start_where_the_earlier_one_did():
    """Its id is synced with the first flush. Without it, the checkpoint's row could be its own."""
    machine = Machine("/data")
    created_again(machine)
    without_id = 0
    for seed in range(60):
        image = Machine("/data")
        image.disk = machine.disk.copy()
        image.disk.lose_power(stream(seed, "cut"))
        log = image.start().logs.get(PARTITION)
        if log is not None:
            assert (log.failure, log.log_start_offset) == (None, 0)
            without_id += log.topic_id == ZERO_UUID and log.log_end_offset > 0
    assert without_id


def test_a_topic_that_is_created_again_and_loses_its_id_keeps_its_own_start():
    machine = Machine("/data")
    dirs, log = created_again(machine)
    metadata = f"{log.directory}/{METADATA}"
    for start in (0, 2):
        log.advance_start(start)
        if start:
            flush(log, dirs)
            assert machine.files.exists(f"{log.directory}/{LIMIT}"), "the removal waits for a flush"
        image = Machine("/data")
        image.disk = machine.disk.copy()
        image.disk.find(metadata).data[30] ^= 1
        loaded = image.start().logs[PARTITION]
        assert (loaded.topic_id, loaded.failure) == (ZERO_UUID, None)
        assert (loaded.log_start_offset, loaded.log_end_offset) == (start, 6)


def test_a_note_torn_by_a_power_cut_counts_once():
    """A later power cut may undo its removal, after an acknowledged DeleteRecords."""
    machine = Machine("/data")
    _, log = created_again(machine)
    note = f"{log.directory}/{LIMIT}"
    machine.disk.sync_all()
    machine.disk.find(note).data[:] = machine.disk.find(note).durable[:] = b""
    machine.files.die()
    dirs = machine.start()
    log = dirs.logs[PARTITION]
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    for _ in range(2):
        append(log)
        flush(log, dirs)
    assert not machine.files.exists(note), "the checkpoint knows the note"
    log.advance_start(6)
    dirs.checkpoint({})()
    assert log.durable_start == 6
    machine.cut_power()
    dirs = machine.start()
    assert dirs.logs[PARTITION].log_start_offset == 6


def test_a_topic_deleted_during_the_end_of_a_move_frees_its_name_in_both_log_dirs():
    machine = Machine("/data", "/data2")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, 2)
    flush(log, dirs)
    copied(machine, dirs, log)
    _, former = dirs.replace_by_future(PARTITION)
    retirement = dirs.delete(PARTITION)
    dirs.name_freed(PARTITION, former)
    assert PARTITION in dirs.retiring, "the other folder still has the name"
    retirement.free_name()
    dirs.name_freed(PARTITION, retirement)
    other = bytes(16 * [7])
    dirs.create(PARTITION, other, SETTINGS, NOW)
    machine.files.die()
    dirs = machine.start()
    dirs.choose(PARTITION, other)
    assert dirs.logs[PARTITION].topic_id == other


@pytest.mark.parametrize("flushed", [False, True])
def test_a_crash_in_a_truncation_of_all_segments_leaves_the_log_online(flushed):
    machine = Machine("/data")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, 4)
    log.truncate_fully(2)
    if flushed:
        append(log, 4)
    flush(log, dirs)
    machine.files.faults.crash_before = machine.files.operations + 8
    with pytest.raises(Crashed):
        log.truncate_fully(2)
    machine.faults.crash_before = None
    names = machine.disk.find(log.directory).entries
    assert not any(name.endswith(".log") for name in names)
    machine.files.die()
    log = machine.start().logs[PARTITION]
    assert (log.failure, log.log_start_offset, log.log_end_offset) == (None, 2, 2)


@pytest.mark.parametrize("rolls", [False, True])
def test_a_batch_whose_write_failed_does_not_come_back_in_place_of_a_later_one(rolls):
    """The disk may have the failed write, but neither the cut after it nor what was written then."""
    machine = Machine("/data")
    dirs = machine.start()
    log = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    append(log, value=bytes(10_000))
    flush(log, dirs)
    if rolls:
        log.configure(replace(SETTINGS, segment_bytes=log.size + 10))
    machine.faults.full, machine.faults.freed = True, 1  # enough for a new segment's name
    stage(log, batch(value=b"failed"))
    stage(log, batch(value=bytes(5_000)))
    with pytest.raises(OSError, match="no room"):
        log.write_staged()
    machine.faults.full = False
    append(log, value=b"later")
    ends = set()
    for seed in range(40):
        image = Machine("/data")
        image.disk = machine.disk.copy()
        image.disk.lose_power(stream(seed, "cut"))
        log = image.start().logs[PARTITION]
        assert not any(b"failed" in data for _, _, data in stored(log))
        ends.add(log.log_end_offset)
    assert ends == {1, 2}
