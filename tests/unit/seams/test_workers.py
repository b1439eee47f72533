import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.seams.workers import IoThrottle, ProcessWorkers, WorkerDied
from tests.integration.waiting import until

ECHO = """
import os, sys
sys.path.insert(0, {path!r})
from headwater.seams.workers import serve_requests
def answers(line, rate):
    for at in range(int(line[-3:])):
        yield b"%d %d %d\\n" % (at, rate, os.getpriority(os.PRIO_PROCESS, 0))
serve_requests(answers)
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    (tmp_path / "echoing_worker.py").write_text(ECHO.format(path=str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = ProcessWorkers().start("echoing_worker")
    yield worker
    worker.end()


def test_a_worker_answers_one_request_after_the_other(worker):
    nice = os.getpriority(os.PRIO_PROCESS, 0) + 10
    for _ in range(2):
        worker.begin(b"0" * 200_000 + b"2\n", 500.0)
        answers = [worker.next_answer() for _ in range(3)]
        assert answers == [b"0 500 %d\n" % min(nice, 19), b"1 500 %d\n" % min(nice, 19), None]


def test_a_workers_session_yields_too(worker):
    """Where Linux shares the processor among sessions first, niceness within one changes little."""
    worker.begin(b"1\n", 500.0)
    worker.next_answer()
    group = Path(f"/proc/{worker.pid}/autogroup")
    assert not group.exists() or group.read_text().endswith(" nice 10\n")


def test_a_worker_that_is_killed_is_noticed(worker):
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="ended with code -9"):
        worker.next_answer()
    with pytest.raises(WorkerDied, match="ended with code -9"):
        worker.begin(b"1" * 1_000_000 + b"\n", 1.0)
    worker.end()


def test_a_worker_that_fails_is_noticed(worker, capfd):
    worker.begin(b"?\n", 1.0)
    with pytest.raises(WorkerDied, match="ended with code 1"):
        worker.next_answer()


def test_a_worker_ends_with_the_process_that_started_it(tmp_path):
    (tmp_path / "echoing_worker.py").write_text(ECHO.format(path=str(tmp_path)))
    code = (
        "from headwater.seams.workers import ProcessWorkers; import os, time\n"
        "worker = ProcessWorkers().start('echoing_worker')\n"
        "worker.begin(b'1\\n', 1.0); worker.next_answer()\n"
        "print(worker.pid, flush=True); time.sleep(600)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env)
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not is_alive(pid), "the worker to end")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_throttle_keeps_the_average_below_the_rate():
    now, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    throttle = IoThrottle(1000.0, lambda: now[0], sleep)
    for _ in range(100):
        throttle.passed(100)
    assert 9.5 <= now[0] - 100.0 <= 10.1
    # A pause is not saved up for later.
    now[0] += 60
    before = now[0]
    for _ in range(100):
        throttle.passed(100)
    assert now[0] - before >= 9.5
    unlimited = IoThrottle(1.7976931348623157e308, lambda: now[0], sleep)
    count = len(slept)
    unlimited.passed(1 << 40)
    assert len(slept) == count
