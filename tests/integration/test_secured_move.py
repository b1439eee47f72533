"""A running cluster becomes a secured one, broker by broker, as docs/security.md says it."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import headwater
from headwater.cli.security import command as security
from headwater.config.properties import read_properties
from headwater.processes.child import Child, broker_process, store_process
from headwater.processes.local_nodes import replicated, unused_port
from tests.integration.waiting import until

PATIENCE_S = 60
BROKERS = (1, 2, 3)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Moving:
    """Three brokers with the settings of `common`, which change from one restart to the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.common: dict[str, str] = {}
        self._store = store_process(folder / "store", unused_port())
        self._store.launch()
        self._zookeeper = self._store.wait_ready()
        self._ports = {broker: (unused_port(), unused_port()) for broker in BROKERS}
        self.brokers: dict[int, Child] = {}

    def bootstrap(self, listener: int) -> str:
        return ",".join(f"127.0.0.1:{ports[listener]}" for ports in self._ports.values())

    def start(self, broker: int, *protocols: str) -> None:
        both = zip(("PLAINTEXT", "SASL_SSL"), self._ports[broker], strict=True)
        open_at = ",".join(f"{name}://127.0.0.1:{port}" for name, port in both if name in protocols)
        self.brokers[broker] = broker_process(
            {
                **replicated(3),
                "broker.id": str(broker),
                "zookeeper.connect": self._zookeeper,
                "zookeeper.session.timeout.ms": "4000",
                "log.dirs": str(self.folder / f"broker-{broker}"),
                "metrics.listener": "",
                "listeners": open_at,
                **self.common,
            }
        )
        self.brokers[broker].launch()
        stalls = threading.Timer(PATIENCE_S, self.brokers[broker].kill)
        stalls.start()
        self.brokers[broker].wait_ready()
        stalls.cancel()

    def roll(self, *protocols: str, **client: str) -> None:
        """Restart one broker after the other with what the settings are now."""
        for broker in BROKERS:
            self.brokers[broker].stop()
            self.start(broker, *protocols)
            with headwater.Admin(**client) as admin:
                until(lambda: in_sync(admin), f"all replicas, after broker {broker} came back")

    def close(self) -> None:
        for child in (*self.brokers.values(), self._store):
            child.kill()


def in_sync(admin: headwater.Admin) -> bool:
    topic = admin.describe_topics(["orders"])["orders"]
    return all(len(one.isr) == len(BROKERS) for one in topic.partitions)


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    found = Moving(tmp_path)
    try:
        yield found
    finally:
        found.close()


@contextlib.contextmanager
def writing(**client: str) -> Iterator[None]:
    """Write numbers meanwhile; each of them is acknowledged, and read afterwards."""
    stopped, failures, written = threading.Event(), [], []

    def write() -> None:
        with headwater.Producer(delivery_timeout_ms=PATIENCE_S * 1000, **client) as producer:
            try:
                while not stopped.is_set():
                    producer.send("orders", b"%d" % len(written)).result(PATIENCE_S)
                    written.append(b"%d" % len(written))
            except Exception as failure:  # noqa: BLE001 - the test's thread must hear of it
                failures.append(failure)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        until(lambda: written or failures, "the first record")
        yield
    finally:
        stopped.set()
        thread.join(PATIENCE_S)
    assert failures == []
    with headwater.Consumer(auto_offset_reset="earliest", **client) as consumer:
        consumer.assign([("orders", 0)])
        read: list[bytes] = []
        until(lambda: read.extend(one.value for one in consumer.poll(1)) or read[-1:] == written[-1:],
              "what was written")  # fmt: skip
    assert set(read) >= set(written), "acknowledged records are gone"


def test_brokers_move_to_a_secured_listener_one_by_one_under_load(moving, tmp_path):
    clients = {"bootstrap_servers": moving.bootstrap(0)}
    for broker in BROKERS:
        moving.start(broker, "PLAINTEXT")
    with headwater.Admin(**clients) as admin:
        admin.create_topics([headwater.NewTopic("orders", 1, 3)])
    folder = tmp_path / "secure"
    made = ["init", "--dir", str(folder), "--host", "127.0.0.1", "--user", "alice"]
    assert CliRunner().invoke(security, made).exit_code == 0
    rows = read_properties(str(folder / "broker.properties"))
    moving.common = {
        key: row.value for key, row in rows.items() if key.startswith(("sasl.", "ssl."))
    }
    with writing(**clients):
        moving.roll("PLAINTEXT", "SASL_SSL", **clients)
        moving.common |= {
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:admin;User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "inter.broker.listener.name": "SASL_SSL",
        }
        moving.roll("PLAINTEXT", "SASL_SSL", **clients)
    alice, admin_file = secured(moving, folder, "alice"), folder / "users" / "admin.properties"
    typed(moving, admin_file, "acls", "allow-producer", "alice", "orders")
    typed(moving, admin_file, "acls", "allow-consumer", "alice", "orders", "readers")
    moving.common |= {"super.users": "User:admin"}
    del moving.common["allow.everyone.if.no.acl.found"]
    with writing(**alice):
        moving.roll("SASL_SSL", **secured(moving, folder, "admin"))


def secured(moving: Moving, folder: Path, user: str) -> dict[str, str]:
    rows = read_properties(str(folder / "users" / f"{user}.properties"))
    found = {name.replace(".", "_"): row.value for name, row in rows.items()}
    return {**found, "bootstrap_servers": moving.bootstrap(1)}


def typed(moving: Moving, config: Path, *words: str) -> None:
    line = [sys.executable, "-m", "headwater", "--config", str(config), *words]
    line += ["--bootstrap-server", moving.bootstrap(1)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
