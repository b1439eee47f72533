"""The options of the source."""

import pytest

from headwater.config.keys import ConfigError
from headwater.model import TopicPartition
from headwater.pipelines.topic_source.options import Bound, parse, wants_headers

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def batch(**options):
    return parse({**SERVERS, "subscribe": "a", **options}, streaming=False)


def stream(**options):
    return parse({**SERVERS, "subscribe": "a", **options}, streaming=True)


def without_topics(streaming=False, **options):
    return parse({**SERVERS, **options}, streaming=streaming)


def refused(call, *said):
    with pytest.raises(ConfigError) as problem:
        call()
    for word in said:
        assert word in problem.value.message


def test_the_defaults_are_those_of_kafkas_connector():
    assert batch().starting == Bound("earliest")
    assert batch().ending == Bound("latest")
    assert stream().starting == Bound("latest")
    assert stream().fail_on_data_loss
    assert not stream().include_headers
    assert stream().max_delay_ms == 15 * 60_000
    assert stream().poll_timeout_ms == 120_000


def test_names_are_read_in_any_letters():
    found = parse(
        {"KAFKA.bootstrap.SERVERS": "h:1", "SUBSCRIBE": "a, b,", "startingoffsets": "Earliest"},
        streaming=True,
    )
    assert found.topics == ("a", "b")
    assert found.starting == Bound("earliest")


def test_an_unknown_option_is_refused_with_the_nearest():
    refused(lambda: batch(startingOffset="earliest"), "startingOffset", "startingOffsets?")
    refused(lambda: batch(**{"bootstrap.servers": "x:1"}), "kafka.bootstrap.servers?")


def test_one_of_three_ways_to_say_what_is_read():
    assert without_topics(subscribePattern="a.*").pattern == "a.*"
    assert without_topics(assign='{"a": [1]}').assigned == (TopicPartition("a", 1),)
    refused(without_topics, "subscribe, subscribePattern, assign", "one of them")
    refused(lambda: batch(assign='{"a": [1]}'), "not subscribe and assign")
    refused(lambda: batch(subscribe=" , "), "names no topic")
    refused(lambda: without_topics(subscribePattern="a("), "is not a pattern")
    refused(lambda: without_topics(subscribePattern=""), "is empty")


def test_the_servers_must_be_named():
    refused(lambda: parse({"subscribe": "a"}, streaming=True), "kafka.bootstrap.servers is missing")


def test_client_settings_are_passed_on_and_checked():
    found = batch(**{"kafka.isolation.level": "read_committed"})
    assert found.client["isolation_level"] == "read_committed"
    refused(lambda: batch(**{"kafka.isolation.levle": "x"}), "isolation_level")


def test_tls_is_passed_on():
    found = batch(**{"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/x"})
    assert found.client["security_protocol"] == "SSL"
    assert found.client["ssl_truststore_location"] == "/x"


def test_a_login_reaches_the_clients():
    login = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        'required username="alice" password="secret";',
    }
    assert batch(**login).client["sasl_mechanism"] == "PLAIN"
    refused(lambda: batch(**{**login, "kafka.sasl.jaas.config": "x"}), "login configuration")


def test_plaintext_may_be_said():
    assert batch(**{"kafka.security.protocol": "PLAINTEXT"}).topics == ("a",)


@pytest.mark.parametrize(
    "name",
    ["key.deserializer", "value.deserializer", "auto.offset.reset", "enable.auto.commit",
     "interceptor.classes"],
)  # fmt: skip
def test_what_kafkas_connector_refuses_is_refused(name):
    refused(lambda: batch(**{f"kafka.{name}": "x"}), f"kafka.{name} cannot be set")


def test_groups_may_be_named_as_for_kafkas_connector():
    assert stream(groupIdPrefix="x", **{"kafka.group.id": "g"}).client["group_id"] == "g"


def test_the_committed_offsets_of_a_group_are_a_start():
    assert stream(startingOffsets="committed", **{"group.id": "g"}).starting.group == "g"
    assert stream(startingOffsets="committed", **{"kafka.group.id": "g"}).starting.group == "g"
    refused(lambda: stream(startingOffsets="committed"), "needs group.id")


def test_times_go_before_offsets():
    found = batch(
        startingTimestamp="1000",
        startingOffsetsByTimestamp='{"a": {"0": 5}}',
        startingOffsets="earliest",
        endingOffsetsByTimestamp='{"a": {"0": 7}}',
        endingOffsets="latest",
    )
    assert found.starting == Bound("time", time_ms=1000)
    assert found.ending == Bound("times", offsets={TopicPartition("a", 0): 7})


def test_a_batch_cannot_begin_at_its_end_or_end_at_its_beginning():
    refused(lambda: batch(startingOffsets="latest"), "cannot be latest")
    refused(lambda: batch(startingOffsets='{"a": {"0": -1}}'), "cannot be latest")
    refused(lambda: batch(endingOffsets="earliest"), "cannot be earliest")
    refused(lambda: batch(endingOffsets='{"a": {"0": -2}}'), "cannot be earliest")


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name):
    refused(lambda: stream(**{name: "1"}), name, "remove it from a stream")


def test_numbers_words_and_times_are_checked():
    refused(lambda: stream(maxOffsetsPerTrigger="0"), "at least 1")
    refused(lambda: stream(minPartitions="many"), "whole number")
    refused(lambda: stream(failOnDataLoss="maybe"), "true or false")
    refused(lambda: stream(targetBatchTime="fast"), "500ms, 5s or 15m")
    refused(lambda: stream(startingOffsets="first"), "earliest or latest or JSON")
    refused(lambda: stream(minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8"), "is above")
    refused(lambda: stream(startingTimestamp="-1"), "at least 0")
    refused(lambda: stream(startingOffsetsByTimestampStrategy="x"), "error or latest")


@pytest.mark.parametrize(
    ("text", "ms"), [("250", 250), ("250ms", 250), ("5s", 5000), ("5 S", 5000), ("2m", 120_000)]
)
def test_times_have_units(text, ms):
    assert stream(targetBatchTime=text).target_ms == ms


def test_a_start_that_moves_is_known_as_such():
    assert Bound("earliest").repeatable
    assert Bound("offsets", offsets={TopicPartition("a", 0): 5}).repeatable
    assert not Bound("offsets", offsets={TopicPartition("a", 0): -1}).repeatable
    assert not Bound("latest").repeatable
    assert not Bound("committed").repeatable


def test_the_schema_depends_on_one_option_only():
    assert wants_headers({"includeHeaders": "TRUE"})
    assert not wants_headers({})
