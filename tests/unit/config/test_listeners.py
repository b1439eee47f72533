import pytest

from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.config.listener_overrides import names_of, parse_override
from headwater.config.listeners import Listener


def load(**settings: str) -> BrokerSettings:
    return BrokerSettings.load(None, {name.replace("_", "."): v for name, v in settings.items()})


def test_inside_and_outside_listeners_have_their_own_advertised_addresses() -> None:
    settings = load(
        listeners="INSIDE://:9092,OUTSIDE://0.0.0.0:9093",
        advertised_listeners="OUTSIDE://kafka.example.org:19093",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        inter_broker_listener_name="inside",
    )
    assert settings.listening[0] == Listener("INSIDE", "", 9092, "PLAINTEXT")
    assert [str(listener) for listener in settings.advertised] == [
        "INSIDE://:9092",
        "OUTSIDE://kafka.example.org:19093",
    ]
    assert settings.inter_broker_listener.name == "INSIDE"


def test_an_ipv6_address_stands_in_brackets() -> None:
    listener = load(listeners="PLAINTEXT://[::1]:9092").listening[0]
    assert listener.host == "::1"
    assert str(listener) == "PLAINTEXT://[::1]:9092"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"listeners": "127.0.0.1:9092"}, "write NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:99999"}, "write NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h"}, "write NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "two listeners called PLAINTEXT"),
        ({"listeners": "INSIDE://:1"}, "give it a protocol in listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "set advertised.listeners=PLAINTEXT://HOST:1"),
        ({"advertised_listeners": "PLAINTEXT://h:1,SSL://h:2"}, "SSL, which is missing in listeners"),
        ({"listener_security_protocol_map": "A:TELNET"}, "is not NAME:PROTOCOL"),
        (
            {"advertised_listeners": "B://h:1", "listener_security_protocol_map":
             "B:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
            "advertised.listeners has B, which is missing in listeners",
        ),
    ],
)  # fmt: skip
def test_a_listener_that_cannot_work_is_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(**settings)
    assert reason in refused.value.message


TWO = {
    "listeners": "INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.1:2",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


def test_a_listener_has_its_own_value_before_the_general_one() -> None:
    settings = BrokerSettings.load(
        None, {**TWO, "max.connections": "10", "listener.name.outside.max.connections": "3"}
    )
    assert settings.of_listener("OUTSIDE", "max.connections") == 3
    assert settings.of_listener("INSIDE", "max.connections") == 10
    changed = settings.with_dynamic({"max.connections": "20"}, {})
    assert changed.of_listener("OUTSIDE", "max.connections") == 3, "the file names the listener"
    assert changed.of_listener("INSIDE", "max.connections") == 20


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("listener.name.nowhere.max.connections", "1", "NOWHERE, which is missing in listeners"),
        (
            "listener.name.inside.max.connections",
            "many",
            "listener.name.inside.max.connections can",
        ),
        ("listener.name.inside.num.partitions", "1", "set num.partitions for all listeners"),
        ("listener.name.inside.no.such.key", "1", "unknown config no.such.key"),
    ],
)
def test_a_setting_of_a_listener_that_cannot_work_is_refused(name, value, reason) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerSettings.load(None, {**TWO, name: value})
    assert reason in refused.value.message


def test_the_parts_of_a_listener_setting() -> None:
    assert parse_override("listener.name.a-b.scram-sha-512.sasl.jaas.config") == (
        "A-B", "scram-sha-512", "sasl.jaas.config"
    )  # fmt: skip
    assert parse_override("listener.name.a.ssl.client.auth") == ("A", None, "ssl.client.auth")
    assert parse_override("listeners") is None
    assert names_of("sasl.jaas.config", "A", "PLAIN")[0] == "listener.name.a.plain.sasl.jaas.config"


