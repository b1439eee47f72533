"""Files into topics: rotations, restarts, kills, and a broker that comes and goes."""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from headwater.collect.events import EventRules
from headwater.collect.file_positions import FilePositions
from headwater.collect.file_tracker import FileTracker
from headwater.collect.line_formats import JsonLineFormat, PlainLineFormat
from headwater.collect.log_files import OsLogFiles
from headwater.collect.tail_loop import TailCollector, TailOptions
from headwater.seams.clock import SystemClock
from headwater.seams.files import OsFiles
from headwater.testing import Broker
from tests.integration.collector import PATIENCE_S, numbers, stored, tail_collector

QUICK = ("--rotate-wait", "0.1")


@pytest.fixture(scope="module")
def broker():
    with Broker({"auto.create.topics.enable": "false"}, subprocess=True) as broker:
        yield broker


class Writer:
    """A program that logs numbered events."""

    def __init__(self, path):
        self.path = path
        self.written = 0

    def write(self, count=1):
        with self.path.open("a") as file:
            for _ in range(count):
                file.write(json.dumps({"user_id": self.written % 7, "n": self.written}) + "\n")
                self.written += 1


@pytest.fixture
def writer(tmp_path):
    return Writer(tmp_path / "app.log")


def until_all(broker, topic, writer):
    limit = time.monotonic() + PATIENCE_S
    while len(set(numbers(broker, topic))) < writer.written:
        assert time.monotonic() < limit, "not all lines came"
        time.sleep(0.05)


