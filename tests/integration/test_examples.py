"""The examples of decoupling and asynchronous work run, and show what they are for."""

import re
import subprocess
import sys
import threading
from pathlib import Path

from examples.asynchronous import __main__ as asynchronous

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


def test_a_request_waits_for_the_slow_step_only_without_a_topic():
    with Broker() as broker:
        said = run("asynchronous", "--bootstrap-server", broker.bootstrap)
    waiting, _, invoiced = map(float, re.findall(r"([\d.]+) ms", said))
    assert waiting >= 100
    assert invoiced >= 100


def test_a_request_answers_before_the_slow_step(monkeypatch):
    answered, customer = threading.Event(), asynchronous._customer

    def watched(port, times):
        ask = customer(port, times)

        def asked(path, order):
            took = ask(path, order)
            if order == b"order %d" % (asynchronous.REQUESTS - 1):
                answered.set()
            return took

        return asked

    def write_invoice(order):
        if order.startswith(b"order"):
            assert answered.wait(60), "no invoice is finished until all requests are answered"

    monkeypatch.setattr(asynchronous, "_customer", watched)
    monkeypatch.setattr(asynchronous, "write_invoice", write_invoice)
    with Broker() as broker:
        times = asynchronous.run(broker.bootstrap, "orders")
    assert len(times.invoiced_after) == len(times.answered) == asynchronous.REQUESTS
