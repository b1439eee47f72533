"""How the settings of a config file reach sources, sinks and clients, and secrets stay out of options."""

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from headwater.config.client import ConsumerSettings
from headwater.config.keys import ConfigError
from headwater.pipelines.connection_settings import ConnectionSettings, with_config_file
from headwater.pipelines.topic_sink.sink_plan import plan_sink
from headwater.pipelines.topic_source.broker_client_loop import BrokerClient
from headwater.pipelines.topic_source.options import parse

FILE = """
bootstrap.servers=elsewhere:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.username=alice
sasl.password=hunter2
ssl.ca.location=ca.pem
linger.ms=20
group.id=mine
"""
VALUE = StructType([StructField("value", BinaryType())])


@pytest.fixture
def connection(tmp_path):
    file = tmp_path / "alice.properties"
    file.write_text(FILE)
    overrides = {"ssl.truststore.location": "other.pem"}
    return ConnectionSettings("127.0.0.1:1", str(file), overrides)


def test_clients_get_what_every_client_has(connection):
    assert connection.client == {
        "bootstrap_servers": "127.0.0.1:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "hunter2",
        "ssl_truststore_location": "other.pem",
    }


def test_options_name_the_file_and_no_secret(connection):
    assert connection.options == {
        "configFile": connection.config_file,
        "kafka.ssl.truststore.location": "other.pem",
        "kafka.bootstrap.servers": "127.0.0.1:1",
    }
    source = parse({**connection.options, "subscribe": "orders"}, streaming=True)
    sink = plan_sink({**connection.options, "topic": "orders"}, VALUE)
    assert sink.client == sink.producer == connection.client
    assert source.client == {**connection.client, "isolation_level": "read_committed"}
    assert "hunter2" not in f"{source}{sink}{connection}"


def test_committed_offsets_are_looked_up_with_the_same_login(connection, monkeypatch):
    asked = {}

    class Admin:
        def __init__(self, **settings):
            asked.update(settings)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def group_offsets(self, group):
            return {}

    monkeypatch.setattr("headwater.client.admin.BlockingAdmin", Admin)
    source = parse({**connection.options, "subscribe": "orders"}, streaming=True)
    client = BrokerClient.__new__(BrokerClient)
    client.settings = ConsumerSettings.of(source.client)
    assert client.committed("mine") == {}
    assert {name.replace(".", "_"): value for name, value in asked.items()} == connection.client


def test_other_brokers_do_not_get_the_login(connection):
    other = {"Kafka.Bootstrap.Servers": "elsewhere:9092"}
    assert connection.source_options(other) == other
    assert connection.source_options({"subscribe": "orders"})["configFile"]


def test_a_given_option_overrides_the_file_under_any_of_its_names(connection):
    given = {"configfile": connection.config_file, "kafka.ssl.ca.location": "mine.pem"}
    found = with_config_file(given)
    assert found["kafka.ssl.ca.location"] == "mine.pem"
    assert "kafka.ssl.truststore.location" not in found


def test_a_typo_in_the_file_is_not_ignored(tmp_path):
    file = tmp_path / "bad.properties"
    file.write_text("security.protcol=SSL\n")
    with pytest.raises(ConfigError, match=r"bad.properties:1: unknown setting security.protcol"):
        _ = ConnectionSettings("127.0.0.1:1", str(file)).client
