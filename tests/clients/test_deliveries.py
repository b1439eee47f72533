"""The examples of the three deliveries, killed at every step; and the two faults of auto commit."""

import json
import subprocess
import sys

import pytest

from headwater.testing import Broker
from tests.clients.broker_under_test import BrokerUnderTest
from tests.clients.kill_at_every_step import EXAMPLES, ORDERS

JOBS = {
    "at most once": ("at_most_once", "run"),
    "at least once": ("at_least_once", "run"),
    "exactly once": ("exactly_once", "run"),
    "auto commit, work at once": ("auto_commit", "run_inline"),
    "auto commit, gather first": ("auto_commit", "run_gathering"),
}
LOSES = {"at most once", "auto commit, gather first"}
REPEATS = {"at least once", "auto commit, work at once"}
MAY_REPEAT = {*REPEATS, "auto commit, gather first"}


@pytest.fixture(scope="module")
def orders():
    with Broker(subprocess=True) as broker:
        broker.create_topic("orders")
        BrokerUnderTest(broker.bootstrap).fill("orders", [b"order %d" % n for n in range(ORDERS)])
        yield broker.bootstrap


@pytest.fixture(scope="module")
def running(orders):
    """All jobs at once, since each of them waits most of the time."""
    command = [sys.executable, "-m", "tests.clients.kill_at_every_step"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = {
        job: subprocess.Popen([*command, *words, orders], **pipes) for job, words in JOBS.items()
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


@pytest.mark.parametrize("job", JOBS)
def test_a_job_killed_at_every_step_loses_and_repeats_what_it_may_and_no_more(running, job):
    found, problem = running[job].communicate()
    assert running[job].returncode == 0, problem
    *killed, unharmed = json.loads(found)
    assert len(killed) > 2 * ORDERS
    assert unharmed == [0, 0, 0]
    assert any(lost for _, lost, _ in killed) == (job in LOSES), killed
    repeats = any(repeated for _, _, repeated in killed)
    assert (job in REPEATS) <= repeats <= (job in MAY_REPEAT), killed


def test_the_examples_run_as_their_first_lines_say(orders, tmp_path):
    for name in ("at_most_once", "at_least_once", "exactly_once", "auto_commit"):
        command = [sys.executable, EXAMPLES / f"{name}.py", orders, tmp_path / f"{name}.db"]
        done = subprocess.run([*command, "--group", name], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
