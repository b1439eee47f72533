"""A broker as a process: what it loads, what it prints, how it ends."""

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from headwater.controller.store.znodes import BrokerEndpoint, BrokerNode
from headwater.testing import Broker
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from tests.integration.cut_proxy import CutProxy
from tests.integration.metadata_stores import StoreProcess
from tests.unit.broker.live import Client, batch, until

UNWANTED = {
    "rich",
    "starlette",
    "uvicorn",
    "pyspark",
    "pandas",
    "pyarrow",
    "kazoo",
    "cramjam",
    "lz4",
}
"""Start-up time and memory: none of these is needed before a client asks for it."""

LIST_MODULES = """
import sys
from headwater.broker import process
from headwater.cli import main

serve = process.run


def run(settings, on_ready):
    def ready(*addresses):
        on_ready(*addresses)
        print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})), flush=True)

    serve(settings, ready)


process.run = run
sys.argv = ["headwater", "up", "--port", "0", "--data-dir", sys.argv[1]]
main()
"""


def start(*arguments, code=None):
    command = ["-c", code] if code else ["-m", "headwater"]
    return subprocess.Popen(
        [sys.executable, *command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_running_broker_has_loaded_little(tmp_path):
    with start(tmp_path, code=LIST_MODULES) as process:
        assert "ready at" in process.stdout.readline()
        loaded = set(process.stdout.readline().split())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "headwater" in loaded
    assert not loaded & UNWANTED


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_one_line_when_ready_and_a_clean_end(tmp_path, signum):
    with start("up", "--port", "0", "--data-dir", tmp_path) as process:
        line = process.stdout.readline()
        assert line.startswith("headwater is ready at 127.0.0.1:")
        port = int(line.split()[4].rpartition(":")[2])
        with Client(port) as client:
            assert client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
            process.send_signal(signum)
            assert process.wait(60) == 0
        assert process.stdout.read() == "", "one line, no more"
        assert "Traceback" not in process.stderr.read()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def on_a_terminal(*arguments):
    """Start the command as the leader of a session with a terminal of its own."""
    master, slave = pty.openpty()
    launcher = ("env", "--default-signal=HUP", "setsid", "--ctty")  # tests may run under nohup
    process = subprocess.Popen(
        [*launcher, sys.executable, "-m", "headwater", *map(str, arguments)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    return process, master


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_closed_terminal_stops_brokers_cleanly(tmp_path, brokers):
    options = ("--brokers", brokers) if brokers > 1 else ()
    process, terminal = on_a_terminal("up", "--port", "0", "--data-dir", tmp_path, *options)
    shown = b""
    while b"ready at" not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    assert process.wait(60) in (0, 128 + signal.SIGHUP)
    assert len(list(tmp_path.rglob(".kafka_cleanshutdown"))) == brokers


def test_a_broker_that_waits_for_its_cluster_can_be_stopped(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = [f"zookeeper.connect={address}", "zookeeper.connection.timeout.ms=2000000000"]
        options = [text for setting in settings for text in ("-o", setting)]
        with start("up", "--port", "0", "--data-dir", tmp_path, *options) as process:
            silent.accept()[0].close()  # it has begun to wait
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
            assert process.stdout.read() == ""


@pytest.fixture
def link(tmp_path):
    """A way to a store that can be cut; an earlier run of broker 1 is registered there."""
    store = StoreProcess(str(tmp_path / "store"))
    earlier = KazooClient(store.address, timeout=60)
    earlier.start(timeout=60)
    node = BrokerNode(1, (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 1, "PLAINTEXT"),))
    earlier.create(BrokerNode.path(1), node.encode(), ephemeral=True, makepath=True)
    proxy = CutProxy(store.address)
    yield proxy, earlier
    proxy.close()
    earlier.stop()
    earlier.close()
    store.kill()


def starting(link, folder, lost):
    """Start broker 1, and cut its way to the store while it waits for its earlier run to end."""
    settings = {
        "node.id": "1",
        "zookeeper.connect": link.address,
        "zookeeper.session.timeout.ms": "3000",
        "zookeeper.connection.timeout.ms": "5000",
    }
    options = [text for one in settings.items() for text in ("-o", "=".join(one))]
    process = start("up", "--port", "0", "--data-dir", folder, *options)
    for line in process.stderr:
        lost.append(line)
        if "waiting for that session to end" in line:
            link.cut()
        if "the start lost its session" in line:
            return process
    raise AssertionError(lost)


def test_a_start_whose_session_expires_goes_on_in_a_new_one(tmp_path, link):
    proxy, earlier = link
    said = []
    with starting(proxy, tmp_path / "data", said) as process:
        assert f"with the metadata store at {proxy.address} and goes on in a new one" in said[-1]
        proxy.heal()
        earlier.stop()
        assert "ready at" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        said += process.stderr.read().splitlines()
    assert "Traceback" not in "".join(said)


def test_a_start_that_gets_no_new_session_ends_with_one_line(tmp_path, link):
    proxy, _ = link
    said = []
    with starting(proxy, tmp_path / "data", said) as process:
        assert process.wait(60) == 1
        said += process.stderr.read().splitlines()
    assert "Traceback" not in "".join(said)
    assert said[-1].startswith("Error: the start lost its session with the metadata store")
    assert f"zookeeper.connect={proxy.address} gave it another one within 5000 ms" in said[-1]


def test_the_line_as_json(tmp_path):
    with start("up", "--port", "0", "--data-dir", tmp_path, "--json") as process:
        told = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert told["address"].startswith("127.0.0.1:")
    assert told["data"] == [str(tmp_path)]


def test_a_stop_under_load_answers_or_forgets_but_never_lies(tmp_path):
    with Broker(data_dir=tmp_path, subprocess=True) as broker:
        broker.create_topic("t")
        with Client(broker.port) as client:
            acknowledged = 0
            for _ in range(50):
                assert client.produce("t", batch()).base_offset == acknowledged
                acknowledged += 1
        broker.restart()
        with Client(broker.port) as client:
            assert client.fetch("t").high_watermark == acknowledged


def test_a_clean_stop_makes_the_next_start_read_nothing(tmp_path):
    with Broker(data_dir=tmp_path, subprocess=True) as broker:
        broker.create_topic("t", 5)
        with Client(broker.port) as client:
            for partition in range(5):
                client.produce("t", batch(b"x" * 1000), partition=partition)
        broker.restart()
        told = (tmp_path / "broker.stderr").read_text()
    assert told.count("scanned 0 bytes") == 2


def test_a_folder_in_use_is_refused_in_one_line(tmp_path):
    with Broker(data_dir=tmp_path, subprocess=True):
        second = subprocess.run(
            [sys.executable, "-m", "headwater", "up", "--port", "0", "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert second.returncode == 1
    assert "in use by another broker" in second.stderr
    assert "Traceback" not in second.stderr


STARTS_A_BROKER = """
import time
from headwater.testing import Broker

with Broker(subprocess=True) as broker:
    print(broker.pid, broker.data_dir, flush=True)
    time.sleep(600)
"""


def test_a_broker_of_a_test_does_not_outlive_a_run_that_was_killed():
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_BROKER], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        pid, data_dir = run.stdout.readline().split()
        assert _runs(pid)
        run.kill()
    try:
        until(lambda: not _runs(pid), "the end of the broker")
    finally:
        shutil.rmtree(data_dir)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""  # a zombie has no command line
    except FileNotFoundError:
        return False
