import os
import shutil
import struct

import pytest
from click.testing import CliRunner

from headwater.cli.app import command
from headwater.log.repair import repairs
from headwater.log.settings import LogSettings
from headwater.log.verify import verify_log
from headwater.seams.files import OsFiles
from tests.pages import shapes, shown_below
from tests.unit.log.compaction.support import end_transaction
from tests.unit.log.support import NOW, PARTITION, append, created, opened, stored

SETTINGS = LogSettings(segment_bytes=3_000, index_interval_bytes=300)


@pytest.fixture
def data(tmp_path):
    dirs, log = created(tmp_path, SETTINGS)
    append(log, 1, producer=7, sequence=0, transactional=True, now=900)
    end_transaction(log, 7, commit=False, now=900)
    for number in range(40):
        append(log, 2, leader=number // 25, producer=3, sequence=2 * number, now=1_000 + number)
    for _ in range(20):
        append(log, 2, leader=1)
    dirs.close({})
    return tmp_path


def run(*words):
    return CliRunner().invoke(command, ["log", *map(str, words)])


def flip(path, place=9):
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1
    path.write_bytes(content)


SUFFIXES = ["index", "timeindex", "txnindex", "checksums", "snapshot"]


@pytest.mark.parametrize("suffix", [*SUFFIXES, "leader-epoch-checkpoint"])
def test_a_damaged_file_is_named_and_repaired(data, suffix):
    folder = data / "topic-0"
    before = stored(opened_copy(data))
    path = folder / suffix if "-" in suffix else min(folder.glob(f"*.{suffix}"))
    flip(path)
    verdict = verify_log(str(folder))
    assert verdict.problems == verdict.repairable != []
    assert "headwater log repair" in run("verify", folder).stderr
    wanted = run("repair", folder, "--dry-run")
    assert wanted.exit_code == 0
    assert wanted.stdout.startswith("would ")
    assert verify_log(str(folder)).problems == verdict.problems
    assert run("repair", folder).exit_code == 0
    assert verify_log(str(folder)).problems == []
    assert stored(opened_copy(data)) == before


def opened_copy(data):
    copy = data.with_name(data.name + "-copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(data, copy)
    return opened(copy, SETTINGS).logs[PARTITION]


def test_missing_checksums_are_written_and_a_second_repair_has_nothing_to_do(data):
    folder = data / "topic-0"
    wanted = sorted(folder.glob("*.checksums"))[:-1]
    contents = [path.read_bytes() for path in wanted]
    for path in folder.glob("*.checksums"):
        path.unlink()
    assert verify_log(str(folder)).problems == []
    assert len(run("repair", data).stdout.splitlines()) == len(wanted)
    assert [path.read_bytes() for path in wanted] == contents
    again = run("repair", data)
    assert again.stdout == ""
    assert again.stderr == "nothing to repair\n"


def test_damaged_batches_are_reported_and_left_alone(data):
    folder = data / "topic-0"
    path = sorted(folder.glob("*.log"))[1]
    flip(path, 70)
    verdict, steps = repairs(OsFiles(), str(folder), gaps=False)
    assert steps == []
    assert any("wrong checksum at offset" in row for row in verdict.problems)
    assert any("differ from their checksum" in row for row in verdict.problems)
    result = run("repair", folder)
    assert result.exit_code == 1
    assert "cannot be repaired" in result.stderr
    assert run("verify", folder, "--quick").exit_code == 1


@pytest.mark.parametrize("case", ["beyond its end", "before its base"])
def test_a_segment_whose_offsets_another_contradicts_gets_no_checksums(tmp_path, case):
    """No CRC covers the base offset of a batch, and in a compacted log it is still in order."""
    dirs, log = created(tmp_path, LogSettings(cleanup_policy="compact"))
    for number in range(30):
        append(log)
        if number in {8, 18}:
            log.roll(NOW)
    dirs.close({})
    folder = tmp_path / "topic-0"
    for path in folder.glob("*.checksums"):
        path.unlink()
    sound, damaged = (folder / f"{base:020d}.log" for base in (0, 9))
    if case == "beyond its end":
        sound, damaged = damaged, sound
        move_batch(damaged, 8, 264)
    else:
        os.truncate(sound, sound.stat().st_size // 9 * 8)  # as if compaction had removed offset 8
        move_batch(damaged, 0, 8)
    verdict = verify_log(str(folder), gaps=True)
    assert verdict.damaged_segments == [int(damaged.stem)]
    assert not any(str(sound) in row for row in verdict.problems)
    assert run("repair", "--compacted", folder).exit_code == 1
    assert sound.with_suffix(".checksums").exists()
    assert not damaged.with_suffix(".checksums").exists()


def move_batch(path, rank, offset):
    content = bytearray(path.read_bytes())
    struct.pack_into(">q", content, len(content) * rank // content.count(b"value"), offset)
    path.write_bytes(content)


def test_the_page_about_damage_shows_what_is_printed(data):
    folder = data / "topic-0"
    flip(sorted(folder.glob("*.log"))[1], 70)
    flip(sorted(folder.glob("*.timeindex"))[2])
    for words in ("verify", "repair --dry-run", "repair"):
        verb, *options = words.split()
        printed = run(verb, data, *options).output.replace(str(data), "/var/lib/headwater")
        line = " ".join(["headwater log", verb, "/var/lib/headwater", *options])
        wanted = shapes(shown_below("docs/operations/damage.md", line))
        found = shapes(printed.replace("topic-0", "orders-0").splitlines())
        assert [one for one in wanted if one not in {*found, "..."}] == []
        assert len(wanted) == len(found) or wanted[-1] == "..."


def test_a_repair_is_refused_while_a_broker_runs(data):
    dirs = opened(data, SETTINGS)
    assert "a broker runs on" in run("repair", data).stderr
    assert "a broker runs on" in run("repair", data / "topic-0").stderr
    dirs.close({})
    assert run("repair", data).exit_code == 0


@pytest.mark.parametrize(
    "name", ["meta.properties", "headwater-log-checkpoint", ".kafka_cleanshutdown"]
)
def test_damaged_files_of_a_log_dir_are_named(data, name):
    assert run("verify", data).exit_code == 0
    flip(data / name, 25)
    result = run("verify", data)
    assert result.exit_code == 1
    assert name in result.stderr
