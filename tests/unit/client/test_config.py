"""Settings by keyword: Kafka's words, and an answer to every mistake."""

import pytest

from headwater.config.client import AdminSettings, ConsumerSettings, ProducerSettings
from headwater.config.keys import ConfigError

SASL = {"security_protocol": "SASL_PLAINTEXT"}
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="hunter2";'
)


def producer(**keywords) -> ProducerSettings:
    return ProducerSettings.of({"bootstrap_servers": "localhost:9092", **keywords})


def test_the_defaults_are_kafkas() -> None:
    settings = producer()
    assert (settings.batch_size, settings.linger_ms, settings.buffer_memory) == (16384, 5, 33554432)
    assert (settings.max_block_ms, settings.max_request_size) == (60_000, 1_048_576)
    assert settings.max_in_flight_requests_per_connection == 5
    assert (settings.delivery_timeout_ms, settings.retry_backoff_ms) == (120_000, 100)
    assert settings.required_acks == -1
    assert settings.enable_idempotence
    assert settings.retries == 2147483647


TLS = {"security_protocol": "SSL"}


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"lingerms": 3}, "unknown setting lingerms; did you mean linger_ms?"),
        ({"batch_sise": 3}, "did you mean batch_size?"),
        ({"value_serialiser": str.encode}, "did you mean value_serializer?"),
        ({"linger_ms": "soon"}, "linger.ms cannot be 'soon': it takes a whole number"),
        ({"linger_ms": -1}, "at least 0"),
        ({"acks": 2}, "all, -1, 0, 1"),
        ({"linger_ms": None}, "linger.ms cannot be None"),
        ({"compression_type": "rar"}, "none, gzip, snappy, lz4, zstd"),
        ({"bootstrap_servers": "localhost"}, "'localhost' is not HOST:PORT"),
        ({"bootstrap_servers": ""}, "at least one HOST:PORT"),
        ({"sasl_mechanism": "PLAIN"}, "set security.protocol=SASL_SSL"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "set sasl.mechanism to one of PLAIN"),
        ({**SASL, "sasl_mechanism": "PLAIN"}, "set sasl.username and sasl.password"),
        ({**SASL, "sasl_mechanism": "GSSAPI"}, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({**SASL, "sasl_jaas_config": JAAS}, "set sasl.mechanism"),
        ({**SASL, "sasl_mechanism": "PLAIN", "sasl_jaas_config": JAAS}, "no login module for"),
        ({**SASL, "sasl_jaas_config": JAAS, "sasl_username": "a"}, "keep one of both"),
        ({**SASL, "java_security_auth_login_config": "/no/jaas"}, "/no/jaas cannot be read"),
        ({**SASL, "sasl_kerberos_service_name": "k"}, "Kerberos"),
        ({**SASL, "sasl.client.callback.handler.class": "x.Y"}, "classes of Java"),
        ({**SASL, "sasl.jaas.confg": "x"}, "did you mean sasl.jaas.config"),
        ({"ssl_cafile": "ca.pem"}, "PLAINTEXT does not use TLS: set security.protocol=SSL,"),
        ({**SASL, "ssl_cafile": "ca.pem"}, "does not use TLS: set security.protocol=SASL_SSL"),
        ({"security_protocol": "TLS"}, "it takes PLAINTEXT, SSL"),
        ({**TLS, "ssl_keyfile": "k"}, "ssl.certificate.location and ssl.key.location belong"),
        ({**TLS, "ssl_keystore_location": "a.jks"}, "keytool -importkeystore -srckeystore a.jks"),
        ({**TLS, "ssl_check_hostname": False}, "ssl_endpoint_identification_algorithm"),
        ({**TLS, "ssl_cafile": "a", "ssl.ca.location": "b"}, "set twice"),
        ({"transactional_id": ""}, "transactional.id"),
        ({"transactional_id": "t", "acks": "1"}, "transactional_id needs acks=all, not 1"),
        ({"transactional_id": "t", "enable_idempotence": False}, "needs enable_idempotence"),
        ({"profile": "durabel"}, "did you mean durable?"),
        ({"enable_idempotence": True, "acks": 1}, "needs acks=all, not 1"),
        ({"enable_idempotence": True, "retries": 0}, "needs retries"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"delivery_timeout_ms": 100}, "at least linger_ms + request_timeout_ms"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(keywords, said) -> None:
    with pytest.raises(ConfigError) as refused:
        producer(**keywords)
    assert said in refused.value.message


def test_bootstrap_servers_cannot_be_left_out() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers is missing"):
        AdminSettings.of({})


def test_several_brokers_may_be_given_as_text_or_list() -> None:
    both = ("a:1", "b:2")
    assert producer(bootstrap_servers="a:1,b:2").bootstrap_servers == both
    assert producer(bootstrap_servers=["a:1", "b:2"]).bootstrap_servers == both


@pytest.mark.parametrize("keywords", [{"acks": 1}, {"acks": "0"}, {"retries": 0}])
def test_idempotence_nobody_asked_for_gives_way_with_a_word(keywords) -> None:
    settings = producer(**keywords)
    assert not settings.enable_idempotence
    assert any("enable.idempotence is off" in line for line in settings.warnings())


def test_acks_1_says_what_it_costs() -> None:
    assert "acks=1 costs" in producer(acks=1).explain()
    assert "acks=0 costs" in producer(acks=0).explain()


def test_a_long_linger_raises_a_delivery_timeout_nobody_chose() -> None:
    assert producer(linger_ms=200_000).delivery_timeout_ms == 230_000


def test_a_profile_sets_what_it_needs_and_says_so() -> None:
    settings = producer(profile="throughput", linger_ms=50)
    assert settings.batch_size >= 65_536
    assert settings.linger_ms == 50
    assert settings.compression_type in {"lz4", "zstd"}
    said = settings.explain()
    assert "linger.ms=50  (chosen by you)" in said
    assert "batch.size=131072  (profile throughput)" in said


def test_the_durable_profile_tells_what_topic_and_brokers_need() -> None:
    settings = producer(profile="durable")
    assert settings.acks == "all"
    said = settings.explain()
    assert "topic: min.insync.replicas=2" in said
    assert "topic: unclean.leader.election.enable=false" in said
    assert "broker: default.replication.factor=3" in said


def test_the_latency_profile_keeps_acks_all() -> None:
    settings = producer(profile="latency")
    assert (settings.linger_ms, settings.compression_type, settings.acks) == (0, "none", "all")


def test_a_consumer_takes_its_own_part_of_a_profile() -> None:
    asked = {"bootstrap_servers": "a:1", "group_id": "g", "profile": "durable"}
    settings = ConsumerSettings.of(asked)
    assert not settings.enable_auto_commit
    assert "commit after the work is done" in settings.explain()


def test_a_consumer_without_a_group_commits_nothing() -> None:
    assert not ConsumerSettings.of({"bootstrap_servers": "a:1"}).enable_auto_commit
    with pytest.raises(ConfigError, match="needs a group_id"):
        ConsumerSettings.of({"bootstrap_servers": "a:1", "enable_auto_commit": True})


def test_heartbeats_must_fit_into_the_session() -> None:
    asked = {"bootstrap_servers": "a:1", "session_timeout_ms": 1000}
    with pytest.raises(ConfigError, match="below session_timeout_ms"):
        ConsumerSettings.of(asked)


def test_other_clients_names_of_tls_settings_are_understood() -> None:
    theirs = {"ssl.ca.location": "ca.pem", "ssl_certfile": "c.pem", "ssl.key.location": "k.pem"}
    settings = AdminSettings.of({"bootstrap_servers": "h:1", **TLS, **theirs})
    assert settings.tls is not None
    assert settings.tls.files == ("k.pem", "c.pem", "ca.pem")
    assert AdminSettings.of({"bootstrap_servers": "h:1"}).tls is None


def test_secrets_are_not_explained() -> None:
    secret = {"ssl_key_password": "hush", "ssl_keystore_key": "KEY", "ssl.certificate.pem": "C"}
    settings = AdminSettings.of({"bootstrap_servers": "h:1", **TLS, **secret})
    shown = settings.explain() + repr(settings.tls)
    assert "hush" not in shown
    assert "KEY" not in shown
    assert "ssl.key.password=[hidden]" in shown


@pytest.mark.parametrize("name", [n for n, row in AdminSettings.KEYS.items() if row.sensitive])
@pytest.mark.parametrize("value", [b"hunter2", {"hunter2": 1}, [b"hunter2"]], ids=type)
def test_a_secret_of_the_wrong_type_is_not_shown(name, value) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be .hidden. of type") as wrong:
        AdminSettings.of({"bootstrap_servers": "h:1", name.replace(".", "_"): value})
    assert "hunter2" not in str(wrong.value)


@pytest.mark.parametrize("word", ["true", "True", "false", "yes"])
def test_a_jaas_configuration_may_name_a_delegation_token(word) -> None:
    jaas = JAAS.replace(";", f' tokenauth="{word}";')
    by_token = word.lower() == "true"
    scram = producer(**SASL, sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas)
    assert scram.login == ("SCRAM-SHA-256", "alice", "hunter2", by_token)
    plain = jaas.replace("scram.ScramLoginModule", "plain.PlainLoginModule")
    if by_token:
        with pytest.raises(ConfigError, match="use SCRAM-SHA-512"):
            producer(**SASL, sasl_mechanism="PLAIN", sasl_jaas_config=plain)


def test_a_login_comes_from_any_of_its_places(tmp_path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f"KafkaClient {{ {JAAS} }};")
    scram = {**SASL, "sasl_mechanism": "SCRAM-SHA-256"}
    settings = [
        producer(**scram, sasl_username="alice", sasl_password="hunter2"),
        producer(**scram, sasl_jaas_config=JAAS),
        producer(**scram, java_security_auth_login_config=str(file)),
    ]
    for one in settings:
        assert one.login == ("SCRAM-SHA-256", "alice", "hunter2", False)
        assert "hunter2" not in one.explain() + repr(one.login)
    plain = JAAS.replace("scram.ScramLogin", "plain.PlainLogin")
    assert producer(**SASL, sasl_jaas_config=plain).login.mechanism == "PLAIN"
    assert producer().login is None
