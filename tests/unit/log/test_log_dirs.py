import json

import pytest

from headwater.errors import KafkaError
from headwater.log import checkpoints
from headwater.log.folders import read_checked_topic_id
from headwater.log.log_dir import LogDirError
from headwater.log.log_dir_checkpoints import CheckpointFailed
from headwater.log.log_dirs import BrokerIdentity, LogDirs
from headwater.log.settings import LogSettings
from headwater.model import ZERO_UUID, TopicPartition
from headwater.seams.files import OsFiles
from headwater.seams.randomness import SystemRandomness
from tests.unit.log.support import (
    NOW,
    PARTITION,
    SETTINGS,
    TOPIC_ID,
    append,
    created,
    flush,
    opened,
    reopened,
    retired,
    stored,
)


def dirs_at(*paths, node=1, cluster="cluster", files=None, boot=""):
    return LogDirs(
        files or OsFiles(),
        SystemRandomness(),
        [str(path) for path in paths],
        BrokerIdentity(node, cluster, boot),
    )


def kept_since(*paths, boot):
    dirs = dirs_at(*paths, boot=boot)
    dirs.open()
    dirs.load(lambda _: SETTINGS, NOW)
    dirs.abandon()
    return dirs.kept_since


def test_a_crash_loses_nothing_as_long_as_the_machine_runs(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    dirs = dirs_at(first, second, boot="monday")
    dirs.open()
    dirs.load(lambda _: SETTINGS, NOW)
    dirs.registered(7)()
    dirs.registered(9)()  # after a lost session
    dirs.abandon()
    assert kept_since(first, second, boot="monday") == 7
    assert kept_since(first, second, boot="tuesday") == -1
    assert kept_since(first, second, boot="") == -1
    assert kept_since(first, tmp_path / "new", boot="monday") == -1
    (second / "headwater-run").write_text("{")
    assert kept_since(first, second, boot="monday") == -1


def test_after_a_disk_failed_nothing_is_known_of_what_a_crash_left(tmp_path):
    dirs = dirs_at(tmp_path, boot="monday")
    dirs.open()
    dirs.registered(7)()
    dirs.fail(dirs.dirs[0], "broken")
    dirs.abandon()
    assert kept_since(tmp_path, boot="monday") == -1


def test_a_second_process_is_told_that_the_folder_is_in_use(tmp_path):
    opened(tmp_path)
    with pytest.raises(LogDirError, match="in use by another process"):
        dirs_at(tmp_path).open()


@pytest.mark.parametrize(
    ("node", "cluster", "text"),
    [(2, "cluster", "belongs to node 1"), (1, "other", "cluster cluster")],
)
def test_a_folder_of_another_node_or_cluster_is_refused(tmp_path, node, cluster, text):
    opened(tmp_path).close({})
    with pytest.raises(LogDirError, match=text):
        dirs_at(tmp_path, node=node, cluster=cluster).open()


def test_meta_properties_has_kafkas_keys(tmp_path):
    dirs = opened(tmp_path)
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert lines[:3] == ["version=1", "node.id=1", "cluster.id=cluster"]
    assert lines[3] == f"directory.id={dirs.dirs[0].directory_id}"
    assert len(dirs.dirs[0].directory_id) == 22


def test_a_damaged_meta_properties_is_named(tmp_path):
    opened(tmp_path).close({})
    (tmp_path / "meta.properties").write_bytes(b"\0\0\0")
    with pytest.raises(LogDirError, match=r"meta\.properties is damaged"):
        dirs_at(tmp_path).open()


def test_new_partitions_go_to_the_emptiest_folder(tmp_path):
    dirs = dirs_at(tmp_path / "a", tmp_path / "b")
    dirs.open()
    for number in range(6):
        dirs.create(TopicPartition("t", number), TOPIC_ID, SETTINGS, NOW)
    assert [log_dir.partitions for log_dir in dirs.dirs] == [3, 3]


def test_a_folder_that_cannot_be_made_is_offline_alone(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    dirs = dirs_at(tmp_path / "file" / "below", tmp_path / "good")
    dirs.open()
    dirs.load(lambda _: SETTINGS, NOW)
    assert [bool(log_dir.offline) for log_dir in dirs.dirs] == [True, False]
    assert dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW).directory.startswith(
        str(tmp_path / "good")
    )


def test_with_no_folder_left_the_start_fails_in_one_line(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LogDirError, match=r"none of log\.dirs can be used"):
        dirs_at(tmp_path / "file" / "below").open()


def test_a_failed_folder_takes_its_logs_offline_and_leaves_no_clean_marker(tmp_path):
    dirs, log = created(tmp_path)
    append(log)
    assert dirs.fail(dirs.dirs[0], "broken") == [PARTITION]
    assert log.failure == "broken"
    dirs.close({})
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


class UnmountedFiles(OsFiles):
    """The disk is gone after the first checkpoint file is written."""

    gone = False

    def rename(self, old, new):
        super().rename(old, new)
        self.gone = self.gone or new.endswith(checkpoints.LOG_CHECKPOINT)

    def device(self, path):
        return -1 if self.gone else super().device(path)


def test_a_disk_that_is_unmounted_during_a_checkpoint_leaves_an_empty_mount_point(tmp_path):
    """A start would take a folder with a checkpoint for the log dir."""
    dirs, log = created(tmp_path, files=UnmountedFiles())
    append(log)
    with pytest.raises(CheckpointFailed, match="another disk"):
        dirs.checkpoint({})()
    assert not [name for name in checkpoints.NAMES if (tmp_path / name).exists()]
    dirs.abandon()


class RecordedFiles(OsFiles):
    """Files that note which folders were synced and which names were replaced."""

    def __init__(self):
        self.done = []

    def sync_dir(self, path):
        self.done.append(path)
        super().sync_dir(path)

    def rename(self, old, new):
        self.done.append(new)
        super().rename(old, new)


def test_a_checkpoint_drops_the_rows_of_a_moved_log_after_its_rename_is_synced(tmp_path):
    """Otherwise a power cut takes the log back to where its start is not known any more."""
    files = RecordedFiles()
    dirs, log = created(tmp_path, files=files)
    append(log)
    dirs.dirs[0].note_rename()
    files.done.clear()
    dirs.checkpoint({})()
    assert files.done[0] == str(tmp_path)
    assert files.done[1].endswith(checkpoints.LOG_CHECKPOINT)


def test_topic_ids_ends_and_high_watermarks_survive_a_clean_stop(tmp_path):
    dirs, log = created(tmp_path)
    append(log, 3)
    dirs.registered(77)
    dirs.registered(78)
    dirs.close({PARTITION: 2})
    marker = json.loads((tmp_path / ".kafka_cleanshutdown").read_text())
    assert (marker["version"], marker["brokerEpoch"], marker["keptSince"]) == (0, 78, 77)
    assert (tmp_path / checkpoints.RECOVERY_POINTS).read_text() == "0\n1\ntopic 0 3\n"
    dirs = opened(tmp_path)
    log = dirs.logs[PARTITION]
    assert (log.topic_id, log.log_end_offset, log.recovery_point) == (TOPIC_ID, 3, 3)
    assert dirs.high_watermarks == {PARTITION: 2}
    assert dirs.recovered == {}
    assert dirs.kept_since == 77


def test_partition_metadata_has_kafkas_text(tmp_path):
    created(tmp_path)
    text = (tmp_path / "topic-0" / "partition.metadata").read_text()
    assert text.splitlines()[:2] == ["version: 0", "topic_id: AAECAwQFBgcICQoLDA0ODw"]


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_partition_metadata_of_kafka_is_read_but_nothing_vouches_for_it(tmp_path, end):
    (tmp_path / "partition.metadata").write_text(
        f"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw{end}"
    )
    assert read_checked_topic_id(OsFiles(), str(tmp_path)) == (TOPIC_ID, False)


def test_any_flipped_bit_in_a_partition_metadata_is_noticed(tmp_path):
    created(tmp_path)
    path = tmp_path / "topic-0" / "partition.metadata"
    whole = path.read_bytes()
    assert read_checked_topic_id(OsFiles(), str(path.parent)) == (TOPIC_ID, True)
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert read_checked_topic_id(OsFiles(), str(path.parent)) == (ZERO_UUID, False)


def test_a_damaged_partition_metadata_gives_no_id(tmp_path):
    dirs, _ = created(tmp_path)
    (tmp_path / "topic-0" / "partition.metadata").write_bytes(b"\0")
    _, log = reopened(dirs, tmp_path)
    assert log.topic_id == ZERO_UUID


def test_a_deleted_partition_is_renamed_and_removed_later_or_at_the_next_start(tmp_path):
    dirs, log = created(tmp_path)
    append(log)
    path = retired(dirs.delete(PARTITION))
    assert dirs.logs == {}
    assert path.startswith(str(tmp_path / "topic-0."))
    assert path.endswith("-delete")
    again = dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    assert again.log_end_offset == 0
    dirs, _ = reopened(dirs, tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.is_dir()) == ["topic-0"]
    dirs.remove(retired(dirs.delete(PARTITION)))
    assert not [entry for entry in tmp_path.iterdir() if entry.is_dir()]


def test_only_deleted_partitions_in_the_log_dirs_can_be_removed(tmp_path):
    dirs, log = created(tmp_path / "logs")
    outside = tmp_path / "x-delete"
    outside.mkdir()
    for path in (str(outside), log.directory, f"{log.directory}/../../x-delete"):
        with pytest.raises(ValueError, match="not the folder of a deleted partition"):
            dirs.remove(path)
    assert outside.exists()


@pytest.mark.parametrize("name", ["..", "a/b", "../up", "", "x" * 250, "a\0b"])
def test_a_topic_name_never_leaves_the_log_dirs(tmp_path, name):
    dirs = opened(tmp_path / "logs")
    with pytest.raises(ValueError, match="topic name"):
        dirs.create(TopicPartition(name, 0), TOPIC_ID, SETTINGS, NOW)
    assert [entry.name for entry in tmp_path.iterdir()] == ["logs"]


def test_a_stray_folder_is_kept_but_not_loaded(tmp_path):
    dirs, log = created(tmp_path)
    append(log)
    path = retired(dirs.set_aside(PARTITION))
    assert path.endswith("-stray")
    dirs.abandon()
    assert opened(tmp_path).logs == {}
    assert any(entry.name.endswith("-stray") for entry in tmp_path.iterdir())


def two_copies(tmp_path, old_id, new_id):
    """A dir that was away while the partition was made again in another one."""
    for name, topic_id, count in (("a", new_id, 2), ("b", old_id, 5)):
        dirs = opened(tmp_path / name)
        append(dirs.create(PARTITION, topic_id, SETTINGS, NOW), count)
        dirs.close({PARTITION: count})
    dirs = dirs_at(tmp_path / "a", tmp_path / "b")
    dirs.open()
    dirs.load(lambda _: SETTINGS, NOW)
    return dirs


@pytest.mark.parametrize("wanted_end", [2, 5])
def test_of_two_folders_of_a_partition_the_topics_own_is_kept(tmp_path, wanted_end):
    other = bytes(15) + b"\1"
    ids = (other, TOPIC_ID) if wanted_end == 2 else (TOPIC_ID, other)
    dirs = two_copies(tmp_path, *ids)
    dirs.choose(PARTITION, TOPIC_ID)
    assert dirs.logs[PARTITION].log_end_offset == wanted_end
    assert dirs.high_watermarks == {PARTITION: wanted_end}
    assert sum(log_dir.partitions for log_dir in dirs.dirs) == 1
    strays = [entry for entry in tmp_path.glob("*/*") if entry.name.endswith("-stray")]
    assert len(strays) == 1
    append(dirs.logs[PARTITION])
    dirs.close({})


def test_two_folders_with_the_topics_id_are_both_kept_and_none_is_served(tmp_path):
    dirs = two_copies(tmp_path, TOPIC_ID, TOPIC_ID)
    with pytest.raises(KafkaError, match=r"its log is in .*a/topic-0 and .*b/topic-0: keep"):
        dirs.choose(PARTITION, TOPIC_ID)
    assert sorted(entry.parent.name for entry in tmp_path.glob("*/topic-0")) == ["a", "b"]
    retired(dirs.delete(PARTITION))
    assert not list(tmp_path.glob("*/topic-0")), (
        "a new topic of the name finds no folder of this one"
    )


FOREIGN = ["lost+found", "topic-x", "topic-01", "please-do-not-delete", "topic-0.abc-delete"]


def test_foreign_folders_are_left_alone(tmp_path):
    for name in FOREIGN:
        (tmp_path / name / "inside").mkdir(parents=True)
    dirs = opened(tmp_path)
    assert dirs.logs == {}
    assert all((tmp_path / name / "inside").exists() for name in FOREIGN)
    with pytest.raises(ValueError, match="not the folder of a deleted partition"):
        dirs.remove(str(tmp_path / "please-do-not-delete"))


def test_a_deleted_partition_that_cannot_be_removed_is_a_warning(tmp_path, caplog):
    dirs, _ = created(tmp_path)
    folder = retired(dirs.delete(PARTITION))
    (tmp_path / folder / "inside").mkdir()
    dirs.abandon()
    assert opened(tmp_path).logs == {}
    assert f"{folder}, of a deleted topic, cannot be removed" in caplog.text


# -- a disk that is not there


def two_dirs(tmp_path):
    """Two folders, each with a partition; the ids that a broker would remember."""
    dirs = dirs_at(tmp_path / "a", tmp_path / "b")
    dirs.open()
    for number in range(2):
        append(dirs.create(TopicPartition("t", number), TOPIC_ID, SETTINGS, NOW))
    known = dirs.directory_ids
    dirs.close({})
    return known


def test_an_empty_folder_in_place_of_a_known_one_is_offline_and_stays_empty(tmp_path, caplog):
    known = two_dirs(tmp_path)
    (tmp_path / "b").rename(tmp_path / "disk")
    (tmp_path / "b" / "headwater-metadata").mkdir(parents=True)
    dirs = dirs_at(tmp_path / "a", tmp_path / "b")
    dirs.open(known)
    dirs.load(lambda _: SETTINGS, NOW)
    (missing,) = dirs.missing
    assert known[missing] == str(tmp_path / "b")
    assert f"log.dirs.abandoned={missing}" in caplog.text
    assert [bool(log_dir.offline) for log_dir in dirs.dirs] == [False, True]
    assert not (tmp_path / "b" / "meta.properties").exists()
    with pytest.raises(KafkaError, match="is missing"):
        dirs.refuse_to_replace()
    new = dirs.create(TopicPartition("new", 0), TOPIC_ID, SETTINGS, NOW)
    assert new.directory.startswith(str(tmp_path / "a"))


def test_a_folder_taken_out_of_log_dirs_is_missed(tmp_path):
    known = two_dirs(tmp_path)
    dirs = dirs_at(tmp_path / "a")
    dirs.open(known)
    assert list(dirs.missing.values()) == [str(tmp_path / "b")]
    with pytest.raises(KafkaError, match="is missing"):
        dirs.refuse_to_replace()


def test_another_folder_beside_the_known_ones_is_used(tmp_path):
    known = two_dirs(tmp_path)
    dirs = dirs_at(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    dirs.open(known)
    dirs.refuse_to_replace()
    assert len(dirs.directory_ids) == 3
    assert known.items() <= dirs.directory_ids.items()


def test_a_folder_that_moved_to_another_path_is_known_by_its_id(tmp_path):
    known = two_dirs(tmp_path)
    (tmp_path / "b").rename(tmp_path / "c")
    dirs = dirs_at(tmp_path / "a", tmp_path / "c")
    dirs.open(known)
    assert dirs.missing == {}


def test_a_lost_meta_properties_beside_data_is_written_again(tmp_path):
    known = two_dirs(tmp_path)
    (tmp_path / "b" / "meta.properties").unlink()
    dirs = dirs_at(tmp_path / "a", tmp_path / "b")
    dirs.open(known)
    assert (dirs.missing, dirs.directory_ids) == ({}, known)


def test_folders_on_one_disk_are_reported_once(tmp_path, caplog):
    dirs_at(tmp_path / "a", tmp_path / "b").open()
    both = f"{tmp_path / 'a'}, {tmp_path / 'b'}"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert both in caplog.text


def test_only_the_brokers_user_can_read_its_files(tmp_path):
    dirs, log = created(tmp_path / "data")
    append(log)
    dirs.close({})
    made = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert {path.stat().st_mode & 0o077 for path in made} == {0}


def test_a_moved_log_start_survives_a_restart(tmp_path):
    dirs, log = created(tmp_path)
    for _ in range(4):
        append(log, 2)
    log.advance_start(5)
    flush(log, dirs)
    _, log = reopened(dirs, tmp_path)
    assert log.log_start_offset == 5
    assert [row[:2] for row in stored(log)] == [(4, 5), (6, 7)]


def test_idle_partitions_hold_no_descriptor_and_busy_ones_a_bounded_number(tmp_path):
    dirs = opened(tmp_path, limit=8)
    logs = [dirs.create(TopicPartition("t", n), TOPIC_ID, SETTINGS, NOW) for n in range(30)]
    for log in logs:
        append(log)
    assert len(dirs._descriptors) == 8
    assert all(len(stored(log)) == 1 for log in logs)
    dirs.close({})
    assert len(opened(tmp_path)._descriptors) == 0


def test_old_snapshots_are_removed_once_the_checkpoint_has_passed_them(tmp_path):
    settings = LogSettings(segment_bytes=1_000)
    dirs, log = created(tmp_path, settings)
    for number in range(40):
        append(log, 1, producer=1, sequence=number)
        flush(log, dirs)
    bases = {segment.base_offset for segment in log.segments}
    kept = {int(path.stem) for path in (tmp_path / "topic-0").glob("*.snapshot")}
    assert kept - bases <= {38, 39, 40}
    assert 40 in kept


class _FailingOnce(OsFiles):
    fails = False

    def open(self, path, **how):
        if self.fails and path.endswith("partition.metadata.tmp"):
            self.fails = False
            raise OSError(24, "too many open files")
        return super().open(path, **how)


def test_a_log_that_could_not_be_created_gets_one_folder_in_the_end(tmp_path):
    files = _FailingOnce()
    paths = [tmp_path / "a", tmp_path / "b"]
    dirs = dirs_at(*paths, files=files)
    dirs.open()
    dirs.load(lambda _: SETTINGS, NOW)
    files.fails = True
    with pytest.raises(OSError, match="too many open files"):
        dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    dirs.create(TopicPartition("other", 0), TOPIC_ID, SETTINGS, NOW)
    dirs.create(PARTITION, TOPIC_ID, SETTINGS, NOW)
    name = f"{PARTITION.topic}-{PARTITION.partition}"
    assert [(path / name).exists() for path in paths].count(True) == 1
    dirs.close({})
