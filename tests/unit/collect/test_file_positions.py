"""Positions over restarts: whole, private, and never guessed."""

import json
from pathlib import Path

import pytest

from headwater.collect.file_positions import FilePositions, PositionsError
from headwater.collect.line_reader import FilePosition
from headwater.seams.files import OsFiles

HERE = FilePosition(1, 2, 300, 300, "abc")


def test_positions_are_found_again(tmp_path: Path) -> None:
    positions = FilePositions(OsFiles(), f"{tmp_path}/state")
    odd_name = b"/logs/\xff\xfe.log".decode(errors="surrogateescape")
    positions.store({"/logs/a": HERE, odd_name: HERE._replace(offset=7)})
    positions.store({"/logs/a": HERE._replace(offset=400)})
    positions.close()
    again = FilePositions(OsFiles(), f"{tmp_path}/state")
    assert again.of("/logs/a") == HERE._replace(offset=400)
    assert again.of(odd_name) == HERE._replace(offset=7)
    assert again.of("/logs/b") is None
    again.close()


def test_a_file_that_was_left_is_stored_as_such_and_older_positions_are_read(
    tmp_path: Path,
) -> None:
    positions = FilePositions(OsFiles(), str(tmp_path))
    positions.store({"/left": HERE._replace(left_ns=5), "/here": HERE})
    positions.close()
    stored = tmp_path / "positions.json"
    content = json.loads(stored.read_text())
    del content["files"]["/here"]["left_ns"]  # as written before there was such a thing
    stored.write_text(json.dumps(content))
    again = FilePositions(OsFiles(), str(tmp_path))
    assert again.of("/left") == HERE._replace(left_ns=5)
    assert again.of("/here") == HERE
    again.close()


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    positions = FilePositions(OsFiles(), str(tmp_path))
    positions.store({"/a": HERE})
    (tmp_path / "positions.json").unlink()
    positions.store({"/a": HERE})
    assert not (tmp_path / "positions.json").exists()
    positions.close()


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    first = FilePositions(OsFiles(), str(tmp_path))
    with pytest.raises(PositionsError, match="another collector uses"):
        FilePositions(OsFiles(), str(tmp_path))
    first.close()
    FilePositions(OsFiles(), str(tmp_path)).close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        ('{"version": 1, "files": {"/a": {"offset": 1}}}', "damaged"),
        ('{"version": 2, "files": {}}', "version 2"),
    ],
)
def test_what_cannot_be_read_is_said_and_leaves_no_lock(
    tmp_path: Path, content: str, reason: str
) -> None:
    (tmp_path / "positions.json").write_text(content)
    for _ in range(2):
        with pytest.raises(PositionsError, match=reason):
            FilePositions(OsFiles(), str(tmp_path))
