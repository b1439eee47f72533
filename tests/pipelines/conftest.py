"""One Spark session and one broker for all tests of the pipelines, and fresh topics on it."""

import itertools
import os
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from tools.class_archive import quick_java

import headwater
from headwater.testing import Broker
from tests.pipelines.connector_jars import official_connector_jars

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "log.message.timestamp.after.max.ms": str(2**62),
    "log.message.timestamp.before.max.ms": str(2**62),
    "log.retention.ms": "-1",  # tests write records of long ago
}

HERE = Path(__file__).parent
WORKER_LATE = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, a limit that cannot be configured."""
ATTEMPTS = 3
_repeated: list[str] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Repeat a test, fixtures included, that failed only because a busy machine was late for Spark."""
    if not item.path.is_relative_to(HERE):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(1, ATTEMPTS + 1):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        late = any(report.failed and WORKER_LATE in report.longreprtext for report in reports)
        if not late or attempt == ATTEMPTS:
            break
        _repeated.append(item.nodeid)
        item._initrequest()
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter):
    for test in _repeated:
        terminalreporter.write_line(f"repeated, Spark did not wait for a Python worker: {test}")


def pytest_collection_modifyitems(items):
    """Spark takes its time on a busy machine, and the first test of a file starts it."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", autouse=True)
def short_lived_java():
    """Every JVM from here on, those of child processes as well, is made to start quickly."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", quick_java())
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory, short_lived_java):
    """ONE local[2] session: starting Spark costs seconds, so that nobody starts another."""
    from headwater.pipelines.session import spark_session

    place = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "headwater-tests",
        master="local[2]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.local.dir": str(place / "local"),
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
            "spark.jars": ",".join(official_connector_jars()),
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker():
    """A broker in a process of its own, as every user has it."""
    with Broker(SETTINGS, subprocess=True) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(broker):
    return broker.bootstrap


@pytest.fixture(scope="session")
def producer(broker):
    """Sends to the broker of the suite."""
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as sender:
        yield sender


_numbers = itertools.count()


@pytest.fixture
def topic(broker):
    """Make a topic: `topic(partitions=3, configs={...})` gives the name of a fresh one."""

    def make(name: str = "topic", partitions: int = 1, configs=None) -> str:
        fresh = f"{name}-{os.getpid()}-{next(_numbers)}"
        broker.create_topic(fresh, partitions=partitions, configs=configs)
        return fresh

    return make


@pytest.fixture
def produce(producer):
    """Send values and wait: `produce(topic, [b"a", "b"], key=..., partition=0, headers=...)`."""

    def send(topic, values, *, key=None, **where):
        for value in values:
            data = value.encode() if isinstance(value, str) else value
            producer.send(topic, data, key=key, **where)
        producer.flush()

    return send
