"""What `headwater collect` says before it needs a broker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.cli.app import command


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
