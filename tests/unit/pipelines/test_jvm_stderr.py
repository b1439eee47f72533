"""What of the JVM's standard error reaches the terminal."""

import pytest

from headwater.pipelines.jvm_stderr import _relay, log_after_run, run_ends, without_noise
from headwater.pipelines.running.guarded_writers import GuardedWriters
from headwater.pipelines.running.progress import RunProgress
from headwater.pipelines.running.queries import Queries

WORKER = """Traceback (most recent call last):
  File "site-packages/pyspark/daemon.py", line 266, in manager
    code = worker(sock, authenticated)
BrokenPipeError: [Errno 32] Broken pipe
"""
FLUSH = """PySpark daemon failed to flush the output to the worker process:
Traceback (most recent call last):
  File "site-packages/pyspark/daemon.py", line 95, in worker
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
"""
OURS = """Traceback (most recent call last):
  File "orders.py", line 3, in price
    return float(text)
ValueError: could not convert string to float: 'x'
"""


def shown(*parts: str) -> str:
    lines = "".join(parts).splitlines(keepends=True)
    return "".join(without_noise(iter(lines)))


def test_a_worker_whose_socket_was_closed_leaves_no_traceback():
    for noise in (WORKER, FLUSH):
        assert shown("before\n", noise, "after\n") == "before\nafter\n"


def test_tracebacks_of_workers_that_end_together_are_dropped_line_by_line():
    lines = [line for line in WORKER.splitlines(keepends=True) for _ in range(2)]
    head, rest = WORKER.split("\n", 1)
    for mixed in ("".join(lines), f"{head}\n{head}\n{rest}{rest}"):
        assert shown("before\n", mixed, "after\n") == "before\nafter\n"


def test_a_failure_mixed_with_a_closed_socket_is_shown():
    mixed = "".join(sum(zip(WORKER.splitlines(True), OURS.splitlines(True), strict=True), ()))
    assert shown(mixed, "after\n") == mixed + "after\n"


def test_the_note_about_the_incubator_module_is_dropped():
    assert shown("WARNING: Using incubator modules: jdk.incubator.vector\n", "next\n") == "next\n"


def test_every_other_traceback_passes_unchanged():
    pipe_of_the_user = WORKER.replace("pyspark/daemon.py", "orders.py")
    failed_worker = WORKER.replace("BrokenPipeError", "MemoryError")
    for kept in (OURS, pipe_of_the_user, failed_worker):
        assert shown("a\n", kept, WORKER, "b\n") == "a\n" + kept + "b\n"


def test_a_traceback_that_is_cut_off_is_not_swallowed():
    assert shown(OURS[:60]) == OURS[:60]
    long = OURS[:60] + "\n" + "  more\n" * 1000
    seen = without_noise(iter([*long.splitlines(keepends=True), "not reached\n"]))
    assert next(seen) == OURS.splitlines(keepends=True)[0]


@pytest.fixture
def log(tmp_path):
    yield tmp_path / "spark.log"
    log_after_run(None)


def test_all_lines_go_to_the_log_once_a_run_stops_its_queries(log, capsys):
    log.write_text("of Spark\n")
    log_after_run(log)
    _relay([b"before\n"])
    Queries(RunProgress(), GuardedWriters()).stop()
    _relay(line.encode() for line in OURS.splitlines(keepends=True))
    assert (capsys.readouterr().err, log.read_text()) == ("before\n", "of Spark\n" + OURS)
    log_after_run(log)
    _relay([b"the next run\n"])
    assert capsys.readouterr().err == "the next run\n"


def test_without_a_log_all_lines_reach_the_terminal(log, capsys):
    log_after_run(None)
    run_ends()
    _relay([b"line\n"])
    assert capsys.readouterr().err == "line\n"
