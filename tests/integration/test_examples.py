"""The examples of decoupling and asynchronous work run, and show what they are for."""

import re
import subprocess
import sys
from pathlib import Path

from headwater.testing import Broker

ROOT = Path(__file__).parents[2]


def run(name, *options):
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_group_that_joins_a_running_topic_gets_everything():
    said = run("decoupling")
    assert "shipping was there from the start and has 300 of them" in said
    joined = re.search(r"joined when (\d+) were written and has 300, from order 0 on", said)
    assert 100 <= int(joined[1]) < 300


def test_a_request_answers_before_the_slow_step():
    with Broker() as broker:
        said = run("asynchronous", "--bootstrap-server", broker.bootstrap)
    waiting, answered, invoiced = map(float, re.findall(r"([\d.]+) ms", said))
    assert waiting >= 100
    assert answered < waiting / 2
    assert invoiced >= 100
