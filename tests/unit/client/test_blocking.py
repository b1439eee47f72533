"""The loop thread that all blocking clients share."""

import asyncio
import subprocess
import sys
import threading

import pytest

import headwater
from headwater.client import blocking
from headwater.client.blocking import loop_thread
from headwater.client.consumer import blocking_poller
from headwater.client.errors import TimedOutError
from headwater.client.producer import blocking_send_waits


def test_there_is_one_loop_thread_for_all() -> None:
    assert loop_thread() is loop_thread()


def test_a_call_gives_what_the_work_gives() -> None:
    async def work() -> str:
        return threading.current_thread().name

    assert loop_thread().call(work(), 5) == "headwater-client"


def test_what_the_work_raises_reaches_the_caller() -> None:
    async def work() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        loop_thread().call(work(), 5)


def test_a_timeout_of_the_work_itself_keeps_its_words() -> None:
    async def work() -> None:
        raise TimedOutError("my own words")

    with pytest.raises(TimedOutError, match="my own words"):
        loop_thread().call(work(), 5)


def test_work_that_takes_too_long_is_cancelled() -> None:
    began, ended = threading.Event(), threading.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    with pytest.raises(TimedOutError, match=r"within 0\.01 s"):
        loop_thread().call(work(), 0.01)
    # On a busy machine the time may be over before the work begins: then it never does.
    assert ended.wait(60) if began.is_set() else not ended.is_set()


def test_a_call_from_the_loop_itself_is_refused() -> None:
    async def inner() -> None:
        raise AssertionError("never runs")

    async def work() -> None:
        loop_thread().call(inner(), 1)

    with pytest.raises(RuntimeError, match="would wait for itself"):
        loop_thread().call(work(), 5)


INTERRUPTED = """
import asyncio, os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
from headwater.client.blocking import loop_thread
ended = threading.Event()
async def work():
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        await asyncio.sleep(60)
    finally:
        ended.set()
try:
    loop_thread().call(work())
except KeyboardInterrupt:
    print("interrupted", ended.wait(60))
"""


def test_control_c_ends_the_wait_and_the_work() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["interrupted", "True"], done.stderr


UNCLOSED = """
import sys
import headwater
producer = headwater.Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
producer.send("t", b"left in the buffer")
"""


def test_a_producer_nobody_closed_sends_what_waits_at_exit(headwater_broker) -> None:
    headwater_broker.create_topic("t")
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED, headwater_broker.bootstrap],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    from tests.integration.reading import read_all

    assert [row[4] for row in read_all(headwater_broker, "t")[0]] == [b"left in the buffer"]


IMPORTED = """
import sys, headwater
assert "asyncio" not in sys.modules and "headwater.client" not in sys.modules
headwater.Producer
print(*[name for name in ("pyarrow", "rich", "click", "headwater.broker") if name in sys.modules])
"""


def test_names_are_imported_when_they_are_used_and_bring_nothing_they_do_not_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


class Faulty:
    """A client that cannot be ended in a child."""

    def forked(self) -> None:
        raise KeyError


class Sound:
    """A client that can."""

    told = 0

    def forked(self) -> None:
        self.told += 1


def test_in_a_forked_child_every_client_is_ended(monkeypatch) -> None:
    clients = [Sound(), Faulty(), Sound()]
    monkeypatch.setattr(blocking, "_clients", clients)
    monkeypatch.setattr(blocking, "_shared", None)
    monkeypatch.setattr(blocking, "_lock", threading.Lock())
    blocking._after_fork()
    assert [getattr(client, "told", None) for client in clients] == [1, None, 1]


@pytest.mark.parametrize("face", [headwater.Producer, headwater.Consumer])
def test_a_client_can_be_forked_while_it_is_made(face, monkeypatch) -> None:
    class ForkedError(Exception):
        """The child goes another way."""

    def fork(client) -> None:
        client.forked()
        raise ForkedError

    for room in (blocking_send_waits, blocking_poller):
        monkeypatch.setattr(room, "register", fork)
    with pytest.raises(ForkedError):
        face(bootstrap_servers="127.0.0.1:1")
