"""Broker and topic settings together: layers, precedence, checks."""

import os
import sys
from pathlib import Path

import pytest

from headwater.cli.up import settings_from
from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError, Key
from headwater.config.resolve import BROKER_SYNONYMS, ConfigSource, broker_rows, cluster_rows
from headwater.config.topic import TopicSettings

ALL_ROWS = [*TopicSettings.KEYS.values(), *BrokerSettings.KEYS.values()]


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.name)
def test_each_default_is_allowed_by_its_own_row_and_explained(row: Key) -> None:
    text = row.text(row.default)
    assert row.default is None or (text is not None and row.parse(text) == row.default)
    assert row.doc.endswith(".")


def test_each_broker_synonym_of_a_topic_key_exists() -> None:
    named = {name for row in TopicSettings.KEYS.values() for name in row.synonyms}
    named |= {name for group in BROKER_SYNONYMS for name in group}
    assert named <= BrokerSettings.KEYS.keys()


def test_defaults_need_no_file() -> None:
    settings = BrokerSettings.load()
    assert settings.node_id == settings.broker_id == 1
    assert settings.log_dirs == (os.path.abspath("headwater-data"),)
    assert settings.auto_create_topics_enable is False
    assert {
        row.name: getattr(settings.topic_defaults, row.attribute)
        for row in TopicSettings.KEYS.values()
    } == {row.name: row.default for row in TopicSettings.KEYS.values()}


def test_log_dirs_do_not_depend_on_where_the_broker_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = BrokerSettings.load(None, {"log.dirs": "a,b/../c/,/d"})
    assert settings.log_dirs == (f"{tmp_path}/a", f"{tmp_path}/c", "/d")


def test_the_command_line_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nlog.dir=/from/file\nbroker.id=7\n")
    settings = BrokerSettings.load(str(file), {"num.partitions": "5"})
    assert settings.num_partitions == 5
    assert settings.log_dirs == ("/from/file",)
    assert settings.node_id == settings.broker_id == 7


def test_a_bad_line_is_told_with_file_line_and_nearest_name(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# mine\nlog.retention.hour=3\n")
    with pytest.raises(ConfigError) as refused:
        BrokerSettings.load(str(file))
    assert refused.value.message == (
        f"{file}:2: unknown config log.retention.hour; did you mean log.retention.hours?"
    )


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("process.roles", "quorum"),
        ("zookeeper.ssl.enabled.protocols", "ZooKeeper"),
        ("ssl.engine.factory.class", "TLS"),
        ("transaction.two.phase.commit.enable", "two-phase"),
    ],
)
def test_a_key_of_kafka_without_a_place_here_is_explained(name: str, word: str) -> None:
    with pytest.raises(ConfigError, match=f"command line: {name} is not supported: .*{word}"):
        BrokerSettings.load(None, {name: "x"})


def test_limits_per_address_are_pairs() -> None:
    name = "max.connections.per.ip.overrides"
    assert BrokerSettings.check({name: "10.0.0.1:5, ::1:6"}, cluster_wide=True) is None
    problem = BrokerSettings.check({name: "10.0.0.1:many"}, cluster_wide=True)
    assert problem is not None
    assert "ADDRESS:LIMIT" in problem.message


def test_node_id_and_broker_id_must_agree() -> None:
    with pytest.raises(ConfigError, match=r"set only node\.id"):
        BrokerSettings.load(None, {"node.id": "1", "broker.id": "2"})


def test_per_broker_beats_cluster_beats_file() -> None:
    start = BrokerSettings.load(None, {"message.max.bytes": "1000"})
    cluster = start.with_dynamic({"message.max.bytes": "2000"}, {})
    broker = cluster.with_dynamic({"message.max.bytes": "2000"}, {"message.max.bytes": "3000"})
    assert [s.message_max_bytes for s in (start, cluster, broker)] == [1000, 2000, 3000]
    assert broker.topic_defaults.max_message_bytes == 3000
    assert broker.with_dynamic({}, {}) == start


def test_a_stored_change_that_cannot_be_used_does_not_stop_the_broker() -> None:
    settings = BrokerSettings.load().with_dynamic({"node.id": "5", "gone.key": "1"}, {})
    assert settings.node_id == 1
    assert len(settings.ignored) == 2


@pytest.mark.parametrize("unit", ["ms", "minutes", "hours"])
def test_a_retention_below_no_limit_is_refused(unit: str) -> None:
    with pytest.raises(ConfigError, match="cannot be '-5'"):
        BrokerSettings.load(None, {f"log.retention.{unit}": "-5"})