def test_the_protocol_between_brokers_is_chosen_once() -> None:
    with pytest.raises(ConfigError, match="both set"):
        BrokerSettings.load(
            None,
            {
                **TWO,
                "inter.broker.listener.name": "INSIDE",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
        )
    with pytest.raises(ConfigError, match="needs a listener called PLAINTEXT"):
        BrokerSettings.load(None, {**TWO, "security.inter.broker.protocol": "PLAINTEXT"})


def test_an_inter_broker_listener_must_exist() -> None:
    with pytest.raises(ConfigError, match="INSIDE is not among the listeners"):
        load(inter_broker_listener_name="INSIDE")


def test_the_controller_may_have_a_listener_of_its_own() -> None:
    both = {
        "listeners": "PLAINTEXT://:9092,CONTROL://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
    }
    settings = BrokerSettings.load(None, {**both, "control.plane.listener.name": "control"})
    assert settings.listeners_of_brokers == ("PLAINTEXT", "CONTROL")
    assert BrokerSettings.load(None, both).listeners_of_brokers == ("PLAINTEXT", "PLAINTEXT")
    for name, reason in (("NOWHERE", "is not among"), ("PLAINTEXT", "of its own")):
        with pytest.raises(ConfigError, match=reason):
            BrokerSettings.load(None, {**both, "control.plane.listener.name": name})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("zk1:2181", ("zk1:2181", "")),
        ("zk1:2181,zk2:2182/kafka/one/", ("zk1:2181,zk2:2182", "/kafka/one")),
    ],
)
def test_zookeeper_servers_with_a_path_behind_them(text: str, address: tuple[str, str]) -> None:
    settings = BrokerSettings.load(None, {"zookeeper.connect": text})
    assert settings.zookeeper_address == address
    assert settings.zookeeper_connection_timeout == settings.zookeeper_session_timeout_ms == 18_000


@pytest.mark.parametrize(
    "text", ["zk1", "zk1:", ":2181", "zk1:2181,", "zk1:0", "zk1:2181/", "zk1:2181/a//b"]
)
def test_a_zookeeper_address_that_cannot_work_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect cannot be"):
        BrokerSettings.load(None, {"zookeeper.connect": text})


LOGIN = {"zookeeper.digest.username": "headwater", "zookeeper.digest.password": "river"}
TLS = {
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.ssl.keystore.location": "/keys/broker.pem",
    "zookeeper.ssl.keystore.password": "pass",
    "zookeeper.ssl.truststore.location": "/keys/ca.crt",
    "zookeeper.ssl.truststore.type": "pem",
}


def test_a_login_and_tls_for_zookeeper() -> None:
    plain = BrokerSettings.load(None, {"zookeeper.set.acl": "true", **LOGIN})
    assert (plain.zookeeper_login, plain.zookeeper_tls) == ("headwater:river", None)
    encrypted = BrokerSettings.load(None, {"zookeeper.set.acl": "true", **TLS})
    assert encrypted.zookeeper_login is None
    assert encrypted.zookeeper_tls == ("/keys/broker.pem", "pass", "/keys/ca.crt", True)
    any_name = {**TLS, "zookeeper.ssl.endpoint.identification.algorithm": ""}
    assert BrokerSettings.load(None, any_name).zookeeper_tls == (
        *encrypted.zookeeper_tls[:3],
        False,
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"zookeeper.set.acl": "true"}, "needs an identity"),
        ({"zookeeper.digest.username": "headwater"}, "belong together"),
        ({**LOGIN, "zookeeper.digest.username": "a:b"}, "without a colon"),
        ({**TLS, "zookeeper.ssl.client.enable": "false"}, "client.enable=true"),
        ({**TLS, "zookeeper.ssl.keystore.location": "/keys/broker.jks"}, "only PEM"),
        ({**TLS, "zookeeper.ssl.keystore.type": "JKS"}, "only PEM"),
        ({**TLS, "zookeeper.ssl.truststore.type": "PKCS12"}, "only PEM"),
    ],
)
def test_what_would_leave_zookeeper_half_secured_is_refused(
    settings: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        BrokerSettings.load(None, settings)
