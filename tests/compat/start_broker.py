"""The broker that the suite talks to: ours, one that already runs, or Apache Kafka.

HEADWATER_COMPAT_PEER=apache          Apache Kafka 4.3.1 in a process of its own
HEADWATER_COMPAT_BOOTSTRAP=HOST:PORT  one that runs already (HEADWATER_COMPAT_LOG_DIR: its log folder)
neither                               `headwater up` in a process of its own
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.apache_kafka import ApacheKafka
from tools.process_guard import dismiss, kill_with_parent

from tests.compat.broker_under_test import BrokerUnderTest

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "3",
}
HEADWATER = [sys.executable, "-m", "headwater"]
_ADDRESS = re.compile(r"\b([\w.-]+:\d+)\b")


def peer() -> str:
    """Whose brokers the suite is asked to run on; empty for ours."""
    return os.environ.get("HEADWATER_COMPAT_PEER", "")


@contextmanager
def start_broker() -> Iterator[BrokerUnderTest]:
    """Starts the broker that the environment asks for, or uses a running one if it names its address."""
    if address := os.environ.get("HEADWATER_COMPAT_BOOTSTRAP"):
        folder = os.environ.get("HEADWATER_COMPAT_LOG_DIR")
        yield BrokerUnderTest(address, Path(folder) if folder else None, peer() == "apache")
    elif peer() == "apache":
        with ApacheKafka(SETTINGS) as kafka:
            yield BrokerUnderTest(kafka.bootstrap, kafka.log_dir, True)
    else:
        with tempfile.TemporaryDirectory(prefix="headwater-compat-") as folder:
            yield from _ours(Path(folder))


def _ours(folder: Path) -> Iterator[BrokerUnderTest]:
    """Headwater, and what must hold of it after all the clients: it lived, and its logs are whole."""
    data, output = folder / "data", folder / "output.txt"
    options = [word for key, value in SETTINGS.items() for word in ("-o", f"{key}={value}")]
    command = [*HEADWATER, "up", "--port", "0", "--data-dir", str(data), *options]
    with output.open("w") as errors:
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    guard = kill_with_parent(broker.pid, folder)
    try:
        assert broker.stdout is not None
        line = broker.stdout.readline()
        found = _ADDRESS.search(line)
        assert found, f"headwater up said {line!r}, then {output.read_text()}"
        yield BrokerUnderTest(found[1], data, False)
        assert broker.poll() is None, f"it ended:\n{output.read_text()[-4000:]}"
    finally:
        broker.send_signal(signal.SIGTERM)
        broker.communicate(timeout=60)
        dismiss(guard)
    assert_sound(data, output.read_text())


def assert_sound(data: Path, said: str) -> None:
    """What must hold of a broker that ended: it met nothing unforeseen, and its logs are whole."""
    assert "Traceback" not in said, said[said.index("Traceback") :][:4000]
    if not any(data.glob("*/*.log")):
        return
    verify = [*HEADWATER, "log", "verify", str(data)]
    checked = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout[-4000:] + checked.stderr[-4000:]
