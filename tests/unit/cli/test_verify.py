import json
from pathlib import Path

from click.testing import CliRunner, Result

from headwater.cli.app import command
from headwater.log.truncation_note import write_start_note
from headwater.records.batch import assign
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.seams.files import OsFiles


def partition(data: Path, name: str, *offsets: int) -> Path:
    folder = data / name
    folder.mkdir()
    log = bytearray()
    for offset in offsets:
        batch = build_batch([Record(value=b"v")], now=1)
        assign(batch, offset, 0)
        log += batch
    (folder / f"{0:020}.log").write_bytes(log)
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return folder


def verify(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(command, ["log", "verify", str(folder), *options])


def test_every_partition_of_a_data_folder_is_checked(tmp_path: Path) -> None:
    partition(tmp_path, "a-0", 0, 1, 2)
    partition(tmp_path, "a-1", 0)
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    result = verify(tmp_path)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[:3] for row in rows[1:]] == [["a-0", "0", "3"], ["a-1", "0", "1"]]


def test_damage_is_named_and_exit_code_1(tmp_path: Path) -> None:
    folder = partition(tmp_path, "a-0", 0, 2)
    result = verify(folder)
    assert result.exit_code == 1
    assert "offset 2 where 1 must be" in result.stderr
    assert result.stderr.splitlines()[-1] == "Error: damaged partitions: a-0"
    assert verify(folder, "--compacted").exit_code == 0


def test_gaps_are_no_damage_below_what_the_cleaner_has_compacted(tmp_path: Path) -> None:
    partition(tmp_path, "a-0", 0, 2)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\na 0 3\n")
    result = verify(tmp_path)
    assert result.exit_code == 0, result.output
    assert verify(tmp_path / "a-0").exit_code == 0


def test_a_damaged_note_of_a_moved_start_is_named(tmp_path: Path) -> None:
    folder = partition(tmp_path, "a-0", 0, 1)
    write_start_note(OsFiles(), str(folder), 1)
    assert verify(tmp_path).exit_code == 0
    note = folder / "moved-log-start"
    note.write_bytes(b"2" + note.read_bytes()[1:])
    result = verify(tmp_path)
    assert result.exit_code == 1
    assert "moved-log-start is damaged; deleted records may be served again" in result.stderr


def test_json_carries_the_problems(tmp_path: Path) -> None:
    partition(tmp_path, "a-0", 0, 2)
    [verdict] = json.loads(verify(tmp_path, "--json").stdout)
    assert verdict["partition"] == "a-0"
    assert verdict["end_offset"] == 3
    assert len(verdict["problems"]) == 1


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    result = verify(tmp_path)
    assert result.exit_code == 1
    assert "has no partition with segments" in result.stderr
