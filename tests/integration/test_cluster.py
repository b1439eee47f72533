"""Three brokers as processes: what a cluster keeps through kills, pauses, cuts and bad disks."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import headwater
from headwater.cli.app import command as headwater_command
from headwater.processes.child import NotStarted
from headwater.testing import Cluster
from tests.pages import shapes, shown_below

PATIENCE_S = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic with three replicas, all in sync."""
    name = re.sub(r"\W", "-", request.node.name)
    cluster.create_topic(name)
    cluster.wait_until_in_sync()
    return name


class Writer:
    """Sends numbers until it is stopped, and knows which were acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self._topic = topic
        self._stopped = threading.Event()
        self._producer = headwater.Producer(
            bootstrap_servers=bootstrap, delivery_timeout_ms=PATIENCE_S * 1000
        )
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            self._producer.send(self._topic, b"%d" % number).result(PATIENCE_S)
            self.acknowledged.append(number)

    def wait_for_progress(self, records: int = 20) -> None:
        goal = len(self.acknowledged) + records
        until(lambda: len(self.acknowledged) >= goal, "writes go on")

    def stop(self) -> list[int]:
        self._stopped.set()
        self._thread.join(PATIENCE_S)
        self._producer.close()
        return self.acknowledged


@contextlib.contextmanager
def writing(cluster: Cluster, topic: str) -> Iterator[Writer]:
    """Write meanwhile; afterwards the log has each acknowledged number once, in order."""
    writer = Writer(cluster.bootstrap, topic)
    try:
        writer.wait_for_progress()
        yield writer
    finally:
        acknowledged = writer.stop()
    assert values_of(cluster.bootstrap, topic) == acknowledged


def values_of(bootstrap: str, topic: str) -> list[int]:
    with headwater.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        end = consumer.end_offsets([(topic, 0)])[topic, 0]
        values: list[int] = []
        while consumer.position((topic, 0)) < end:
            values += [int(record.value) for record in consumer.poll(1)]
    return values


def until(holds: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s: {what}"
        time.sleep(0.02)


def test_a_killed_leader_loses_nothing_and_comes_back_in_sync(cluster: Cluster, topic: str) -> None:
    with writing(cluster, topic) as writer:
        first = cluster.leader(topic)
        cluster.kill(first)
        writer.wait_for_progress()
        assert cluster.leader(topic) != first
        cluster.start_broker(first)
        cluster.wait_until_in_sync()
        writer.wait_for_progress()


def test_all_brokers_killed_at_once_lose_nothing(cluster: Cluster, topic: str) -> None:
    with writing(cluster, topic) as writer:
        cluster.kill(*cluster.broker_ids)
        cluster.start_broker(*cluster.broker_ids)
        writer.wait_for_progress()
        cluster.wait_until_in_sync()


def test_a_paused_leader_is_replaced_and_its_late_writes_do_not_count(
    cluster: Cluster, topic: str
) -> None:
    with writing(cluster, topic) as writer:
        paused = cluster.leader(topic)
        cluster.pause(paused)
        try:
            until(lambda: cluster.leader(topic) != paused, "another broker leads")
        finally:
            cluster.resume(paused)
        writer.wait_for_progress()
        cluster.wait_until_in_sync()


def test_a_leader_cut_off_from_everything_acknowledges_nothing_it_will_lose(
    cluster: Cluster, topic: str
) -> None:
    with writing(cluster, topic) as writer:
        isolated = cluster.leader(topic)
        cluster.isolate(isolated)
        try:
            until(lambda: cluster.leader(topic) != isolated, "another broker leads")
        finally:
            cluster.heal()
        writer.wait_for_progress()
        cluster.wait_until_in_sync()


def test_a_broker_whose_disk_fails_gives_its_partitions_up(cluster: Cluster, topic: str) -> None:
    with writing(cluster, topic) as writer:
        broken = cluster.leader(topic)
        cluster.fail_disk(broken)
        until(lambda: not cluster.runs(broken), "a broker without a disk stops")
        writer.wait_for_progress()
        folder = cluster.data_dir / f"broker-{broken}"
        disk = folder.rename(cluster.data_dir / "disk")
        with pytest.raises(NotStarted, match=r"log\.dirs\.abandoned="):
            cluster.start_broker(broken)  # its disk is not mounted
        shutil.rmtree(folder)
        disk.rename(folder)
        cluster.start_broker(broken)
        cluster.wait_until_in_sync()


def test_the_last_in_sync_broker_that_lost_power_does_not_lead() -> None:
    """The replicas that left the in-sync set before it have every committed record (KIP-966)."""
    with Cluster(3) as cluster:
        cluster.create_topic("orders")
        cluster.wait_until_in_sync()
        _lose_power_of_the_last(cluster, "orders")


def _lose_power_of_the_last(cluster: Cluster, topic: str) -> None:
    with writing(cluster, topic):
        pass
    last = cluster.leader(topic)
    others = [one for one in cluster.broker_ids if one != last]
    with headwater.Admin(bootstrap_servers=cluster.address(last)) as admin:
        cluster.kill(*others)
        until(lambda: _in_sync(admin, topic) == [last], "the leader is alone in sync")
    acknowledged = values_of(cluster.address(last), topic)
    assert acknowledged
    cluster.kill(last)
    _lose_power(cluster.data_dir / f"broker-{last}")
    cluster.start_broker(*cluster.broker_ids)
    cluster.wait_until_in_sync()
    assert values_of(cluster.bootstrap, topic) == acknowledged


def _in_sync(admin: headwater.Admin, topic: str) -> list[int]:
    return list(admin.describe_topics([topic])[topic].partitions[0].isr)


def _lose_power(folder: Path) -> None:
    """What was not synced is gone, and the machine has another boot id."""
    for note in folder.rglob("headwater-run"):
        note.unlink()
    for segment in folder.rglob("*.log"):
        if segment.parent.name[-2:] == "-0":
            segment.write_bytes(b"")


def test_an_orderly_stop_hands_over_before_the_session_ends(cluster: Cluster, topic: str) -> None:
    with writing(cluster, topic) as writer:
        for broker_id in cluster.broker_ids:
            cluster.restart(broker_id)
            cluster.wait_until_in_sync()
            writer.wait_for_progress()


# -- the commands


def test_up_with_brokers_starts_its_store_again_and_more_brokers_on_the_same_data(
    tmp_path: Path,
) -> None:
    folders = tmp_path / "headwater-data" / "brokers"
    (folders / "2.bak").mkdir(parents=True)
    with _up(tmp_path, "--brokers", "2") as (process, bootstrap):
        (store,) = [pid for pid, words in _children(process.pid).items() if "store" in words]
        os.kill(store, signal.SIGKILL)
        for line in process.stderr:
            if line.startswith("the metadata store starts again"):
                break
        with headwater.Admin(
            bootstrap_servers=bootstrap, default_api_timeout_ms=2 * PATIENCE_S * 1000
        ) as admin:
            admin.create_topics(["orders"])
        with headwater.Producer(bootstrap_servers=bootstrap) as producer:
            producer.send("orders", b"1").result(PATIENCE_S)
        process.stderr.close()  # as at Ctrl-C of `headwater up --brokers 2 2>&1 | tee log`
        process.send_signal(signal.SIGINT)
        assert process.wait(2 * PATIENCE_S) == 0
    assert all((folders / broker / ".kafka_cleanshutdown").exists() for broker in ("1", "2"))
    with _up(tmp_path, "--brokers", "3") as (process, bootstrap):
        assert values_of(bootstrap, "orders") == [1]
        with headwater.Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics(["wider"])
            described = admin.describe_topics(["orders", "wider"])
        replicas = {name: sorted(one.partitions[0].replicas) for name, one in described.items()}
        assert replicas == {"orders": [1, 2], "wider": [1, 2, 3]}
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    stops = [line for line in said.splitlines() if line.endswith(" stopped")]
    assert stops == ["broker 1 stopped", "broker 2 stopped", "broker 3 stopped"]
    alone = subprocess.run(
        [sys.executable, "-m", "headwater", "up", "--port", "0"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert alone.returncode == 1
    assert "headwater-data holds the data of a cluster: start it with --brokers" in alone.stderr


def test_up_with_brokers_keeps_its_store_from_processes_without_the_login(tmp_path: Path) -> None:
    _init(tmp_path)
    for start in ("first", "second"):
        with _up(tmp_path, "--brokers", "1", "--config", "secure/broker.properties") as (
            process,
            _,
        ):
            said = next(line for line in process.stderr if line.startswith("metadata store at "))
            stranger = KazooClient(said.split()[3].rstrip(":"))
            stranger.start(PATIENCE_S)
            try:
                assert "controller" in stranger.get_children("/")
                for path in ("/controller", "/headwater_first_users", "/cluster"):
                    with pytest.raises(NoAuthError):
                        stranger.delete(path)
                with pytest.raises(NoAuthError):
                    stranger.create(f"/{start}")
                assert process.poll() is None
            finally:
                stranger.stop()
                stranger.close()
            process.send_signal(signal.SIGINT)
            _, rest = process.communicate(timeout=PATIENCE_S)
            assert "may change /" not in rest


def test_settings_of_the_listener_in_the_file_are_for_the_clients_of_all_brokers(
    tmp_path: Path,
) -> None:
    _init(tmp_path)
    file = tmp_path / "secure" / "broker.properties"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required user_carol=secret;"
    with file.open("a") as settings:
        settings.write(
            f"listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n"
            f"listener.name.sasl_ssl.plain.sasl.jaas.config={plain}\n"
        )
    login = {
        "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "carol",
        "sasl_password": "secret", "ssl_truststore_location": str(tmp_path / "secure" / "ca.pem"),
    }  # fmt: skip
    with _up(tmp_path, "--brokers", "2", "--config", str(file)) as (_, bootstrap):
        for address in bootstrap.split(","):
            with headwater.Admin(bootstrap_servers=address, **login) as admin:
                assert len(admin.describe_cluster().brokers) == 2


def test_a_key_store_that_only_clients_would_get_is_refused(tmp_path: Path) -> None:
    _init(tmp_path)
    file = tmp_path / "secure" / "broker.properties"
    own = "listener.name.sasl_ssl.ssl.keystore.location"
    file.write_text(file.read_text().replace("\nssl.keystore.location=", f"\n{own}="))
    options = ["--brokers", "2", "--port", "0", "--data-dir", str(tmp_path / "data")]
    refused = CliRunner().invoke(headwater_command, ["up", *options, "--config", str(file)])
    assert refused.exit_code == 2
    assert f"with --brokers, {own} is for clients alone" in refused.output
    assert "set ssl.keystore.location instead" in refused.output


def _init(folder: Path) -> None:
    made = CliRunner().invoke(
        headwater_command, ["security", "init", "--dir", str(folder / "secure")]
    )
    assert made.exit_code == 0, made.output


@contextlib.contextmanager
def _up(folder: Path, *options: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`headwater up` in this folder, with the addresses of its brokers once they are ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "up", "--port", "0", *options],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    guard = threading.Timer(6 * PATIENCE_S, process.kill)
    guard.start()
    try:
        line = process.stdout.readline()
        assert " ready at 127.0.0.1:" in line
        yield process, line.partition(" ready at ")[2].split()[0]
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def _children(parent: int) -> dict[int, list[str]]:
    """The command lines of the processes that `parent` started."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found[int(folder.name)] = (folder / "cmdline").read_text().split("\0")
    return found


def test_a_zookeeper_that_does_not_answer_is_named_in_one_line(tmp_path: Path) -> None:
    options = ["--zookeeper", "127.0.0.1:1", "-o", "zookeeper.connection.timeout.ms=500"]
    up = subprocess.run(
        [sys.executable, "-m", "headwater", "up", "--brokers", "2", "--port", "0", *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert up.returncode == 1
    assert "no server of zookeeper.connect=127.0.0.1:1 answered within 500 ms" in up.stderr
    demo = CliRunner().invoke(headwater_command, ["demo", "failover", "--zookeeper", "nonsense"])
    assert (demo.exit_code, "zookeeper cannot be 'nonsense'" in demo.stderr) == (1, True)


def test_the_failover_demo_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headwater", "demo", "failover"],
        cwd=tmp_path, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-2:]
    acknowledged, consumed = re.findall(r"[\d,]+", last[0])
    assert acknowledged == consumed
    assert last[1] == "lost 0   stored twice 0"
    printed = {*shapes(done.stdout.splitlines()), "..."}
    for page in ("README.md", "docs/operations/cluster.md"):
        assert set(shapes(shown_below(page, "headwater demo failover"))) <= printed
