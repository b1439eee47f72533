"""What `headwater collect` says before it needs a broker."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headwater.cli.app import command
from headwater.cli.collect import _require_files
from headwater.collect.file_positions import FilePositions
from headwater.collect.line_reader import FilePosition
from headwater.seams.files import OsFiles


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("http",), "name one TOPIC"),
        (("http", "--topic", "t", "--rate", "0"), "0.0 is not in the range"),
        (("tail", "--topic", "t"), "Missing argument 'TOPIC FILE...'"),
        (("tail", "f", "--topic", "t", "--key-regex", "x"), "--key-regex goes with --format lines"),
        (("tail", "f", "--topic", "t", "--format", "lines", "--key", "x"), "--key goes with"),
        (
            ("tail", "f", "--topic", "t", "--format", "lines", "--key-regex", "("),
            "--key-regex: missing )",
        ),
    ],
)
def test_words_that_do_not_fit_are_a_usage_error(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(command, ("collect", *words))
    assert result.exit_code == 2
    assert said in result.output


NO_BROKER = {**os.environ, "HEADWATER_BOOTSTRAP": "127.0.0.1:1"}


@pytest.mark.parametrize("words", [("http", "--port", "0"), ("tail", "no.log")])
def test_acknowledgements_cannot_be_switched_off(words: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater", "collect", *words, "--topic", "t", "-o", "acks=0"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=NO_BROKER, check=False
    )
    assert done.returncode == 1
    assert "Error: acks=0 gives no acknowledgement" in done.stderr


def test_once_refuses_a_file_that_is_not_there_and_was_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.log").write_text("")
    words = ("tail", "events", "there.log", "absent.log", "--bootstrap-server", "127.0.0.1:1")
    result = CliRunner().invoke(command, ["collect", *words, "--once"])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert f"Error: {tmp_path}/absent.log: no such file; " in result.stderr


def test_once_takes_a_file_that_was_renamed_after_it_was_read(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.log")
    positions = FilePositions(OsFiles(), str(tmp_path / "state"))
    positions.store({absent: FilePosition(1, 2, 3, 0, "")})
    _require_files([absent], positions)
    positions.close()


@pytest.mark.parametrize("more", [(), ("--once",)])
def test_what_is_not_a_log_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path, "a folder"), (tmp_path / "pipe", "not a regular file")):
        words = ("tail", "events", str(path), "--bootstrap-server", "127.0.0.1:1", *more)
        result = CliRunner().invoke(command, ["collect", *words])
        assert result.exit_code == 1
        assert f"Error: {path} is {kind}; name log files" in result.stderr
    assert not (tmp_path / "headwater-tail").exists()


def test_once_refuses_a_file_that_it_may_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed.log").write_text("")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    positions = FilePositions(OsFiles(), str(tmp_path / "state"))
    with pytest.raises(click.ClickException, match=r"closed\.log: no permission to read it"):
        _require_files([str(tmp_path / "closed.log")], positions)
    positions.close()
