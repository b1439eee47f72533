"""DescribeConfigs rows."""

from headwater.config.broker import BrokerSettings
from headwater.config.resolve import (
    ConfigRow,
    ConfigSource,
    Synonym,
    broker_rows,
    cluster_rows,
    topic_rows,
)
from headwater.config.topic import TopicSettings


def named(rows: list[ConfigRow], name: str) -> ConfigRow:
    return next(row for row in rows if row.name == name)


def test_a_topic_row_lists_its_synonyms_in_the_order_in_which_they_count() -> None:
    settings = BrokerSettings.load(None, {"message.max.bytes": "4"}).with_dynamic(
        {"message.max.bytes": "3"}, {"message.max.bytes": "2"}
    )
    row = named(topic_rows(settings, {"max.message.bytes": "1"}), "max.message.bytes")
    assert (row.value, row.source, row.read_only) == ("1", ConfigSource.TOPIC, False)
    assert row.synonyms == (
        Synonym("max.message.bytes", "1", ConfigSource.TOPIC),
        Synonym("message.max.bytes", "2", ConfigSource.DYNAMIC_BROKER),
        Synonym("message.max.bytes", "3", ConfigSource.DYNAMIC_DEFAULT),
        Synonym("message.max.bytes", "4", ConfigSource.STATIC),
        Synonym("message.max.bytes", "1048588", ConfigSource.DEFAULT),
    )


def test_a_default_given_in_hours_is_shown_in_milliseconds_with_its_source() -> None:
    row = named(
        topic_rows(BrokerSettings.load(None, {"log.retention.hours": "1"}), {}), "retention.ms"
    )
    assert (row.value, row.source) == ("3600000", ConfigSource.STATIC)
    assert row.synonyms[0] == Synonym("log.retention.hours", "1", ConfigSource.STATIC)


def test_a_topic_key_without_synonym_has_its_default() -> None:
    row = named(topic_rows(BrokerSettings.load(), {}), "leader.replication.throttled.replicas")
    assert (row.value, row.source, row.synonyms) == ("", ConfigSource.DEFAULT, ())


def test_every_key_is_described_once() -> None:
    settings = BrokerSettings.load()
    assert [row.name for row in topic_rows(settings, {})] == list(TopicSettings.KEYS)
    assert [row.name for row in broker_rows(settings)] == list(BrokerSettings.KEYS)


def test_a_broker_row_tells_source_and_whether_it_can_change() -> None:
    settings = BrokerSettings.load(None, {"num.partitions": "3"})
    rows = broker_rows(settings.with_dynamic({"min.insync.replicas": "2"}, {}))
    assert named(rows, "num.partitions")[1:4] == ("3", ConfigSource.STATIC, True)
    assert named(rows, "min.insync.replicas")[1:4] == ("2", ConfigSource.DYNAMIC_DEFAULT, False)
    assert named(rows, "log.retention.ms").synonyms == ()


def test_the_cluster_default_lists_only_what_is_set() -> None:
    settings = BrokerSettings.load().with_dynamic({"min.insync.replicas": "2"}, {})
    assert [(row.name, row.value, row.source) for row in cluster_rows(settings)] == [
        ("min.insync.replicas", "2", ConfigSource.DYNAMIC_DEFAULT)
    ]
