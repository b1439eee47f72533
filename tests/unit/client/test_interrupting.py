"""The harness that interrupts code between two instructions."""

import threading
from itertools import count

from tests.clients.interrupting import interrupt, moments


class Counter:
    def __init__(self) -> None:
        self.begun = self.ended = 0

    def work(self) -> None:
        self.begun += 1
        str(self.begun)
        self.ended += 1


def test_every_gap_between_two_calls_is_found() -> None:
    gaps = []
    for moment in count():
        counter = Counter()
        if not interrupt(counter.work, moment):
            break
        gaps.append((counter.begun, counter.ended))
    assert gaps[0] == (0, 0)
    assert (1, 0) in gaps


def test_a_lock_taken_by_two_calls_is_left_behind_and_one_taken_by_with_is_not() -> None:
    lock = threading.Lock()

    def with_calls() -> None:
        lock.acquire()
        try:
            str(1)
        finally:
            lock.release()

    def with_statement() -> int:
        with lock:
            str(1)
            return len(str(2))

    left = []
    for moment in moments(with_calls):
        if lock.locked():
            left.append(moment)
            lock.release()
    assert left
    assert not any(lock.locked() for _ in moments(with_statement))


def test_a_handler_runs_once_in_the_middle_of_the_work() -> None:
    counter, seen = Counter(), []
    for _ in moments(counter.work, lambda: seen.append(counter.begun - counter.ended)):
        assert counter.begun == counter.ended == len(seen)
    assert set(seen) == {0, 1}


def test_the_end_of_the_work_is_reported() -> None:
    assert not interrupt(Counter().work, 10_000)
