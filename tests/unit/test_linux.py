"""On another system than Linux, one sentence says so; nothing fails later with an AttributeError."""

import subprocess
import sys

import pytest

SAYS = "Headwater runs on Linux and this is darwin; use a Linux machine, a container or WSL 2"


def elsewhere(code):
    pretend = f"import sys; sys.platform = 'darwin'; {code}"
    return subprocess.run(
        [sys.executable, "-c", pretend], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin", "testing"])
def test_an_import_says_that_this_is_not_linux(name):
    done = elsewhere(f"from headwater import {name}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {SAYS}"


def test_the_command_says_it_in_one_line():
    done = elsewhere("sys.argv[1:] = ['up']; from headwater.cli import main; main()")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: {SAYS}\n")
