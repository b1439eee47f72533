"""`headwater users` and the passwords that it takes."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater import Admin
from headwater.cli.app import command
from headwater.config.properties import read_properties
from tests.unit.broker.live import Live

WAIT_S = 30
AT_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Makes the terminal that of a new session, so that Ctrl-C is a signal there."""


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(command, words)
    assert result.exit_code == code, result.output
    return result.output


def test_a_user_made_later_is_added_to_a_running_broker_as_init_says(tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    init = ("security", "init", "--dir", str(folder), "--host", "127.0.0.1")
    assert "to a running cluster" not in run(*init)
    rows = read_properties(str(folder / "broker.properties"))
    settings = {name: row.value for name, row in rows.items() if "listeners" not in name}
    with Live(tmp_path / "data", settings | {"listeners": "SASL_SSL://127.0.0.1:0"}) as live:
        said = run(*init, "--user", "carl")
        (line,) = [
            one for one in said.splitlines() if one.startswith("add carl to a running cluster")
        ]
        typed = line.partition("headwater ")[2].split()
        assert "carl: added" in run(*typed, "--bootstrap-server", live.bootstrap)
        login = read_properties(str(folder / "users" / "carl.properties"))
        client = {name.replace(".", "_"): row.value for name, row in login.items()}
        with Admin(**client | {"bootstrap_servers": live.bootstrap}) as carl:
            assert list(carl.list_topics()) == []
        assert "to a running cluster" not in run(*init, "--user", "carl"), "nobody is new"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bootstrap.servers=127.0.0.1:9092\n", "has no password of ann in sasl.jaas.config"),
        ("sasl.jaas.config=x.ScramLoginModule required\n", "sasl.jaas.config cannot be read"),
        (
            'sasl.jaas.config=x.ScramLoginModule required username="bob" password="p";\n',
            "has no password of ann",
        ),
    ],
)
def test_settings_without_the_password_of_the_user(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "ann.properties"
    file.write_text(text)
    assert says in run("users", "add", "ann", "--password-file", str(file), code=2)


@pytest.mark.parametrize("verb", ["add", "set-password"])
def test_ctrl_c_ends_a_prompt_at_once(verb: str) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", AT_TERMINAL, "-m", "headwater", "users", verb, "ann"],
        stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name != "HEADWATER_PASSWORD"},
    ) as process:  # fmt: skip
        os.close(theirs)
        said = b""
        while b"Password of ann:" not in said:
            said += os.read(ours, 4096)
        os.write(ours, b"\x03")
        assert process.wait(WAIT_S) == 1
    os.close(ours)