@pytest.mark.parametrize(
    ("static", "expected"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_milliseconds_count_before_minutes_before_hours(
    static: dict[str, str], expected: int
) -> None:
    assert BrokerSettings.load(None, static).topic_defaults.retention_ms == expected


def test_a_topic_overrides_the_broker() -> None:
    broker = BrokerSettings.load(None, {"log.retention.hours": "2", "log.roll.hours": "1"})
    topic = TopicSettings.resolve(broker, {"retention.ms": "5", "cleanup.policy": "compact,delete"})
    assert (topic.retention_ms, topic.segment_ms) == (5, 3_600_000)
    assert topic.compacted


def test_topics_without_overrides_share_one_object() -> None:
    broker = BrokerSettings.load()
    assert TopicSettings.resolve(broker, {}) is TopicSettings.resolve(broker, {})


def test_a_stored_override_that_no_longer_parses_is_passed_over() -> None:
    topic = TopicSettings.resolve(BrokerSettings.load(), {"retention.ms": "x", "old.key": "1"})
    assert topic == BrokerSettings.load().topic_defaults


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"retention.msec": "1"}, "did you mean retention.ms?"),
        ({"cleanup.policy": "shred"}, "it takes compact, delete"),
        ({"compression.gzip.level": "0"}, "1 to 9"),
        ({"leader.replication.throttled.replicas": "1-2"}, "partition:broker"),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
            "min.compaction.lag.ms (5) is greater than max.compaction.lag.ms (4)",
        ),
    ],
)
def test_bad_topic_overrides_are_told(overrides: dict[str, str], reason: str) -> None:
    problem = TopicSettings.check(overrides)
    assert problem is not None
    assert reason in problem.message


def test_a_file_that_contradicts_itself_is_refused_but_a_stored_change_is_lived_with() -> None:
    low, high = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    with pytest.raises(ConfigError, match="is greater than"):
        BrokerSettings.load(None, {low: "5", high: "4"})
    stored = BrokerSettings.load(None, {high: "4"}).with_dynamic({low: "5"}, {})
    assert stored.topic_defaults.min_compaction_lag_ms == 5


def test_good_topic_overrides_pass() -> None:
    assert TopicSettings.check({"retention.ms": "-1", "compression.gzip.level": "-1"}) is None
    assert TopicSettings.check({"leader.replication.throttled.replicas": "0:1,1:2"}) is None
    assert TopicSettings.check({"follower.replication.throttled.replicas": "*"}) is None


def test_a_read_only_key_cannot_change_while_running() -> None:
    problem = BrokerSettings.check({"node.id": "2"}, cluster_wide=False)
    assert problem is not None
    assert "restart the broker" in problem.message
    assert BrokerSettings.check({"message.max.bytes": "2"}, cluster_wide=True) is None


def test_importing_the_tables_brings_in_nothing_heavy() -> None:
    import subprocess

    code = "import sys, headwater.config.broker; print('\\n'.join(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"difflib", "dataclasses", "asyncio", "logging", "json", "inspect", "click", "socket"}
    assert not heavy & set(out.stdout.split())


# -- keys of Kafka without effect here


@pytest.mark.parametrize(
    ("name", "cluster_wide", "accepted"),
    [
        ("sasl.kerberos.principal.to.local.rules", False, True),
        ("sasl.kerberos.principal.to.local.rules", True, False),
        ("ssl.keystore.location", False, False),
        ("listener.name.ssl.ssl.keystore.location", False, True),
        ("listener.name.ssl.ssl.keystore.location", True, False),
        ("remote.log.reader.threads", True, True),
        ("process.roles", False, False),
        ("zookeeper.connect", True, False),
        ("sasl", False, False),
        ("no.such.key", False, False),
    ],
)
def test_what_kafka_can_change_is_stored_without_effect(name, cluster_wide, accepted):
    problem = BrokerSettings.check({name: "x"}, cluster_wide=cluster_wide)
    assert (problem is None) is accepted


def test_stored_keys_without_effect_are_shown_and_secrets_are_not():
    stored = {
        "sasl.kerberos.service.name": "kafka",
        "listener.name.a.ssl.key.password": "s3cret",
    }
    settings = BrokerSettings.load(None, {}).with_dynamic(
        {"remote.log.reader.threads": "3"}, stored
    )
    assert settings.ignored == ()
    rows = {row.name: row for row in broker_rows(settings)}
    assert rows["sasl.kerberos.service.name"].value == "kafka"
    assert "Has no effect here" in rows["sasl.kerberos.service.name"].doc
    assert rows["listener.name.a.ssl.key.password"].value is None
    assert rows["listener.name.a.ssl.key.password"].sensitive
    (row,) = cluster_rows(settings)
    assert (row.name, row.source) == ("remote.log.reader.threads", ConfigSource.DYNAMIC_DEFAULT)
    assert not {name for name in BrokerSettings.KEYS if name in stored}


def test_a_broker_does_not_start_with_settings_it_would_ignore():
    with pytest.raises(ConfigError, match="Kerberos is not supported"):
        BrokerSettings.load(None, {"sasl.kerberos.service.name": "kafka"})


def test_what_the_command_line_sets_is_static():
    settings = settings_from(9192, "/data", None, ())
    rows = {row.name: row for row in broker_rows(settings)}
    assert rows["listeners"].source is ConfigSource.STATIC
    assert rows["log.dirs"].source is ConfigSource.STATIC
    assert rows["node.id"].source is ConfigSource.DEFAULT
