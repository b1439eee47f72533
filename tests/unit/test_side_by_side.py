"""Two commands at once: whole lines, the right exit code, a clear word for a slip."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools.side_by_side import split

ROOT = str(Path(__file__).parents[2])


def side_by_side(*words):
    return subprocess.run(
        [sys.executable, "-m", "tools.side_by_side", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def python(code):
    return [sys.executable, "-c", code]


def test_lines_stay_whole_and_carry_the_name():
    halves = "print('ha', end='', flush=True); import time; time.sleep(0.05); print('lf')"
    done = side_by_side("one", *python(halves), "--", "two", *python(halves))
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["one: half", "two: half"]


def test_they_run_at_the_same_time(tmp_path):
    """Each waits for a file that the other one makes."""
    meet = (
        "import pathlib, sys, time\n"
        "mine, theirs = map(pathlib.Path, sys.argv[1:])\n"
        "mine.touch()\n"
        "deadline = time.monotonic() + 60\n"
        "while not theirs.exists():\n"
        "    assert time.monotonic() < deadline\n"
    )
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    done = side_by_side("one", *python(meet), a, b, "--", "two", *python(meet), b, a)
    assert done.returncode == 0, done.stdout


def test_one_that_fails_fails_all_and_stops_nobody():
    bad = "import sys; print(*range(20), sep='\\n'); print('x' * 900); sys.exit(3)"
    done = side_by_side("bad", *python(bad), "--", "good", *python("print(1)"))
    assert done.returncode == 3
    assert "good: 1\n" in done.stdout
    assert done.stdout.splitlines()[-13:] == [
        "bad failed with exit code 3:",
        *(f"  {n}" for n in range(9, 20)),
        "  " + "x" * 300,
    ]


def test_failures_are_told_again_at_the_end():
    bad = "import sys; print('FAILED one', 'two', 'ERROR three', 'four', sep='\\n'); sys.exit(1)"
    done = side_by_side("bad", *python(bad))
    assert done.stdout.splitlines()[-3:] == [
        "bad failed with exit code 1:",
        "  FAILED one",
        "  ERROR three",
    ]


def test_what_goes_to_stderr_is_told_too():
    done = side_by_side("it", *python("import sys; print('oh', file=sys.stderr)"))
    assert done.stdout == "it: oh\n"


def test_a_name_without_a_command_is_a_slip():
    with pytest.raises(SystemExit, match="one has no command"):
        list(split(["one", "--", "two", "true"]))


FAILS_ONCE = """
import pathlib, sys
again = sys.argv[1:].count("second")
print("run", len(pathlib.Path("runs").read_text()) if pathlib.Path("runs").exists() else 0, again)
with open("runs", "a") as runs:
    runs.write("x")
if not again:
    print(*["FAILED late"] * int(sys.argv[1]), sep="\\n")
    sys.exit(1)
sys.exit(int(sys.argv[2]))
"""


def test_few_failures_are_tried_again_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ROOT)
    done = side_by_side("--again", "second", "it", *python(FAILS_ONCE), "1", "0")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-4:] == [
        "it runs once more, alone",
        "it: run 1 1",
        "it passed only when it ran alone:",
        "  FAILED late",
    ]


@pytest.mark.parametrize(
    ("failures", "second", "runs"), [("1", "2", "xx"), ("4", "0", "x"), ("0", "0", "x")]
)
def test_what_fails_twice_or_in_many_places_has_failed(
    tmp_path, monkeypatch, failures, second, runs
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ROOT)
    done = side_by_side("--again", "second", "it", *python(FAILS_ONCE), failures, second)
    assert done.returncode == 1, done.stdout
    assert (tmp_path / "runs").read_text() == runs
