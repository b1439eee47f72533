"""Debian's Prometheus scrapes three brokers under load, and rules fire for real."""

import json
import re
import signal
import subprocess
import threading
import urllib.parse
import urllib.request
from contextlib import contextmanager

import pytest
from tools.free_ports import free_port

import headwater
from headwater.testing import Cluster
from tests.integration.prometheus_tools import FOLDER, RULES, installed, rules
from tests.integration.waiting import until

GROUP = "slow"
ONE, THREE = "one-replica", "three-replicas"


class Prometheus:
    """A server that scrapes and evaluates every second."""

    def __init__(self, folder, targets):
        self.port = free_port()
        self.log = folder / "prometheus.log"
        (folder / "alerts.yml").write_text(without_delays(RULES.read_text(encoding="utf-8")))
        text = (FOLDER / "prometheus.yml").read_text(encoding="utf-8").replace("15s", "1s")
        listed = re.compile(r"targets: .*")
        config = folder / "prometheus.yml"
        config.write_text(listed.sub(f"targets: {json.dumps(targets)}", text))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    installed("prometheus"),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )

    def ask(self, path, **parameters):
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        """The values of an expression now, with their labels."""
        rows = self.ask("query", query=expression)["result"]
        return [(row["metric"], float(row["value"][1])) for row in rows]

    def total(self, expression):
        return sum(value for _, value in self.query(expression))

    def firing(self):
        alerts = self.ask("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()


def without_delays(text):
    """The rules as they are, but they look back for ten seconds and fire at once."""
    return re.sub(r"\[\d+[mh]\]", "[10s]", re.sub(r"\n +for: \w+", "", text))


@pytest.fixture(scope="module")
def cluster():
    installed("prometheus")
    with Cluster(3, {"log.cleaner.backoff.ms": 1000, "replica.lag.time.max.ms": 3000}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def prometheus(cluster, tmp_path_factory):
    targets = [
        cluster.metrics_url(broker).removeprefix("http://").removesuffix("/metrics")
        for broker in cluster.broker_ids
    ]
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), targets)
    try:
        until(lambda: server.total('up{job="headwater"}') == 3, "three targets")
        yield server
    finally:
        server.stop()


@contextmanager
def load(cluster):
    """Records for as long as the block runs."""
    ended = threading.Event()

    def produce():
        with headwater.Producer(
            bootstrap_servers=cluster.bootstrap, delivery_timeout_ms=600_000
        ) as producer:
            while not ended.wait(0.02):
                for number in range(100):
                    producer.send(THREE, b"v" * 100, key=b"%d" % number)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def make_topics(cluster):
    """Two topics, and a group that has read nothing of them."""
    with headwater.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        single = headwater.NewTopic(ONE, 3, replication_factor=1)
        admin.create_topics([single, headwater.NewTopic(THREE, 3, replication_factor=3)])
        start = {(topic, partition): 0 for topic in (ONE, THREE) for partition in range(3)}
        admin.set_group_offsets(GROUP, start)
    with headwater.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for partition in range(3):
            for _ in range(2000):
                producer.send(ONE, b"v", partition=partition)


def test_a_cluster_under_load_is_scraped_and_its_faults_are_seen(cluster, prometheus):
    make_topics(cluster)
    with load(cluster):
        written = f'sum(rate(headwater_topic_bytes_total{{topic="{THREE}",direction="in"}}[1m]))'
        until(lambda: prometheus.total(written) > 1000, "bytes that are written")
        until(lambda: prometheus.total("sum(headwater_active_controller)") == 1, "a controller")
        # Only one broker has each partition of the topic: the coordinator asks the others.
        lag = f'headwater_group_lag{{group="{GROUP}",topic="{ONE}"}}'
        until(lambda: prometheus.total(lag) == 6000, "the lag over partitions of all brokers")
        until(lambda: "HeadwaterLagGrows" in prometheus.firing(), "the alert for the lag")
        healthy = prometheus.firing()
        assert not healthy & {"HeadwaterBrokerDown", "HeadwaterOfflinePartitions"}
        for metric in ("headwater_request_seconds_count", "headwater_loop_delay_seconds_count"):
            assert prometheus.total(metric) > 0
        fallen = cluster.leader(ONE, 0)
        cluster.kill(fallen)
        awaited = {
            "HeadwaterBrokerDown",
            "HeadwaterOfflinePartitions",
            "HeadwaterUnderReplicated",
            "HeadwaterAtMinIsr",
        }
        until(lambda: awaited <= prometheus.firing(), "alerts for a broker that died")
        cluster.start_broker(fallen)
        until(lambda: not awaited & prometheus.firing(), "the end of the alerts")


def test_every_panel_and_rule_is_an_expression_that_prometheus_evaluates(cluster, prometheus):
    dashboard = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", "1m")
            prometheus.query(expression.replace("$job", "headwater"))
    evaluated = prometheus.ask("rules")["groups"]
    states = {rule["name"]: rule["health"] for group in evaluated for rule in group["rules"]}
    assert states.keys() == rules().keys()
    assert set(states.values()) <= {"ok", "unknown"}
