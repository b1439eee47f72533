"""The examples of decoupling and asynchronous work do what they say."""

import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from examples.asynchronous.__main__ import INVOICE_S, REQUESTS
from examples.asynchronous.__main__ import run as run_asynchronous
from examples.decoupling.__main__ import JOINS_AFTER, ORDERS
from examples.decoupling.__main__ import run as run_decoupling

from headwater.testing import Broker

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def broker():
    with Broker(subprocess=True) as broker:
        yield broker


def test_a_group_that_joins_a_running_topic_gets_everything(broker):
    shipping, analytics = run_decoupling(broker.bootstrap, "decoupling")
    assert sorted(shipping.orders) == sorted(analytics.orders) == list(range(ORDERS))
    assert analytics.started_at >= JOINS_AFTER


def test_a_request_answers_before_the_slow_step(broker):
    times = run_asynchronous(broker.bootstrap, "asynchronous")
    assert min(times.waiting) >= INVOICE_S
    assert statistics.median(times.answered) < INVOICE_S / 2
    assert len(times.invoiced_after) == REQUESTS
    assert min(times.invoiced_after.values()) >= INVOICE_S


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("decoupling", r"analytics joined when \d+ were written and has 300, from order 0 on"),
        ("asynchronous", r"with a topic, a request took +[\d.]+ ms"),
    ],
)
def test_an_example_runs_by_itself_as_its_first_lines_say(name, said):
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.search(said, done.stdout)
