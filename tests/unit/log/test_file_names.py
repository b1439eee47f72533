import os

import pytest
from click.testing import CliRunner

from headwater.cli.app import command
from headwater.log.compaction.report import compaction_states
from headwater.log.file_names import offset_in, offsets_in
from headwater.log.settings import LogSettings
from headwater.pipelines.segments.files import find_segments
from headwater.seams.files import OsFiles
from tests.unit.log.support import PARTITION, append, created, opened, stored

SETTINGS = LogSettings(segment_bytes=1_500, index_interval_bytes=300)
ARABIC = "\u0660" * 19 + "\u0669"
FOREIGN = [
    "5",
    "9223372036854775807",
    "99999999999999999999",
    "09223372036854775808",
    ARABIC,
    "\uff10" * 20,
    "000000000000000000001",
    "-0000000000000000001",
    " 0000000000000000001",
    "0000000000_000000001",
    "x",
    "",
]


@pytest.mark.parametrize("stem", FOREIGN)
def test_only_an_offset_in_twenty_digits_is_a_name(stem):
    assert offset_in(stem + ".log", ".log") is None


def test_the_offsets_are_in_order_and_have_the_suffix():
    last = "09223372036854775807.log"
    assert offset_in(last, ".log") == (1 << 63) - 1
    names = [last, f"{12:020d}.log", f"{3:020d}.log", f"{4:020d}.index", f"{5:020d}", "x.log"]
    assert offsets_in(names, ".log") == [3, 12, (1 << 63) - 1]


@pytest.fixture
def data(tmp_path):
    dirs, log = created(tmp_path, SETTINGS)
    for number in range(40):
        append(log, 2, producer=3, sequence=2 * number)
    before = stored(log)
    dirs.close({})
    return tmp_path, before


@pytest.mark.parametrize("suffix", [".log", ".snapshot", ".checksums", ".txnindex", ".log.swap"])
@pytest.mark.parametrize("stem", FOREIGN)
def test_files_with_other_names_are_left_alone(data, stem, suffix):
    path, before = data
    folder = path / "topic-0"
    content = min(folder.glob("*.log")).read_bytes()
    (folder / f"{stem}{suffix}").write_bytes(content)
    for words in (["verify", path], ["verify", folder], ["repair", path]):
        result = CliRunner().invoke(command, ["log", *map(str, words)])
        assert (result.exit_code, result.exception) == (0, None)
    dirs = opened(path, SETTINGS)
    log = dirs.logs[PARTITION]
    assert log.failure is None
    assert stored(log) == before
    append(log, 2, producer=3, sequence=80)
    log.truncate_to(79)
    dirs.close({})
    dirs = opened(path, SETTINGS)
    assert stored(dirs.logs[PARTITION]) == before[:-1]
    dirs.abandon()
    assert (folder / f"{stem}{suffix}").read_bytes() == content


def test_tools_and_readers_of_files_see_the_segments_only(data):
    path, _ = data
    sizes = {one.path: one.size for one in find_segments(str(path))}
    before = compaction_states(OsFiles(), str(path))
    for stem in FOREIGN:
        (path / "topic-0" / f"{stem}.log").write_bytes(b"x" * 500)
    assert {one.path: one.size for one in find_segments(str(path))} == sizes
    assert compaction_states(OsFiles(), str(path)) == before


def test_a_folder_with_nothing_but_other_files_is_empty(tmp_path):
    os.makedirs(tmp_path / "topic-0")
    (tmp_path / "topic-0" / f"{ARABIC}.log").write_bytes(b"x")
    result = CliRunner().invoke(command, ["log", "verify", str(tmp_path)])
    assert "has no partition with segments" in result.stderr
    dirs = opened(tmp_path, SETTINGS)
    append(dirs.logs[PARTITION])
    dirs.close({})