def run_command(broker, topic, *words):
    """The command itself, to the end of the files."""
    command = [sys.executable, "-m", "headwater", "collect", "tail", *words, "--topic", topic]
    return subprocess.run(
        [*command, "--once", "--bootstrap-server", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def run_here(broker, topic, state, *paths, shape=None, from_end=False, rate=None):
    """The same in this process, which is quicker; what became of the lines."""
    positions = FilePositions(OsFiles(), str(state))
    followers = [
        FileTracker(
            str(path),
            OsLogFiles(),
            max_line=1000,
            position=positions.of(str(path)),
            from_end=from_end,
        )
        for path in paths
    ]
    options = TailOptions(topic, rate=rate, poll_s=0.01, once=True)
    shape = shape or JsonLineFormat(EventRules())
    settings = {"bootstrap_servers": broker.bootstrap}

    async def run():
        tailing = TailCollector(options, followers, positions, shape, SystemClock(), settings)
        await tailing.run(asyncio.Event())
        return tailing.counts

    try:
        return asyncio.run(run())
    finally:
        positions.close()


def test_lines_go_to_the_topic_once_over_rotations_and_restarts(broker, writer, tmp_path):
    broker.create_topic("app", partitions=3)
    state = ("--state", str(tmp_path / "state"))
    writer.write(100)
    with tail_collector(broker, "app", str(writer.path), *state, *QUICK) as tail:
        until_all(broker, "app", writer)
        writer.write(10)
        writer.path.rename(tmp_path / "app.log.1")
        writer.write(10)
        until_all(broker, "app", writer)
        writer.write(10)
        shutil.copyfile(writer.path, tmp_path / "app.log.2")
        os.truncate(writer.path, 0)
        writer.write(10)
        until_all(broker, "app", writer)
        tail.send_signal(signal.SIGTERM)
        assert tail.wait(PATIENCE_S) == 0
    writer.write(10)
    writer.path.rename(tmp_path / "app.log.3")
    writer.write(10)
    with tail_collector(broker, "app", str(writer.path), *state, *QUICK):
        until_all(broker, "app", writer)
    assert numbers(broker, "app") == list(range(writer.written))
    by_key = {}
    for key, value, _ in stored(broker, "app"):
        by_key.setdefault(key, []).append(json.loads(value)["n"])
    assert set(by_key) == {str(user).encode() for user in range(7)}
    assert all(rows == sorted(rows) for rows in by_key.values())


def test_no_line_is_lost_and_few_come_twice_when_collector_and_broker_are_killed(tmp_path):
    writer, chance = Writer(tmp_path / "app.log"), random.Random(1)
    with Broker(subprocess=True, data_dir=tmp_path / "broker") as broker:
        broker.create_topic("kills", partitions=2)
        state = ("--state", str(tmp_path / "state"))
        quick = (*QUICK, "-o", "reconnect.backoff.max.ms=50", "-o", "retry.backoff.max.ms=50")
        for kill in ("broker", "collector", "broker", "collector"):
            with tail_collector(broker, "kills", str(writer.path), *state, *quick) as tail:
                for _ in range(5):
                    writer.write(chance.randrange(400))
                    time.sleep(chance.random() / 50)
                if kill == "broker":
                    broker.kill()
                    writer.write(50)
                    broker.start()
                    until_all(broker, "kills", writer)
                else:
                    tail.kill()
        writer.write(5)
        assert "refused 0" in run_command(broker, "kills", str(writer.path), *state).stderr
        found = numbers(broker, "kills")
    assert set(found) == set(range(writer.written))
    repeated = len(found) - writer.written
    assert repeated <= 2 * 2000  # a kill repeats at most the round that it fell into


def test_what_is_refused_is_counted_and_sent_to_the_dead_letter_topic(broker, tmp_path):
    broker.create_topic("clean")
    broker.create_topic("dead")
    path = tmp_path / "app.log"
    path.write_bytes(b'{"user_id":1,"n":1}\nnonsense\n\n{"n":2}\n' + b"x" * 200 + b"\nlast")
    options = ("--dead-letter", "dead", "--max-event-bytes", "100", "--missing-key", "refuse")
    done = run_command(broker, "clean", str(path), "--state", str(tmp_path / "state"), *options)
    assert done.returncode == 0
    assert done.stderr.endswith("clean: sent 1, refused 4\n")
    assert [row[:2] for row in stored(broker, "clean")] == [(b"1", b'{"user_id":1,"n":1}')]
    dead = stored(broker, "dead")
    assert [value for _, value, _ in dead] == [b"nonsense", b'{"n":2}', b"x" * 100, b"last"]
    assert [headers["dead-letter.error-message"].decode()[:20] for _, _, headers in dead] == [
        "is not JSON at chara",
        "has no user_id",
        "is longer than 100 b",
        "is not JSON at chara",
    ]
    assert {headers["dead-letter.file"] for _, _, headers in dead} == {os.fsencode(path)}


def test_plain_lines_of_several_files_keep_their_bytes(broker, tmp_path):
    broker.create_topic("plain")
    paths = [tmp_path / "a", tmp_path / "b"]
    paths[0].write_bytes(b"user=anna \xff\n")
    paths[1].write_bytes(b"user=bert ok\r\nnobody\n")
    shape = PlainLineFormat(r"user=(\w+)", key_required=False)
    assert run_here(broker, "plain", tmp_path / "state", *paths, shape=shape).sent == 3
    assert run_here(broker, "plain", tmp_path / "state", *paths, shape=shape).sent == 0
    assert {row[:2] for row in stored(broker, "plain")} == {
        (b"anna", b"user=anna \xff"),
        (b"bert", b"user=bert ok"),
        (None, b"nobody"),
    }


def test_a_rate_is_held(broker, writer, tmp_path):
    broker.create_topic("slow")
    writer.write(60)
    started = time.monotonic()
    run_here(broker, "slow", tmp_path / "state", writer.path, rate=40)
    assert time.monotonic() - started > 0.5  # 40 at once, 20 at 40 a second
    assert numbers(broker, "slow") == list(range(60))


def test_from_the_end_only_new_lines_count_also_after_a_restart(broker, writer, tmp_path):
    broker.create_topic("new")
    writer.write(5)
    run_here(broker, "new", tmp_path / "state", writer.path, from_end=True)
    writer.write(3)
    run_here(broker, "new", tmp_path / "state", writer.path, from_end=True)
    assert numbers(broker, "new") == [5, 6, 7]


def test_problems_are_said_in_one_line(broker, writer, tmp_path):
    writer.write()
    state = tmp_path / "state"
    missing = run_command(
        *(broker, "nowhere", str(writer.path), "--state", str(state), "-o", "max.block.ms=500")
    )
    assert missing.returncode == 1
    assert "nowhere" in missing.stderr.splitlines()[-1]
    broker.create_topic("mine")
    with tail_collector(broker, "mine", str(writer.path), "--state", str(state)):
        second = run_command(broker, "mine", str(writer.path), "--state", str(state))
    assert second.stderr == (
        f"Error: another collector uses {state}: stop it, or choose another --state folder\n"
    )
