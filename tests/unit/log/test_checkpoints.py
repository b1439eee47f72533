"""What a start believes of the checkpoints: rows of the same topic, in a file without a wrong bit."""

import pytest

from headwater.log import checkpoints, log_dir_checkpoints
from headwater.log.checkpoints import DamagedCheckpoint, LogRow, read_log_rows, write_log_rows
from headwater.model import ZERO_UUID, TopicPartition
from headwater.seams.files import OsFiles
from tests.unit.log.support import (
    NOW,
    PARTITION,
    SETTINGS,
    TOPIC_ID,
    append,
    created,
    flush,
    reopened,
    retired,
    stored,
)

OTHER_ID = bytes(range(1, 17))
ROWS = {
    PARTITION: LogRow(TOPIC_ID, 7, 3, 5),
    TopicPartition("a.b_c-d", 12): LogRow(ZERO_UUID, 0, 0, 0),
}


def again(dirs, records=3):
    """The same name for another topic, with some records that no checkpoint knows of."""
    retired(dirs.delete(PARTITION))
    log = dirs.create(PARTITION, OTHER_ID, SETTINGS, NOW)
    for _ in range(records):
        append(log, 2)
    return log


@pytest.fixture
def former(tmp_path):
    """A log that is flushed, and begins at 15 of 20."""
    dirs, log = created(tmp_path)
    for _ in range(10):
        append(log, 2)
    log.advance_start(15)
    flush(log, dirs)
    dirs.checkpoint({PARTITION: 20})()
    return dirs


def test_rows_come_back_as_they_were_written(tmp_path):
    path = str(tmp_path / "checkpoint")
    write_log_rows(OsFiles(), path, ROWS)
    assert read_log_rows(OsFiles(), path) == ROWS


def test_any_flipped_bit_and_any_cut_is_noticed(tmp_path):
    path = tmp_path / "checkpoint"
    write_log_rows(OsFiles(), str(path), ROWS)
    whole = path.read_bytes()
    damaged = [whole[:size] for size in range(len(whole))]
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DamagedCheckpoint):
            read_log_rows(OsFiles(), str(path))


def test_kafkas_files_keep_kafkas_form(former, tmp_path):
    for name, row in [
        (checkpoints.RECOVERY_POINTS, "topic 0 20"),
        (checkpoints.LOG_STARTS, "topic 0 15"),
        (checkpoints.HIGH_WATERMARKS, "topic 0 20"),
    ]:
        assert (tmp_path / name).read_text() == f"0\n1\n{row}\n"


def test_a_former_topics_log_start_and_high_watermark_never_stand_for_a_new_log(former, tmp_path):
    rows = stored(again(former))
    dirs, log = reopened(former, tmp_path)
    assert (log.log_start_offset, stored(log)) == (0, rows)
    assert dirs.high_watermarks[PARTITION] == 0


def test_a_former_topics_recovery_point_never_stands_for_a_new_log(former, tmp_path):
    rows = stored(again(former, records=12))
    path = tmp_path / "topic-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1])
    _, log = reopened(former, tmp_path)
    assert (log.failure, stored(log)) == (None, rows[:-1])


def test_a_checkpoint_begun_before_the_deletion_and_written_after_it_does_no_harm(former, tmp_path):
    late = former.checkpoint({PARTITION: 20})
    rows = stored(again(former))
    late()
    _, log = reopened(former, tmp_path)
    assert (log.failure, log.log_start_offset, stored(log)) == (None, 0, rows)


@pytest.mark.parametrize("lost", [[], ["partition.metadata"]])
def test_a_new_folder_that_lost_its_first_segment_begins_at_zero(former, tmp_path, lost):
    again(former, records=0)
    for name in ["00000000000000000000.log", *lost]:
        (tmp_path / "topic-0" / name).unlink()
    _, log = reopened(former, tmp_path)
    assert (log.failure, log.log_start_offset, log.log_end_offset) == (None, 0, 0)
    assert append(log, 1) == (0, 0)


def test_a_log_that_lost_its_id_keeps_its_start_but_no_mark_of_another_topic(former, tmp_path):
    (tmp_path / "topic-0" / "partition.metadata").unlink()
    dirs, log = reopened(former, tmp_path)
    assert (log.failure, log.log_start_offset, log.log_end_offset) == (None, 15, 20)
    assert dirs.high_watermarks[PARTITION] == 0


def test_without_our_file_kafkas_are_believed(former, tmp_path):
    (tmp_path / checkpoints.LOG_CHECKPOINT).unlink()
    dirs, log = reopened(former, tmp_path)
    assert (log.log_start_offset, log.recovery_point) == (15, 20)
    assert dirs.high_watermarks[PARTITION] == 20


def test_with_our_file_damaged_logs_are_checked_in_full_and_keep_their_start(former, tmp_path):
    (tmp_path / checkpoints.LOG_CHECKPOINT).write_bytes(b"1\n0\ncrc32c 00000000\n")
    dirs, log = reopened(former, tmp_path)
    assert (log.failure, log.log_start_offset, log.log_end_offset) == (None, 15, 20)
    assert dirs.recovered[PARTITION].scanned_bytes == log.size


def test_a_checkpoint_of_many_logs_is_collected_in_steps_and_leaves_out_deleted_ones(
    former, monkeypatch
):
    monkeypatch.setattr(log_dir_checkpoints, "LOGS_PER_STEP", 2)
    for number in range(1, 6):
        former.create(TopicPartition("topic", number), OTHER_ID, SETTINGS, NOW)
    checkpoint = former.next_checkpoint({PARTITION: 20}.get)
    steps = checkpoint.collect()
    next(steps)
    last = TopicPartition("topic", 5)
    retired(former.delete(last))
    assert len(list(steps)) == 2
    checkpoint.write()
    path = f"{former.dirs[0].path}/{checkpoints.LOG_CHECKPOINT}"
    rows = read_log_rows(OsFiles(), path)
    assert [at.partition for at in rows] == [0, 1, 2, 3, 4]
    assert rows[PARTITION].high_watermark == 20
